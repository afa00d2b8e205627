//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/purerdma/purerdma/gdr"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/nettransport"
	"github.com/purerdma/purerdma/shmtransport"
	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport"
	"github.com/purerdma/purerdma/transport/driver"
)

// ranks is two ranks of this process that are connected both ways, on one channel.
type ranks struct {
	why    transport.Choice
	ends   [2]driver.Connector  // from 0 to 1
	back   [2]driver.Connector  // from 1 to 0
	engine [2]*transport.Engine // of ends with a proxy
	close  []func() error
}

// ranksConfig is how they are to be connected.
type ranksConfig struct {
	driver gpu.Driver
	gpu    gpu.Context // nil: the data is the host's
	// processor tells that rank 0 has no GPU.
	processor bool
	// net is where the devices of NET are, soft0 of rank 0 and soft1 of rank 1; the ranks are on two hosts then, as NCCL_HOSTID would say. nil
	// is one host, and SHM.
	net     ibverbs.Option
	buffers [driver.Protocols]int
}

const connecting = time.Minute

func newRanks(c ranksConfig) (_ *ranks, err error) {
	r := &ranks{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), connecting)
	defer cancel()
	var comms [2]*transport.Communicator
	var errs [2]error
	var all sync.WaitGroup
	transports := [2]transport.Transport{}
	for rank := range transports {
		if transports[rank], err = r.transport(c, rank); err != nil {
			return r, err
		}
	}
	for rank, job := range bootstrap.InMemory(2, nil) {
		r.close = append(r.close, job.Close)
		self, err := c.self(rank)
		if err != nil {
			return r, err
		}
		all.Go(func() {
			v := transport.Variables{Buffers: c.buffers}
			comms[rank], errs[rank] = transport.New(ctx, transport.Config{Job: job, Channels: 1, Variables: &v, Self: self,
				Transports: []transport.Transport{transports[rank]}, Log: slog.New(slog.DiscardHandler)})
			if errs[rank] == nil {
				errs[rank] = comms[rank].Connect(ctx, transport.Mesh(rank, 2, 1))
			}
		})
	}
	all.Wait()
	for rank, comm := range comms {
		if comm == nil {
			continue
		}
		r.close = append(r.close, comm.Close)
		if end := (transport.End{Peer: 1 - rank, ConnIndex: 1, Send: rank == 0}); errs[rank] == nil {
			r.ends[rank] = comm.Connector(end)
			r.why, _ = comm.Why(end)
			end.Send = !end.Send
			r.back[rank] = comm.Connector(end)
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return r, err
	}
	for rank := range r.engine { // they let go of the proxies before the communicators close
		r.engine[rank] = transport.NewEngine()
		r.close = append(r.close, r.engine[rank].Close)
	}
	return r, nil
}

// self is what a rank says of itself.
func (c *ranksConfig) self(rank int) (self driver.PeerInfo, err error) {
	if c.net != nil {
		self.HostHash = uint64(rank + 1)
	}
	if c.processor {
		if self, err = transport.Identify(transport.World{}, ""); rank > 0 {
			d := c.gpu.Device()
			self.ComputeCap = uint32(10*d.Major + d.Minor)
		}
	}
	return self, err
}

// transport is that of a rank.
func (r *ranks) transport(c ranksConfig, rank int) (transport.Transport, error) {
	if c.net == nil {
		config := shmtransport.Config{GPU: c.gpu}
		if c.processor && rank == 0 {
			config.GPU = nil
		}
		shm := shmtransport.New(config)
		r.close = append(r.close, shm.Close)
		return shm, nil
	}
	dev, err := ibverbs.Open(fmt.Sprintf("soft%d", rank), c.net)
	if err != nil {
		return nil, err
	}
	r.close = append(r.close, dev.Close)
	net, err := nettransport.New(nettransport.Config{NICs: []nettransport.NIC{{{Device: dev}}}, GPU: c.gpu, GDR: gdr.Config{Driver: c.driver},
		Net: socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}})
	if err != nil {
		return nil, err
	}
	r.close = append(r.close, net.Close)
	return net.Driver(), nil
}

func (r *ranks) Close() error {
	var errs []error
	for i := len(r.close) - 1; i >= 0; i-- {
		errs = append(errs, r.close[i]())
	}
	r.close = nil
	return errors.Join(errs...)
}

// operation has the proxies, where there are any, move so many steps; wait is for their ends.
func (r *ranks) operation(steps int, p driver.Protocol) (wait func() error) {
	results := make(chan error, len(r.ends))
	n := 0
	for i, e := range r.ends {
		if proxy := e.Proxy(); proxy != nil {
			n++
			r.engine[i].Start(proxy, transport.Op{Steps: steps, SliceSteps: 1, ChunkSteps: 1, Protocol: p}, func(err error) { results <- err })
		}
	}
	return func() error {
		var errs []error
		for range n {
			errs = append(errs, <-results)
		}
		return errors.Join(errs...)
	}
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/kernels"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/internal/offheap"
	"github.com/purerdma/purerdma/p2ptransport"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/topo"
	"github.com/purerdma/purerdma/transport"
	"github.com/purerdma/purerdma/transport/driver"
)

// plan is what all ranks of a scenario do.
type plan struct {
	Scenario scenario
	Samples  int
	Channels int
	Most     int // bytes of the longest message
	Slot     int // bytes of a step of the connections for copies
	Bytes    int // of a sample of a stream, about
	Rounds   int // of a sample of lines between kernels; copies take one fortieth, launches one hundredth
	Seed     uint64
	Library  string // NCCL's, "" to do without
	Hosts    bool   // ranks tell NCCL that each is on a host of its own
}

// result is what a rank has found.
type result struct {
	Connections []connection
	Rows        []row
	Checked     int // messages
	NCCL        int // version, 0 without it
	Sent        uint64
}

// connection is how a rank sends to another.
type connection struct {
	From   int    `json:"from_gpu"`
	To     int    `json:"to_gpu"`
	Ranks  int    `json:"ranks"`
	Mode   string `json:"mode"`
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// rank is one rank of a scenario.
type rank struct {
	plan
	me, n   int
	job     bootstrap.Job
	page    *page
	epoch   uint64
	g       gpu.Context
	set     *kernels.Set
	a, b    gpu.Stream
	src     gpu.Ptr // the text, from its start
	dst     gpu.Ptr
	abort   gpu.Ptr
	host    offheap.Span // registered at pinned, to look at what came
	pinned  gpu.Ptr
	text    []byte
	many    *transport.Communicator // for kernels: many channels, NCCL's buffers
	bulk    *transport.Communicator // for copies: one channel with large steps
	steps   map[transport.End]uint64
	kernels bool // they may wait for each other
	rival   *rival
	close   []func() error

	// Steps that copies have moved, by peer.
	carriedOut, carriedIn []uint64
	gone                  atomic.Uint64 // bytes to other GPUs

	result
}

// slack is bytes that the text is longer than the longest message, so that each message begins somewhere else in it.
const slack = 64 << 10

// newRank opens the rank's GPU and connects it with all others.
func newRank(ctx context.Context, d gpu.Driver, job bootstrap.Job, p plan, pg *page) (_ *rank, err error) {
	r := &rank{plan: p, me: job.Rank(), n: job.Size(), job: job, page: pg, steps: map[transport.End]uint64{},
		carriedOut: make([]uint64, job.Size()), carriedIn: make([]uint64, job.Size())}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.g, err = d.Open(p.Scenario.Devices[r.me]); err != nil {
		return nil, err
	}
	r.close = append(r.close, r.g.Close)
	if r.set, err = kernels.Load(r.g); err != nil {
		return nil, err
	}
	r.close = append(r.close, r.set.Close)
	if err := r.allocate(); err != nil {
		return nil, err
	}
	system, err := topo.Read(os.DirFS("/sys"))
	if system != nil {
		err = system.AddGPUs(os.DirFS("/sys"), d)
	}
	if err != nil {
		system = nil // then no distance is known, which refuses nobody
	}
	many := [driver.Protocols]int{driver.LL: 64 << 10, driver.Simple: driver.DefaultBuffers[driver.Simple]}
	if r.many, err = r.connect(ctx, d, system, p.Channels, many); err != nil {
		return nil, err
	}
	if r.bulk, err = r.connect(ctx, d, system, 1, [driver.Protocols]int{driver.Simple: driver.Steps * p.Slot}); err != nil {
		return nil, err
	}
	r.kernels = true
	for peer := range r.n {
		if peer == r.me {
			continue
		}
		why, _ := r.many.Why(r.end(peer, 0, true))
		r.Connections = append(r.Connections, connection{p.Scenario.Devices[r.me], p.Scenario.Devices[peer], r.n, p.Scenario.mode(), why.Transport, why.Reason})
		if why.Transport != "P2P" {
			return nil, fmt.Errorf("rank %d is connected by %v, want P2P", peer, why)
		}
		if c := r.conn(r.many, peer, 0, true); c.NoKernels != "" {
			r.kernels = false
		}
	}
	return r, nil
}

// allocate makes the rank's memory and fills the source.
func (r *rank) allocate() (err error) {
	for _, s := range []*gpu.Stream{&r.a, &r.b} {
		if *s, err = r.g.NewStream(); err != nil {
			return err
		}
	}
	size := r.Most + slack
	for _, m := range []*gpu.Ptr{&r.src, &r.dst} {
		if *m, err = r.g.Alloc(size); err != nil {
			return err
		}
	}
	if r.abort, err = r.g.Alloc(4096); err != nil {
		return err
	}
	if r.host, err = offheap.Map(size, offheap.Options{}); err != nil {
		return err
	}
	if err := errors.Join(r.g.Fill(r.abort, 0, 4096, r.a), r.g.Synchronize(r.a)); err != nil {
		return err
	}
	if r.pinned, err = r.g.RegisterHost(uintptr(r.host.Addr()), r.host.Len()); err != nil {
		return errors.Join(err, r.host.Release())
	}
	r.close = append(r.close, func() error {
		return errors.Join(r.g.UnregisterHost(uintptr(r.host.Addr())), r.host.Release(), r.g.Free(r.src), r.g.Free(r.dst), r.g.Free(r.abort),
			r.g.CloseStream(r.a), r.g.CloseStream(r.b))
	})
	// Kernels that wait for a rank that has failed are ended.
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-over:
		case <-r.job.Done():
			_ = r.g.WriteTo(r.abort, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		}
	})
	r.close = append(r.close, func() error { close(over); watch.Wait(); return nil }) // before the memory goes
	r.text = text(r.Seed, size)
	copy(r.host.Bytes(), r.text)
	return errors.Join(r.g.Copy(r.src, r.pinned, size, r.a), r.g.Synchronize(r.a))
}

func (r *rank) connect(ctx context.Context, d gpu.Driver, system *topo.System, channels int, buffers [driver.Protocols]int) (*transport.Communicator, error) {
	p2p, err := p2ptransport.New(p2ptransport.Config{Driver: d, GPU: r.g, System: system, Level: topo.SYS, NoCUMEM: r.Scenario.Way.NoCUMEM,
		Read: &r.Scenario.Read, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	r.close = append(r.close, p2p.Close)
	comm, err := transport.New(ctx, transport.Config{Job: r.job, Channels: channels, Variables: &transport.Variables{Buffers: buffers},
		Transports: []transport.Transport{p2p}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	r.close = append(r.close, comm.Close)
	return comm, comm.Connect(ctx, transport.Mesh(r.me, r.n, channels))
}

func (r *rank) end(peer, channel int, send bool) transport.End {
	return transport.End{Peer: peer, Channel: channel, ConnIndex: 1, Send: send}
}

func (r *rank) conn(c *transport.Communicator, peer, channel int, send bool) *driver.GPUConn {
	return c.Connector(r.end(peer, channel, send)).Conn().GPU
}

// Close ends the rank; its peers must have ended their work.
func (r *rank) Close() error {
	var errs []error
	for i := len(r.close) - 1; i >= 0; i-- {
		errs = append(errs, r.close[i]())
	}
	r.close = nil
	return errors.Join(errs...)
}

// barrier returns when all ranks have come to it, as close together as spinning gets them.
func (r *rank) barrier() error {
	r.epoch++
	mmio.StoreRelease64(r.page.arrived(r.me), r.epoch)
	for peer := range r.n {
		if err := wait(r.page.arrived(peer), r.epoch, r.job.Done()); err != nil {
			return fmt.Errorf("rank %d: %w", peer, err)
		}
	}
	return nil
}

// device is the GPU of a rank.
func (r *rank) device(rank int) int { return r.Scenario.Devices[rank] }

// sent counts what has gone to another GPU.
func (r *rank) sent(peer, n int) {
	if r.device(peer) != r.device(r.me) {
		r.gone.Add(uint64(n))
	}
}

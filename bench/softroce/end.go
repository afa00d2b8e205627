package main

import (
	"context"
	"errors"
	"net/netip"

	"github.com/purerdma/purerdma/bench/control"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
)

// memory is what an end registers: a message to send from, then one for the peer to write to, then words.
const (
	fromAt  = 0
	toAt    = message
	wordsAt = 2 * message
	memory  = wordsAt + 4096
)

// looksPerYield is how many looks that find nothing go by between two yields.
const looksPerYield = 64

// end is one of the two ends.
type end struct {
	orders
	leads  bool
	dev    *ibverbs.Context
	cq     *ibverbs.CQ // of all but receives
	events *ibverbs.CQ // of receives, to wait on
	buf    *mr.Buffer
	mem    *ibverbs.MR
	qps    []*qp.QP
	ref    *reference
	peer   place
	rounds uint64 // numbers of ping-pongs so far
}

// newEnd opens a device of this process and makes all that the modes need. network is nil for UDP.
func newEnd(o orders, leads bool, network softroce.Network, addr netip.Addr) (*end, error) {
	e := &end{orders: o, leads: leads}
	if err := e.open(network, addr); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *end) open(network softroce.Network, addr netip.Addr) (err error) {
	drv := softroce.New(softroce.Config{Addrs: []netip.Addr{addr}, Network: network})
	if e.dev, err = ibverbs.Open("soft0", ibverbs.WithDrivers(drv)); err != nil {
		return err
	}
	pd, err := e.dev.AllocPD()
	if err != nil {
		return err
	}
	if e.cq, err = e.dev.CreateCQ(2 * depth); err != nil {
		return err
	}
	if e.events, err = e.dev.CreateCQ(2*depth, ibverbs.WithEvents()); err != nil {
		return err
	}
	if e.buf, err = mr.Alloc(memory); err != nil {
		return err
	}
	if e.mem, err = pd.RegMR(e.buf, ibverbs.LocalWrite|ibverbs.RemoteWrite); err != nil {
		return err
	}
	for i := range e.queuePairs() {
		opts := []qp.Option{qp.WithDepth(depth, 1), qp.WithInline(8), qp.WithTimeout(18, 7)}
		switch i {
		case qp1024:
			opts = append(opts, qp.WithMTU(ibverbs.MTU1024))
		case qpLatency:
			opts = append(opts, qp.WithDepth(depth, depth))
		}
		if i >= special {
			opts = append(opts, qp.WithDepth(16, 16))
		}
		q, err := qp.New(pd, e.cq, e.events, opts...)
		if err != nil {
			return err
		}
		e.qps = append(e.qps, q)
	}
	local := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if network == nil {
		local = e.qps[0].Info().GID.Addr()
	}
	e.ref, err = newReference(local)
	return err
}

// Close frees all of it.
func (e *end) Close() error {
	var errs []error
	if e.dev != nil {
		errs = append(errs, e.dev.Close())
	}
	if e.buf != nil {
		errs = append(errs, e.buf.Close())
	}
	if e.ref != nil {
		errs = append(errs, e.ref.Close())
	}
	return errors.Join(errs...)
}

// connect tells the peer where this end is, learns where the peer is and connects all.
func (e *end) connect(ctx context.Context, ctl *control.Conn) error {
	to := e.mem.Remote(0)
	if err := ctl.Send(sayPlace, place{Addr: to.Addr, RKey: to.RKey, Len: memory, QPs: len(e.qps), Ports: e.ref.ports()}); err != nil {
		return err
	}
	if err := ctl.Recv(ctx, sayPlace, &e.peer); err != nil {
		return err
	}
	if err := e.peer.check(e.orders); err != nil {
		return err
	}
	for first := 0; first < len(e.qps); first += infosPerLine {
		mine := e.qps[first:min(first+infosPerLine, len(e.qps))]
		var say, hear infos
		for _, q := range mine {
			say.List = append(say.List, q.Info())
		}
		if err := ctl.Send(sayInfos, say); err != nil {
			return err
		}
		if err := ctl.Recv(ctx, sayInfos, &hear); err != nil {
			return err
		}
		if len(hear.List) != len(mine) {
			return control.ErrProtocol
		}
		for i, q := range mine {
			if err := q.ConnectContext(ctx, hear.List[i]); err != nil {
				return err
			}
		}
	}
	if err := e.ref.connect(e.peer.Ports); err != nil {
		return err
	}
	if err := e.offer(depth); err != nil {
		return err
	}
	if err := ctl.Send(sayConnected, nil); err != nil {
		return err
	}
	return ctl.Recv(ctx, sayConnected, nil)
}

// remote is a place in the peer's memory.
func (e *end) remote(off int) ibverbs.Remote {
	return ibverbs.Remote{Addr: e.peer.Addr + uint64(off), RKey: e.peer.RKey}
}

// offer posts receives for the ping-pong that waits.
func (e *end) offer(n int) error {
	for range n {
		if _, err := e.qps[qpLatency].PostRecv(ibverbs.RecvWR{}); err != nil {
			return err
		}
	}
	return nil
}

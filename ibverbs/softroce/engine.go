package softroce

import (
	"io"
	"math/bits"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// engine is what of a device exists while it is open: the link and two goroutines,
// one that takes packets and the pump. No lock is common to the data paths of two
// queue pairs but that of a CQ or peer that they share.
type engine struct {
	dev      *device
	link     link.Link
	netdev   link.Netdev // the zero value where there is none
	addr     netip.Addr
	random   io.Reader
	counters counters
	pump     *pump
	rx       *receiver

	// spare is the send buffer that was used last, for who sends alone: to get one from
	// the pool costs more.
	spare atomic.Pointer[sendBuffer]

	// polls counts those of CQs that had the link looked at.
	polls atomic.Uint64
	// sleeps says that the receiving goroutine sleeps on the link, and no poll has woken it.
	sleeps atomic.Bool
	// handover ends the rest that the receiving goroutine takes meanwhile.
	handover chan struct{}

	qps  table[qp]
	mrs  table[mr]
	mws  table[mw] // by the upper 24 bits of their keys
	cqs  atomic.Int64
	srqs atomic.Int64
	ahs  atomic.Int64

	flowsMu sync.Mutex
	flows   map[netip.Addr]*flow

	// retryLimit replaces the retry count of all queue pairs, in tests of a network
	// that loses much.
	retryLimit uint8

	// ecn marks data as capable of congestion notification, and obeys it.
	ecn bool

	stop chan struct{}
	done sync.WaitGroup
}

func startEngine(dev *device, l link.Link, netdev link.Netdev) *engine {
	e := &engine{
		dev: dev, link: l, netdev: netdev, addr: l.LocalAddr().Addr(), random: dev.drv.random, pump: newPump(), flows: map[netip.Addr]*flow{},
		retryLimit: dev.drv.retryLimit, ecn: dev.drv.ecn, stop: make(chan struct{}),
		handover: make(chan struct{}, 1),
	}
	e.rx = newReceiver(e)
	if s, ok := l.(link.Shared); ok && s.Awaits() {
		e.rx.shared = s
		e.done.Go(e.receiveInTurn)
	} else {
		e.done.Go(e.receive)
	}
	e.done.Go(func() { e.pump.run(e.stop) })
	return e
}

// close ends the goroutines. No objects are left.
func (e *engine) close() error {
	close(e.stop)
	err := e.link.Close()
	e.rx.late.Stop()
	e.done.Wait()
	return err
}

// showClass has a link tell the type of service of what comes, which is part of a
// datagram's GRH and has the marks of congestion.
func showClass(l link.Link) error {
	if c, ok := l.(link.Classifier); ok {
		return c.ShowClass()
	}
	return nil
}

// send hands packets to the link. Those it refuses are lost.
func (e *engine) send(runs []link.Datagrams) {
	for len(runs) > 0 {
		n, err := e.link.Send(runs)
		runs = runs[n:]
		if err != nil && len(runs) > 0 {
			e.counters.sendErrors.Add(1)
			runs = runs[1:]
		}
	}
}

// maxMTU is the largest path MTU that the port carries.
func (e *engine) maxMTU() driver.MTU {
	m := wire.PathMTU(e.link.MTU())
	if m == 0 {
		return 0
	}
	return driver.MTU(bits.Len(uint(m)) - 8)
}

// port is the state of the one port.
func (e *engine) port() driver.PortAttr {
	a := driver.PortAttr{
		State: driver.PortActive, LinkLayer: driver.LinkEthernet, MaxMTU: driver.MTU4096, ActiveMTU: e.maxMTU(),
		GIDTableLen: gidTableLen, PKeyLen: 1, MaxMsgSize: maxMessage, SpeedMbps: 2500, ActiveWidth: 1, ActiveSpeed: 1, PhysState: 5,
	}
	if w, ok := e.link.(link.PortWatcher); ok && !w.Up() || a.ActiveMTU == 0 {
		a.State, a.PhysState = driver.PortDown, 3
	}
	return a
}

// flowTo is the window to a peer.
func (e *engine) flowTo(peer netip.Addr) *flow {
	e.flowsMu.Lock()
	defer e.flowsMu.Unlock()
	f := e.flows[peer]
	if f == nil {
		f = &flow{e: e}
		f.left.Store(int64(e.window()))
		e.flows[peer] = f
	}
	return f
}

// window is the bytes that may be in flight to a peer: a quarter of the buffer may
// stay charged for what was read.
func (e *engine) window() int { return min(maxWindow, e.link.RecvBuffer()/4*3) }

// charge is what the peer's kernel charges for a packet with so many bytes of
// payload: the packets of a long message come merged, others each on its own, in
// a block of memory of a power of two and some bookkeeping.
func (q *qp) charge(payload int) int {
	if payload == q.mtu {
		return payload + payload/8
	}
	return 256 + 1<<bits.Len(uint(payload+400))
}

// setPeer sets where packets go. What is in flight then counts in the window to the
// new peer.
func (q *qp) setPeer(to netip.Addr) {
	q.route = q.e.newRoute(to, q.attr.AH.TrafficClass, q.num)
	f := q.e.flowTo(to)
	if n := q.req.inFlight; n > 0 && f != q.flow {
		f.left.Add(-int64(n))
		q.flow.give(n)
		q.flow.wake()
	}
	q.flow = f
}

func gidOf(a netip.Addr) driver.GID { return driver.GID(a.As16()) }

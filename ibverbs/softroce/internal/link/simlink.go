package link

import (
	"container/heap"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
	"github.com/purerdma/purerdma/internal/cause"
)

// charge is what a datagram costs of the receive buffer beside its bytes.
const charge = 832

// flowPorts is where the source ports of flows begin; a Sim has as many as
// there are.
const flowPorts = 49152

// SimLink is one port of a Sim.
type SimLink struct {
	sim  *Sim
	addr netip.AddrPort

	arrived chan struct{} // capacity 1
	closed  chan struct{}

	// Guarded by sim.mu.
	up     bool
	gone   bool
	queue  runQueue
	queued int // bytes charged
	stats  Stats

	// For the one goroutine that receives.
	lent  []*run // what the last Recv gave out
	timer *time.Timer

	watch   sync.Mutex // orders the calls of watcher
	watcher func(up bool)
}

var (
	_ Link        = (*SimLink)(nil)
	_ PortWatcher = (*SimLink)(nil)
)

func newSimLink(s *Sim, addr netip.Addr) *SimLink {
	return &SimLink{
		sim: s, addr: netip.AddrPortFrom(addr, wire.Port), up: true,
		arrived: make(chan struct{}, 1), closed: make(chan struct{}),
	}
}

// LocalAddr is the address it was made with.
func (l *SimLink) LocalAddr() netip.AddrPort { return l.addr }

// Source has a port for every hash modulo 16384.
func (l *SimLink) Source(hash uint32) netip.AddrPort { return flowSource(l.addr.Addr(), hash) }

// flowSource is the source of links that can send from any port.
func flowSource(addr netip.Addr, hash uint32) netip.AddrPort {
	return netip.AddrPortFrom(addr, uint16(flowPorts+hash%(1<<16-flowPorts)))
}

// MTU is that of the Sim.
func (l *SimLink) MTU() int { return l.sim.cfg.MTU }

// RecvBuffer is that of the Sim.
func (l *SimLink) RecvBuffer() int { return l.sim.cfg.RecvBuffer }

// ShowsID is true: the ICRC can be checked in full.
func (l *SimLink) ShowsID() bool { return true }

// Send never blocks and fails only on a closed link.
func (l *SimLink) Send(batch []Datagrams) (int, error) {
	s := l.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.gone {
		return 0, net.ErrClosed
	}
	for i := range batch {
		d := &batch[i]
		src := l.addr
		if d.SrcPort != 0 {
			src = netip.AddrPortFrom(l.addr.Addr(), d.SrcPort)
		}
		l.stats.SentPackets += uint64(d.Len())
		l.stats.SentBytes += uint64(len(d.Data))
		s.send(l, src, d)
	}
	return len(batch), nil
}

// TryRecv takes what is due.
func (l *SimLink) TryRecv(batch []Datagrams) (int, error) {
	n, _, err := l.take(batch)
	return n, err
}

// Recv sleeps on a channel, and on a timer when something is on the way.
func (l *SimLink) Recv(ctx context.Context, batch []Datagrams) (int, error) {
	for {
		n, wait, err := l.take(batch)
		if n > 0 || err != nil || len(batch) == 0 {
			return n, err
		}
		if err := l.sleep(ctx, wait); err != nil {
			return 0, err
		}
	}
}

func (l *SimLink) sleep(ctx context.Context, wait time.Duration) error {
	var due <-chan time.Time
	if wait > 0 {
		if l.timer == nil {
			l.timer = time.NewTimer(wait)
		} else {
			l.timer.Reset(wait)
		}
		defer l.timer.Stop()
		due = l.timer.C
	}
	select {
	case <-l.arrived:
	case <-due:
	case <-l.closed:
		return net.ErrClosed
	case <-ctx.Done():
		return cause.Of(ctx)
	}
	return nil
}

// take moves what is due into batch, or says how long until something is, 0 if
// nothing is on the way.
func (l *SimLink) take(batch []Datagrams) (n int, wait time.Duration, err error) {
	s := l.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range l.lent {
		s.free(r)
		l.lent[i] = nil
	}
	l.lent = l.lent[:0]
	if l.gone {
		return 0, 0, net.ErrClosed
	}
	for n < len(batch) && len(l.queue) > 0 {
		r := l.queue[0]
		if r.due > 0 {
			if wait = r.due - time.Since(s.start); wait > 0 {
				break
			}
		}
		l.pop(r)
		l.lent = append(l.lent, r)
		batch[n] = Datagrams{Addr: r.from, TOS: r.tos, ID: r.id, Seg: r.seg, Data: r.data}
		l.stats.RecvPackets += uint64(batch[n].Len())
		l.stats.RecvBytes += uint64(len(r.data))
		n++
	}
	return n, wait, nil
}

// push, pop, hasten and empty are called with sim.mu held.

func (l *SimLink) push(r *run) {
	if l.queued+len(r.data)+charge > l.sim.cfg.RecvBuffer {
		l.stats.RecvDropped += uint64((&Datagrams{Seg: r.seg, Data: r.data}).Len())
		if r.flow != nil {
			r.flow.forget(r)
		}
		l.sim.free(r)
		return
	}
	l.queued += len(r.data) + charge
	heap.Push(&l.queue, r)
	l.signal()
}

func (l *SimLink) pop(r *run) {
	heap.Remove(&l.queue, r.index)
	l.queued -= len(r.data) + charge
	if r.flow != nil {
		r.flow.forget(r)
	}
}

// hasten makes a run that was held back due earlier, behind all that was sent.
func (l *SimLink) hasten(r *run, due time.Duration, seq uint64) {
	r.due, r.seq = min(due, r.due), seq
	heap.Fix(&l.queue, r.index)
	r.flow.forget(r)
	l.signal()
}

func (l *SimLink) empty() {
	for len(l.queue) > 0 {
		r := l.queue[0]
		l.pop(r)
		l.sim.free(r)
	}
}

func (l *SimLink) signal() {
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}

// Stats counts what this port sent and received.
func (l *SimLink) Stats() Stats {
	l.sim.mu.Lock()
	defer l.sim.mu.Unlock()
	return l.stats
}

// Up says how Sim.SetPort left the port.
func (l *SimLink) Up() bool {
	l.sim.mu.Lock()
	defer l.sim.mu.Unlock()
	return l.up
}

// OnPort has f called by Sim.SetPort.
func (l *SimLink) OnPort(f func(up bool)) {
	l.watch.Lock()
	defer l.watch.Unlock()
	l.watcher = f
}

func (l *SimLink) setPort(up bool) {
	l.watch.Lock()
	defer l.watch.Unlock()
	l.sim.mu.Lock()
	changed := l.up != up && !l.gone
	l.up = up
	if !up {
		l.empty()
	}
	l.sim.mu.Unlock()
	if changed && l.watcher != nil {
		l.watcher(up)
	}
}

// Close frees the address.
func (l *SimLink) Close() error {
	s := l.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.gone {
		l.gone = true
		l.empty()
		delete(s.ports, l.addr.Addr())
		close(l.closed)
	}
	return nil
}

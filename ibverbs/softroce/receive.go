package softroce

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// packet is one that came and whose ICRC is right.
type packet struct {
	wire.Packet
	op      wire.Opcode
	psn     wire.PSN
	payload []byte
	from    netip.Addr
	tos     uint8
	id      uint16 // IPv4 Identification, 0 where the link does not show it
}

// receiver is the state of who takes packets, which the goroutine for that and polls
// do in turn. Packets of one queue pair mostly come together, so its lock is kept
// from one to the next.
type receiver struct {
	e      *engine
	shared link.Shared // nil where only the goroutine takes packets

	mu        sync.Mutex // held by who takes packets; queue pairs' locks come after it
	batch     [recvBatch]link.Datagrams
	want      int // that the next poll takes: looking for several costs more
	qp        *qp // locked
	qpn       uint32
	dirty     []*qp   // those that have something to send when the batch is through
	owing     []*qp   // those whose ACK waits for a request to go with, or for the peer's next
	payAt     uint64  // the engine's polls when payAcks finds something to do
	flows     []*flow // of the batch, that somebody waits for
	acks      burst
	late      *time.Timer // pays owing
	lateSet   bool
	latePolls uint64 // the engine's polls when it was set
	unslept   int    // batches that polls took while the goroutine slept
	paths     [pathSlots]knownPath
	latest    *knownPath // the one that was used last
	self      netip.AddrPort
	exact     bool // the link shows the Identification
	p         packet
}

const (
	// recvBatch is how many Datagrams are taken at once, by a poll fewer.
	recvBatch, pollBatch = 16, 8
	// pathSlots is how many senders' paths are kept ready.
	pathSlots = 64
)

type knownPath struct {
	from netip.AddrPort
	path wire.Path
}

func newReceiver(e *engine) *receiver {
	r := &receiver{e: e, self: e.link.LocalAddr(), exact: e.link.ShowsID(), want: 1}
	r.latest = &r.paths[0]
	r.late = time.AfterFunc(time.Hour, r.payLate) // set by a poll; it must not fire before it is stopped here
	r.late.Stop()
	return r
}

// receive takes packets until the link is closed.
func (e *engine) receive() {
	r := e.rx
	for {
		n, err := e.link.Recv(context.Background(), r.batch[:])
		if err != nil {
			return
		}
		r.through(n, false)
	}
}

// through is a batch of n.
func (r *receiver) through(n int, defers bool) {
	for i := range r.batch[:n] {
		r.take(&r.batch[i])
	}
	r.settle(defers)
}

// take takes the packets of one super-packet.
func (r *receiver) take(d *link.Datagrams) {
	path := r.path(d.Addr)
	if r.takeLone(d, path) {
		return
	}
	for k, n := 0, d.Len(); k < n; k++ {
		if came := r.takeRun(d, path, k); came > 0 {
			k += came - 1
			continue
		}
		b := d.Segment(k)
		r.e.counters.received.Add(1)
		p, err := wire.Parse(b)
		if err != nil {
			r.e.counters.malformed.Add(1)
			continue
		}
		ok := false
		id := uint16(0)
		if r.exact {
			id = d.ID + uint16(k)
			ok = path.Verify(b, id)
		} else {
			id, ok = path.Check(b, uint16(k))
		}
		if !ok {
			r.e.counters.badICRC.Add(1)
			continue
		}
		q := &r.p
		q.Packet, q.op, q.psn, q.payload, q.from, q.tos, q.id = p, p.Opcode(), p.BTH().PSN(), p.Payload(), d.Addr.Addr(), d.TOS, id
		r.dispatch(q)
	}
}

func (r *receiver) path(from netip.AddrPort) wire.Path {
	if r.latest.from == from {
		return r.latest.path
	}
	a := from.Addr().As16()
	slot := &r.paths[(uint(a[15])^uint(a[14])<<3^uint(from.Port()))%pathSlots]
	if slot.from != from {
		*slot = knownPath{from, wire.NewPath(from, r.self)}
	}
	r.latest = slot
	return slot.path
}

// dispatch gives a packet to its queue pair.
func (r *receiver) dispatch(p *packet) {
	h := p.BTH()
	c := &r.e.counters
	if h.PKey()&0x7fff != defaultPKey&0x7fff {
		c.wrongKey.Add(1)
		return
	}
	q := r.reach(h.QPN())
	switch {
	case q == nil, q.closed:
		c.unknownQP.Add(1)
		return
	case p.op.Transport() != q.transport && !(p.op == wire.CNP && q.typ == driver.RC):
		c.malformed.Add(1)
		return
	case q.typ != driver.UD && q.to.Addr() != p.from:
		c.wrongAddress.Add(1)
		return
	}
	if q.e.ecn && q.typ == driver.RC && p.tos&ecnMask == ecnMarked {
		q.marked(p)
	}
	switch {
	case p.op == wire.CNP:
		q.notified()
	case q.typ == driver.UD:
		q.datagram(p)
	case q.typ == driver.UC:
		q.requestUC(p)
	case p.op.IsRequest():
		q.request(p)
	default:
		q.answer(p)
	}
}

// reach locks the queue pair with a number, nil if there is none.
func (r *receiver) reach(qpn uint32) *qp {
	if r.qp != nil && r.qpn == qpn {
		return r.qp
	}
	q := r.e.qps.get(qpn)
	if q == nil {
		r.unlock()
		return nil
	}
	r.lock(q)
	if !q.dirty && q.typ == driver.RC { // the others owe nothing
		q.dirty = true
		r.dirty = append(r.dirty, q)
	}
	return q
}

// lock locks q instead of the queue pair at hand.
func (r *receiver) lock(q *qp) {
	r.unlock()
	q.mu.Lock()
	r.qp, r.qpn = q, q.num
}

func (r *receiver) unlock() {
	if r.qp != nil {
		r.qp.mu.Unlock()
		r.qp = nil
	}
}

// settle has all queue pairs of the batch send what they owe, and then those that
// waited for what the batch has given back.
func (r *receiver) settle(defers bool) {
	for i, q := range r.dirty {
		if r.qp != q {
			r.lock(q)
		}
		q.dirty = false
		if !q.closed {
			q.notify()
			if f := q.flow; f != nil && f.waiters.Load() > 0 && !slices.Contains(r.flows, f) {
				r.flows = append(r.flows, f)
			}
			q.settle(&r.acks, defers)
			if defers && q.resp.replies.owesAck() {
				r.payAt = 0
				if !q.owing {
					q.owing = true
					r.owing = append(r.owing, q)
				}
			}
		}
		r.dirty[i] = nil
	}
	r.unlock()
	r.dirty = r.dirty[:0]
	r.acks.flush(r.e)
	for i, f := range r.flows {
		for q := f.next(); q != nil; q = f.next() {
			q.takeTurn()
		}
		r.flows[i] = nil
	}
	r.flows = r.flows[:0]
}

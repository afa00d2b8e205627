package softroce

import (
	"context"
	"net/netip"

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

// receiver is the state of the goroutine that takes packets. Packets of one queue
// pair mostly come together, so its lock is kept from one to the next.
type receiver struct {
	e     *engine
	qp    *qp // locked
	qpn   uint32
	dirty []*qp // those that have something to send when the batch is through
	paths [pathSlots]knownPath
	self  netip.AddrPort
	exact bool // the link shows the Identification
	p     packet
}

// pathSlots is how many senders' paths are kept ready.
const pathSlots = 64

type knownPath struct {
	from netip.AddrPort
	path wire.Path
}

// receive takes packets until the link is closed.
func (e *engine) receive() {
	r := &receiver{e: e, self: e.link.LocalAddr(), exact: e.link.ShowsID()}
	batch := make([]link.Datagrams, 16)
	for {
		n, err := e.link.Recv(context.Background(), batch)
		if err != nil {
			return
		}
		for i := range batch[:n] {
			r.take(&batch[i])
		}
		r.unlock()
		r.settle()
	}
}

// take takes the packets of one super-packet.
func (r *receiver) take(d *link.Datagrams) {
	path := r.path(d.Addr)
	for k := range d.Len() {
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
		r.p = packet{Packet: p, op: p.Opcode(), psn: p.BTH().PSN(), payload: p.Payload(), from: d.Addr.Addr(), tos: d.TOS, id: id}
		r.dispatch(&r.p)
	}
}

func (r *receiver) path(from netip.AddrPort) wire.Path {
	a := from.Addr().As16()
	slot := &r.paths[(uint(a[15])^uint(a[14])<<3^uint(from.Port()))%pathSlots]
	if slot.from != from {
		*slot = knownPath{from, wire.NewPath(from, r.self)}
	}
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
	if qpn := h.QPN(); r.qp == nil || r.qpn != qpn {
		r.unlock()
		q := r.e.qps.get(qpn)
		if q == nil {
			c.unknownQP.Add(1)
			return
		}
		q.mu.Lock()
		r.qp, r.qpn = q, qpn
		if !q.dirty && q.typ == driver.RC { // the others owe nothing
			q.dirty = true
			r.dirty = append(r.dirty, q)
		}
	}
	q := r.qp
	switch {
	case q.closed:
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

func (r *receiver) unlock() {
	if r.qp != nil {
		r.qp.mu.Unlock()
		r.qp = nil
	}
}

// settle has all queue pairs of the batch send what they owe.
func (r *receiver) settle() {
	for i, q := range r.dirty {
		q.mu.Lock()
		q.dirty = false
		if !q.closed {
			q.notify()
			q.settle()
		}
		q.mu.Unlock()
		r.dirty[i] = nil
	}
	r.dirty = r.dirty[:0]
}

package softroce

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// A short write that comes by itself, a flag or a row of a FIFO, is what a peer waits
// for, and everything about it has left the processor's nearest caches since the one
// before. It has a way of its own, which touches less: it changes what the general way
// changes, and leaves to that one all that is not quite usual.

const (
	// loneMost is how many bytes such a write carries at most.
	loneMost = 64
	// loneHeaders is what else is in its packet.
	loneHeaders = wire.BTHSize + wire.RETHSize + wire.ICRCSize
)

// addLone adds the one request that is waiting, if it is such a write, and the window has
// room.
func (q *qp) addLone(b *burst) bool {
	r := &q.req
	if q.sq.next+1 != q.sq.posted || r.nextPacket > 0 || r.probing || r.limit > 0 || q.e.ecn || q.attr.State != driver.StateRTS {
		return false
	}
	w := q.sq.at(q.sq.next)
	if w.op != driver.OpWrite || !w.inline || w.length == 0 || w.length > loneMost || w.flags&(driver.Fence|driver.Solicited) != 0 ||
		w.failed != driver.Success || w.psn != r.sent {
		return false
	}
	cost := q.charge(int(w.length))
	if q.flow.take(q, cost, 1) == 0 {
		return false
	}
	p := b.add(q, wire.RCWriteOnly, wire.AckReq, w.psn, int(w.length))
	p.RETH().Put(w.remote.Addr, w.remote.RKey, w.length)
	copy(p.Payload(), w.data)
	r.sinceAckReq = 0
	r.inFlight += cost
	r.sent = w.psn.Add(1)
	q.sq.next++
	return true
}

// takeLone takes a packet that is such a write, and the one that its queue pair expects.
// If it reports false, nothing has changed.
func (r *receiver) takeLone(d *link.Datagrams, path wire.Path) bool {
	b := d.Data
	n := len(b) - loneHeaders
	if n <= 0 || n > loneMost || n%4 != 0 || wire.Opcode(b[0]) != wire.RCWriteOnly || d.Len() > 1 {
		return false
	}
	h, reth := wire.BTH(b[:wire.BTHSize]), wire.RETH(b[wire.BTHSize:][:wire.RETHSize])
	if h.Pad() != 0 || h.Version() != 0 || h.PKey()&0x7fff != defaultPKey&0x7fff || reth.Length() != uint32(n) {
		return false
	}
	if r.exact {
		if !path.Verify(b, d.ID) {
			return false
		}
	} else if _, ok := path.Check(b, 0); !ok {
		return false
	}
	q := r.reach(h.QPN())
	if q == nil || q.closed || q.typ != driver.RC || q.e.ecn || q.to.Addr() != d.Addr.Addr() || !q.receives() || n > q.mtu {
		return false
	}
	s := &q.resp
	if h.PSN() != s.psn || s.message != 0 || s.refusal != accepted || !s.established || q.attr.Access&driver.RemoteWrite == 0 ||
		reth.RKey()&windowBit != 0 {
		return false
	}
	m, mem := q.e.memory(q.pd, reth.RKey(), reth.VA(), uint64(n), driver.RemoteWrite)
	if m == nil {
		return false
	}
	ok := putBytes(mem, b[wire.BTHSize+wire.RETHSize:][:n])
	m.end()
	if !ok {
		return false
	}
	r.e.counters.received.Add(1)
	s.silent = false
	s.replies.forgetNAK()
	s.replies.acknowledge(h.AckReq())
	s.psn = s.psn.Add(1)
	s.msn++
	return true
}

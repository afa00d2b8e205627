package softroce

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// sendPacket adds to b packet from of request w, or the wire request for the
// packets from to to of a read. It reports false if the memory is not there.
func (q *qp) sendPacket(b *burst, w *request, from, to uint32) bool {
	psn := w.psn.Add(from)
	off := uint64(from) * uint64(q.mtu)
	switch w.op {
	case driver.OpRead:
		n := min(uint64(to)*uint64(q.mtu), uint64(w.length)) - off
		b.add(q, wire.RCReadRequest, wire.AckReq, psn, 0).RETH().Put(w.remote.Addr+off, w.remote.RKey, uint32(n))
		return true
	case driver.OpCmpSwap:
		b.add(q, wire.RCCompareSwap, wire.AckReq, psn, 0).AtomicETH().Put(w.remote.Addr, w.remote.RKey, w.swap, w.compareAdd)
		return true
	case driver.OpFetchAdd:
		b.add(q, wire.RCFetchAdd, wire.AckReq, psn, 0).AtomicETH().Put(w.remote.Addr, w.remote.RKey, w.compareAdd, 0)
		return true
	}
	last := to == w.packets
	op := opcodeOf(w.op, from == 0, last)
	n := min(uint64(q.mtu), uint64(w.length)-off)
	p := b.add(q, op, q.flagsOf(w, last), psn, int(n))
	if op.HasRETH() {
		p.RETH().Put(w.remote.Addr, w.remote.RKey, w.length)
	}
	if op.HasImm() {
		p.ImmDt().Put(w.imm)
	}
	if op.HasInv() {
		p.IETH().Put(w.imm)
	}
	return q.fill(b, p, w, off)
}

// fill copies the payload of p, the last packet of b, from off in the data of w. It
// takes the packet out again and reports false if the memory is not there.
func (q *qp) fill(b *burst, p wire.Packet, w *request, off uint64) bool {
	switch {
	case len(p.Payload()) == 0:
	case w.inline:
		copy(p.Payload(), w.data[off:])
	case !q.gather(p.Payload(), w.sgl, uint32(off)):
		b.drop()
		return false
	}
	return true
}

// flagsOf asks for an ACK at the end of a message, and within a long one now and
// then. Only the last packet can be solicited.
func (q *qp) flagsOf(w *request, last bool) (f wire.Flags) {
	r := &q.req
	if r.sinceAckReq++; last || r.probing || r.sinceAckReq >= ackEvery {
		f = wire.AckReq
		r.sinceAckReq = 0
	}
	if last && w.flags&driver.Solicited != 0 {
		f |= wire.Solicited
	}
	return f
}

func opcodeOf(op driver.Opcode, first, last bool) wire.Opcode {
	if op == driver.OpSendWithInv && last {
		if first {
			return wire.RCSendOnlyInv
		}
		return wire.RCSendLastInv
	}
	base := wire.RCSendFirst
	if op == driver.OpWrite || op == driver.OpWriteWithImm {
		base = wire.RCWriteFirst
	}
	imm := op == driver.OpSendWithImm || op == driver.OpWriteWithImm
	switch {
	case first && last && imm:
		return base + (wire.RCSendOnlyImm - wire.RCSendFirst)
	case first && last:
		return base + (wire.RCSendOnly - wire.RCSendFirst)
	case first:
		return base
	case last && imm:
		return base + (wire.RCSendLastImm - wire.RCSendFirst)
	case last:
		return base + (wire.RCSendLast - wire.RCSendFirst)
	}
	return base + (wire.RCSendMiddle - wire.RCSendFirst)
}

package softroce

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// The sending side of UC and UD. Nobody answers: a request is complete when the
// link has its packets, and what the network or the peer throws away is lost.

// unreliableBurst is how many packets a queue pair sends before others get a turn.
// The pump goes on, so that a post of much neither keeps the caller nor the
// goroutine that takes packets.
const unreliableBurst = 64

// offers says whether a type of queue pair that is not RC has an operation.
func offers(t driver.QPType, op driver.Opcode) bool {
	switch op {
	case driver.OpSend, driver.OpSendWithImm:
		return true
	case driver.OpWrite, driver.OpWriteWithImm, driver.OpBindMW, driver.OpLocalInv:
		return t == driver.UC
	}
	return false
}

// transmitUnreliable sends what the state allows, and completes it.
func (q *qp) transmitUnreliable() {
	if s := q.attr.State; s != driver.StateRTS && s != driver.StateSQD {
		return
	}
	var b burst
	failed := driver.Success
	budget := unreliableBurst
	for q.sq.next < q.sq.posted && failed == driver.Success {
		w := q.sq.at(q.sq.next)
		if q.req.nextPacket == 0 && q.attr.State == driver.StateSQD {
			break
		}
		if budget == 0 {
			q.e.pump.add(q)
			break
		}
		if failed = q.sendSome(&b, w, &budget); failed == driver.Success && q.req.nextPacket == w.packets {
			q.sq.next++
			q.req.nextPacket = 0
		}
	}
	b.flush(q.e)
	q.completeSent()
	if failed != driver.Success && q.attr.State != driver.StateErr {
		q.failSendQueue(failed)
	}
}

// sendSome adds packets of w to b, as many as are left of the budget, and moves
// the cursor.
func (q *qp) sendSome(b *burst, w *request, budget *int) driver.Status {
	r := &q.req
	if isLocal(w.op) {
		q.doLocal(w)
		return w.failed
	}
	if r.nextPacket == 0 {
		if s := q.checkUnreliable(w); s != driver.Success {
			return s
		}
	}
	for ; r.nextPacket < w.packets && *budget > 0; *budget-- {
		if !q.unreliablePacket(b, w, r.nextPacket) {
			return driver.LocProtErr
		}
		r.nextPacket++
		r.sent = r.sent.Add(1)
	}
	return driver.Success
}

// checkUnreliable finds what is wrong with a request before anything of it is sent.
func (q *qp) checkUnreliable(w *request) driver.Status {
	if q.typ == driver.UD {
		switch {
		case w.length > uint32(q.mtu):
			return driver.LocLenErr
		case w.ah.closed.Load():
			return driver.LocQPOpErr
		}
	}
	return q.checkLocal(w)
}

// unreliablePacket adds packet n of w to b. It reports false if the memory is not
// there.
func (q *qp) unreliablePacket(b *burst, w *request, n uint32) bool {
	off := uint64(n) * uint64(q.mtu)
	size := int(min(uint64(q.mtu), uint64(w.length)-off))
	psn := w.psn.Add(n)
	last := n+1 == w.packets
	var f wire.Flags
	if last && w.flags&driver.Solicited != 0 {
		f = wire.Solicited
	}
	var p wire.Packet
	if q.typ == driver.UD {
		op := wire.UDSendOnly
		if w.op == driver.OpSendWithImm {
			op = wire.UDSendOnlyImm
		}
		p = b.addTo(q, &w.ah.route, w.qpn, op, f, psn, size)
		p.DETH().Put(w.qkey, q.num)
	} else {
		p = b.add(q, opcodeOf(w.op, n == 0, last)|wire.UCSendFirst, f, psn, size)
		if p.Opcode().HasRETH() {
			p.RETH().Put(w.remote.Addr, w.remote.RKey, w.length)
		}
	}
	if p.Opcode().HasImm() {
		p.ImmDt().Put(w.imm)
	}
	return q.fill(b, p, w, off)
}

// completeSent completes the requests that were sent in full.
func (q *qp) completeSent() {
	for q.sq.done < q.sq.next {
		q.completeSend(driver.Success, 0)
		if q.attr.State == driver.StateErr {
			return
		}
	}
	if q.req.nextPacket == 0 {
		q.req.una = q.req.sent
		q.drained()
	}
}

// failSendQueue ends the oldest request with s and flushes those behind it. The
// queue pair goes on receiving, and sends again when it is put back into RTS
// (IBTA 10.3.1, SQE).
func (q *qp) failSendQueue(s driver.Status) {
	q.setState(driver.StateSQE)
	q.completeSend(s, 0)
	q.flushSendQueue()
}

// flushSendQueue flushes what was posted. Packet numbers of what was never sent
// are used again, for a peer takes a gap for a loss.
func (q *qp) flushSendQueue() {
	for q.sq.done < q.sq.posted {
		q.completeSend(driver.WRFlushErr, 0)
	}
	q.sq.next, q.req.nextPacket = q.sq.done, 0
	q.req.psn, q.req.una = q.req.sent, q.req.sent
}

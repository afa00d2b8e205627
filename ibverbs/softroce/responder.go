package softroce

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// responder is the receiving side of a connection.
type responder struct {
	psn wire.PSN // of the next packet
	msn uint32   // messages completed; 24 bits of it go out

	// silent is set after a NAK: what follows the packet that it asks for is dropped
	// without another.
	silent      bool
	dropping    bool // UC: the rest of the message that is coming is thrown away
	established bool
	refusal     verdict // of the packet that is expected; its NAK waits for the answers that are owed

	// The message that is coming.
	message wire.Operation // 0 between messages
	got     uint32         // bytes of it that came
	write   writeTarget

	// The receive that was taken for it.
	hasRecv   bool
	recv      receive
	recvTotal uint64
	recvUpTo  uint64

	replies replies
}

// writeTarget is the rest of the memory that a write goes to.
type writeTarget struct {
	va   uint64
	left uint32
	key  uint32
}

func (q *qp) startResponder() {
	r := &q.resp
	recv := r.recv
	sge := q.cap.RecvSGE
	if q.srq != nil {
		sge = q.srq.ring.sge
	}
	if cap(recv.sgl) < sge {
		recv.sgl = make([]driver.SGE, 0, sge)
	}
	replies := r.replies
	*r = responder{psn: r.psn, recv: recv}
	r.replies.start(replies, int(q.attr.MaxDestRdAtomic))
}

func (q *qp) stopResponder() {
	r := &q.resp
	r.hasRecv, r.message = false, 0
	r.replies.stop()
}

// flushResponder ends the receive that a message was coming into.
func (q *qp) flushResponder() {
	if q.resp.hasRecv {
		q.completeRecv(driver.WC{Status: driver.WRFlushErr}, false)
	}
	q.stopResponder()
}

// takeReceive takes the oldest receive, if there is one.
func (q *qp) takeReceive() bool {
	r := &q.resp
	var upTo uint64
	var ok bool
	if q.srq != nil {
		ok = q.srq.take(&r.recv)
	} else {
		upTo, ok = q.rq.take(&r.recv)
	}
	if ok {
		r.hasRecv, r.recvUpTo, r.recvTotal = true, upTo, min(total(r.recv.sgl), maxMessage)
	}
	return ok
}

// request is a packet for the responder.
func (q *qp) request(p *packet) {
	r := &q.resp
	if !q.receives() {
		q.e.counters.wrongState.Add(1)
		return
	}
	q.comesAlive()
	switch d := p.psn.Sub(r.psn); {
	case d < 0:
		q.e.counters.duplicates.Add(1)
		q.duplicate(p)
	case d > 0:
		q.e.counters.gaps.Add(1)
		if !r.silent && r.refusal == accepted {
			r.silent = true
			r.replies.gap()
		}
	case r.refusal == accepted:
		q.execute(p)
	}
}

// verdict is how the execution of a packet ended.
type verdict uint8

const (
	accepted       verdict = iota
	receiverAbsent         // RNR NAK
	invalidRequest
	accessDenied
	operationFailed
	notInvalidated // the key of a SEND_WITH_INV
)

// execute takes the packet that is expected.
func (q *qp) execute(p *packet) {
	r := &q.resp
	r.silent = false
	r.replies.forgetNAK()
	packets := uint32(1)
	if p.op == wire.RCReadRequest {
		packets = packetsOf(p.RETH().Length(), q.mtu)
	}
	switch v := q.perform(p); v {
	case accepted:
		if q.attr.State == driver.StateErr {
			return
		}
		if isSendOrWrite(p.op) {
			r.replies.acknowledge(p.BTH().AckReq())
		}
		r.psn = r.psn.Add(packets)
	case receiverAbsent:
		r.silent = true
		q.e.counters.rnrSent.Add(1)
		r.replies.notReady(q.attr.MinRNRTimer)
	default:
		q.refuse(v)
	}
}

// refuse ends the connection with a NAK for the packet that was expected, when the
// answers to what came before it are sent; those to long reads are left to the pump,
// lest others wait for them. A message
// whose key cannot be invalidated is acknowledged: it arrived, and its receive says
// what went wrong (class J of the responder's faults, IBTA volume 1, 9.9.3; the
// kernel's Soft-RoCE does so too). The peer learns it from what it sends next, which
// nobody answers.
func (q *qp) refuse(v verdict) {
	if q.resp.replies.busy() {
		q.resp.refusal = v
		return
	}
	q.resp.refusal = accepted
	q.e.counters.refusal(v)
	s := wire.SynOperational
	switch v {
	case invalidRequest:
		s = wire.SynInvalid
		q.raise(driver.EventQPReqErr)
	case accessDenied:
		s = wire.SynAccess
		q.raise(driver.EventQPAccessErr)
	case notInvalidated:
		s = wire.SynAck
		q.raise(driver.EventQPAccessErr)
	}
	q.sendAck(s, q.resp.psn)
	q.fail()
}

// perform does what the packet asks for.
func (q *qp) perform(p *packet) verdict {
	if v := q.checkSequence(p); v != accepted {
		return v
	}
	switch p.op.Operation() {
	case wire.Send:
		return q.performSend(p)
	case wire.Write:
		return q.performWrite(p)
	case wire.ReadRequest:
		return q.performRead(p)
	}
	return q.performAtomic(p)
}

func isSendOrWrite(op wire.Opcode) bool {
	return op.Operation() == wire.Send || op.Operation() == wire.Write
}

// checkSequence checks the place of the packet in its message, its length and the
// rights that the queue pair grants.
func (q *qp) checkSequence(p *packet) verdict {
	r := &q.resp
	n := len(p.payload)
	begins, ends := p.op.Starts(), p.op.Ends()
	switch {
	case begins != (r.message == 0), !begins && r.message != p.op.Operation(),
		!ends && n != q.mtu, n > q.mtu,
		ends && !begins && n == 0,
		!q.grants(p.op):
		return invalidRequest
	}
	return accepted
}

func (q *qp) grants(op wire.Opcode) bool {
	switch op.Operation() {
	case wire.ReadRequest:
		return q.attr.Access&driver.RemoteRead != 0 && q.attr.MaxDestRdAtomic > 0
	case wire.CompareSwap, wire.FetchAdd:
		return q.attr.Access&driver.RemoteAtomic != 0 && q.attr.MaxDestRdAtomic > 0
	case wire.Write:
		return q.attr.Access&driver.RemoteWrite != 0
	}
	return true
}

func (q *qp) performSend(p *packet) verdict {
	r := &q.resp
	if p.op.Starts() {
		if !q.takeReceive() {
			return receiverAbsent
		}
		r.message, r.got = wire.Send, 0
	}
	switch {
	case uint64(r.got)+uint64(len(p.payload)) > r.recvTotal:
		q.completeRecv(driver.WC{Status: driver.LocLenErr}, false)
		return invalidRequest
	case !q.scatterRecv(r.got, p.payload):
		q.completeRecv(driver.WC{Status: driver.LocProtErr}, false)
		return operationFailed
	}
	r.got += uint32(len(p.payload))
	if !p.op.Ends() {
		return accepted
	}
	if p.op.HasInv() && !q.invalidate(p.IETH().RKey()) {
		q.completeRecv(driver.WC{Status: driver.RemInvReqErr}, false)
		return notInvalidated
	}
	q.received(p, driver.WCRecv)
	return accepted
}

func (q *qp) performWrite(p *packet) verdict {
	r := &q.resp
	w := &r.write
	n := uint32(len(p.payload))
	if p.op.Starts() {
		h := p.RETH()
		// What is all in this packet and takes no receive is looked up once, where it is stored.
		atOnce := p.op.Ends() && n > 0 && !p.op.HasImm()
		*w = writeTarget{va: h.VA(), left: h.Length(), key: h.RKey()}
		r.got = 0
		switch {
		case w.left > maxMessage, !p.op.Ends() && w.left <= uint32(q.mtu):
			return invalidRequest
		case w.left > 0 && !(atOnce && n == w.left) && !q.grantsMemory(w.key, w.va, uint64(w.left), driver.RemoteWrite):
			return accessDenied
		}
	}
	switch {
	case n > w.left, p.op.Ends() != (n == w.left):
		return invalidRequest
	case p.op.HasImm() && !q.holdReceive():
		return receiverAbsent
	}
	if n > 0 {
		m, mem := q.remoteMemory(w.key, w.va, uint64(n), driver.RemoteWrite)
		if m == nil {
			return accessDenied
		}
		ok := putBytes(mem, p.payload)
		m.end()
		if !ok {
			return operationFailed
		}
	}
	r.message = wire.Write
	r.got += n
	w.va, w.left = w.va+uint64(n), w.left-n
	if p.op.Ends() {
		q.received(p, driver.WCRecvWriteWithImm)
	}
	return accepted
}

// received ends a message, and completes its receive if it has one: what is at hand
// for a write without immediate data is of a message that was dropped before (UC).
func (q *qp) received(p *packet, op driver.WCOpcode) {
	r := &q.resp
	r.message = 0
	r.msn++
	if !r.hasRecv || p.op.Operation() == wire.Write && !p.op.HasImm() {
		return
	}
	wc := driver.WC{Op: op, ByteLen: r.got}
	if p.op.HasImm() {
		wc.Imm, wc.Flags = p.ImmDt().Imm(), driver.WCWithImm
	}
	if p.op.HasInv() {
		wc.Imm, wc.Flags = p.IETH().RKey(), driver.WCWithInv
	}
	q.completeRecv(wc, p.BTH().Solicited())
}

package softroce

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// answer is a packet for the requester: an ACK, a NAK, data of a read, the result
// of an atomic operation. What was never asked is ignored: a peer cannot complete
// what was not sent.
func (q *qp) answer(p *packet) {
	r := &q.req
	s := q.attr.State
	if s != driver.StateRTS && s != driver.StateSQD || p.psn.Sub(r.una) < 0 || p.psn.Sub(r.sent) >= 0 {
		q.e.counters.staleAnswers.Add(1)
		return
	}
	switch p.op.Operation() {
	case wire.Ack:
		q.acknowledge(p)
	case wire.AtomicAck:
		q.atomicAnswer(p)
	default:
		q.readAnswer(p)
	}
}

func (q *qp) acknowledge(p *packet) {
	switch s := p.AETH().Syndrome(); {
	case s.IsAck():
		if !q.ackedUpTo(p.psn.Add(1)) {
			q.missing()
		}
	case s.IsRNR():
		q.receiverNotReady(p.psn, s.RNRCode())
	case s.IsNak():
		q.refused(p.psn, s)
	default:
		q.e.counters.malformed.Add(1)
	}
}

// ackedUpTo takes all packets before end as acknowledged. It stops, and reports
// false, at a read or atomic operation, which only its own answer completes.
func (q *qp) ackedUpTo(end wire.PSN) bool {
	r := &q.req
	moved, all := false, true
	for q.sq.done < q.sq.posted {
		n := end.Sub(r.una)
		if n <= 0 {
			break
		}
		w := q.sq.at(q.sq.done)
		if wantsResponse(w.op) {
			all = false
			break
		}
		moved = true
		if !q.advance(w, min(w.packets, r.unaPacket+uint32(n))) {
			return true
		}
	}
	if moved {
		q.progress()
	}
	return all
}

// advance moves una to packet to of the oldest request, which completes when it is
// through. It reports false if that put the queue pair into the error state.
func (q *qp) advance(w *request, to uint32) bool {
	r := &q.req
	bytes := q.cost(w, r.unaPacket, to)
	q.unfly(bytes)
	q.widen(bytes)
	r.una = r.una.Add(to - r.unaPacket)
	q.delivered(bytes)
	r.unaPacket = to
	if to == w.packets {
		var n uint32
		if wantsResponse(w.op) {
			n = w.length
		}
		r.unaPacket = 0
		q.completeSend(driver.Success, n)
		q.completeLocal()
		if q.sq.done == q.sq.posted {
			q.resp.replies.noneLeft()
		}
		if q.attr.State == driver.StateErr {
			return false
		}
	}
	// An answer to what was sent before a retransmission began may lie beyond the
	// cursor.
	if q.sq.next < q.sq.done || q.sq.next == q.sq.done && r.nextPacket < r.unaPacket {
		q.sq.next, r.nextPacket = q.sq.done, r.unaPacket
	}
	return true
}

// missing is told by an answer to something later that the oldest packet, or its
// answer, was lost.
func (q *qp) missing() {
	if q.req.notReady || q.req.resending && q.req.round == q.req.una {
		return
	}
	q.retry()
}

// receiverNotReady waits as long as the peer wants, and goes on from psn.
func (q *qp) receiverNotReady(psn wire.PSN, code uint8) {
	r := &q.req
	if r.notReady {
		return
	}
	if !q.ackedUpTo(psn) {
		q.missing()
		return
	}
	if q.attr.State == driver.StateErr {
		return
	}
	q.e.counters.rnrNAKs.Add(1)
	if q.attr.RNRRetry != 7 {
		if r.rnrRetries == 0 {
			q.failSend(driver.RNRRetryExcErr)
			return
		}
		r.rnrRetries--
	}
	q.goBack()
	r.notReady, r.resending = true, false
	r.clock.set(q, wire.RNRTime(code))
}

// refused is a NAK. All before it was acknowledged.
func (q *qp) refused(psn wire.PSN, s wire.Syndrome) {
	if s == wire.SynSequence {
		q.e.counters.sequenceNAKs.Add(1)
		if q.req.notReady {
			return
		}
		q.ackedUpTo(psn)
		if q.attr.State != driver.StateErr {
			q.missing()
		}
		return
	}
	status := driver.RemOpErr
	switch s {
	case wire.SynInvalid:
		status = driver.RemInvReqErr
	case wire.SynAccess:
		status = driver.RemAccessErr
	}
	q.ackedUpTo(psn)
	if q.attr.State != driver.StateErr {
		q.failSend(status)
	}
}

// oldest is the oldest request if p answers its next packet. What came before it
// is acknowledged; a gap means that answers were lost.
func (q *qp) oldest(p *packet) *request {
	if !q.ackedUpTo(p.psn) {
		q.missing()
		return nil
	}
	if q.attr.State == driver.StateErr {
		return nil
	}
	return q.sq.at(q.sq.done)
}

func (q *qp) readAnswer(p *packet) {
	w := q.oldest(p)
	if w == nil {
		return
	}
	at := q.req.unaPacket
	off := at * uint32(q.mtu)
	want := min(uint32(q.mtu), w.length-off)
	last := at+1 == q.chunkEnd(w, at)
	if w.op != driver.OpRead || uint32(len(p.payload)) != want || p.op.Ends() != last {
		q.failSend(driver.BadRespErr)
		return
	}
	if !q.scatter(w.sgl, off, p.payload) {
		q.failSend(driver.LocProtErr)
		return
	}
	if last && q.req.reads > 0 {
		q.req.reads--
	}
	if q.advance(w, at+1) {
		q.progress()
	}
}

func (q *qp) atomicAnswer(p *packet) {
	w := q.oldest(p)
	if w == nil {
		return
	}
	if !isAtomic(w.op) {
		q.failSend(driver.BadRespErr)
		return
	}
	if !q.scatterWord(w.sgl, p.AtomicAckETH().Original()) {
		q.failSend(driver.LocProtErr)
		return
	}
	if q.req.reads > 0 {
		q.req.reads--
	}
	if q.advance(w, 1) {
		q.progress()
	}
}

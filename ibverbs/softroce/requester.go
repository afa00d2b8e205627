package softroce

import (
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// requester is the sending side of a connection: what is under way and what
// happens when it gets lost. Packets from una up to the cursor, which is packet
// nextPacket of request sq.next, are in flight.
type requester struct {
	psn        wire.PSN // of the next request to be posted
	una        wire.PSN // oldest packet that is not acknowledged
	sent       wire.PSN // one past the last that was ever sent
	unaPacket  uint32   // una within request sq.done
	nextPacket uint32

	inFlight    int // bytes charged for what is in flight
	limit       int // of it since a loss, 0 for none
	sinceLoss   int // bytes acknowledged
	reads       int // wire requests of reads and atomics in flight
	sinceAckReq int // packets since one asked for an ACK

	// probing sends one packet at a time, after silence: the window opens again when
	// an answer comes, so that a peer that is gone holds up nobody else.
	probing    bool
	resending  bool     // a round of retransmission is on, and
	round      wire.PSN // this is where it began
	notReady   bool     // waiting as the peer's RNR NAK said
	retries    uint8    // left
	rnrRetries uint8
	starved    bool // waits for the flow to the peer
	turn       bool // and it is its turn

	clock      retryClock
	congestion congestion
}

const (
	// readChunk is the bytes of a read that one wire request asks for: as much as a
	// peer may send without a pause.
	readChunk = 32 << 10
	// ackEvery is how many packets of a message go between two that ask for an ACK.
	ackEvery = 32
)

func (q *qp) startRequester() {
	r := &q.req
	psn := r.psn
	timer := r.clock.timer
	*r = requester{psn: psn, una: psn, sent: psn}
	r.clock.timer = timer
	q.refill()
}

// refill gives the oldest packet all its retries.
func (q *qp) refill() {
	q.req.retries, q.req.rnrRetries = q.attr.RetryCnt, q.attr.RNRRetry
	if q.e.retryLimit > 0 {
		q.req.retries = q.e.retryLimit
	}
}

// stopRequester gives back what it holds.
func (q *qp) stopRequester() {
	q.unfly(q.req.inFlight)
	q.req.reads, q.req.notReady, q.req.starved = 0, false, false
	q.wakeFlow()
	q.req.nextPacket, q.req.unaPacket = 0, 0
	q.req.clock.stop()
}

// unfly takes bytes out of what is in flight.
func (q *qp) unfly(bytes int) {
	bytes = min(bytes, q.req.inFlight)
	if bytes > 0 {
		q.req.inFlight -= bytes
		q.flow.give(bytes)
	}
}

// wakeFlow has others go on with what was given back.
func (q *qp) wakeFlow() {
	if q.flow != nil {
		q.flow.wake()
	}
}

// cost is the bytes charged for packets from to of a request, or of the answers
// to a read.
func (q *qp) cost(w *request, from, to uint32) int {
	if from >= to {
		return 0
	}
	n := int(to-from) * q.charge(q.mtu)
	if to == w.packets {
		last := int(w.length) - int(w.packets-1)*q.mtu
		n += q.charge(last) - q.charge(q.mtu)
	}
	return n
}

// transmit sends what the window, the peer's limits and the state allow.
func (q *qp) transmit() {
	if q.typ != driver.RC {
		q.transmitUnreliable()
		return
	}
	if s := q.attr.State; s != driver.StateRTS && s != driver.StateSQD || q.req.notReady {
		return
	}
	var b burst
	for lone := q.addLone(&b); !lone && q.sq.next < q.sq.posted; {
		w := q.sq.at(q.sq.next)
		if !q.mayStart(w) || !q.send(&b, w) {
			break
		}
		q.sq.next++
		q.req.nextPacket = 0
	}
	// What stopped in the middle of a message needs an answer to go on.
	if q.req.nextPacket > 0 {
		b.askForAck()
		q.req.sinceAckReq = 0
	}
	if b.sendBuffer != nil && q.resp.replies.owesAck() {
		alone := b.n == len(b.last.Bytes())
		if alone {
			b.endRun() // one packet arrives sooner, and is read sooner, than a run of two
		}
		if !alone || !q.holdsAck() {
			q.addAck(&b) // it is the shortest packet that there is, so that it fits at the end of a run
		}
	}
	b.flush(q.e)
	q.completeLocal()
	q.watch()
	if q.sq.done < q.sq.posted && q.sq.done == q.sq.next {
		if w := q.sq.at(q.sq.done); w.failed != driver.Success {
			q.failSend(w.failed)
		}
	}
}

// mayStart is asked before each request, also when it is sent again.
func (q *qp) mayStart(w *request) bool {
	if w.executed {
		return true
	}
	if q.req.nextPacket > 0 {
		return w.failed == driver.Success
	}
	if w.failed == driver.Success && w.psn.Sub(q.req.sent) >= 0 {
		w.failed = q.checkLocal(w)
	}
	switch {
	case w.failed != driver.Success:
		return false
	case q.attr.State == driver.StateSQD && w.psn.Sub(q.req.sent) >= 0:
		return false
	case w.flags&driver.Fence != 0 && q.req.reads > 0:
		return false
	}
	return true
}

// checkLocal finds what is wrong with a request before anything of it is sent.
func (q *qp) checkLocal(w *request) driver.Status {
	if wantsResponse(w.op) && q.attr.MaxRdAtomic == 0 {
		return driver.LocQPOpErr
	}
	var need driver.Access
	if wantsResponse(w.op) {
		need = driver.LocalWrite
	}
	for _, s := range w.sgl {
		if s.Length > 0 && !q.e.mrs.get(s.LKey).covers(q.pd, s.Addr, uint64(s.Length), need) {
			return driver.LocProtErr
		}
	}
	return driver.Success
}

// send sends packets of w from the cursor on, and reports whether that was all.
func (q *qp) send(b *burst, w *request) bool {
	r := &q.req
	if isLocal(w.op) && !w.executed {
		q.doLocal(w)
		return w.executed
	}
	for r.nextPacket < w.packets {
		if n := q.middles(w, r.nextPacket); n > 0 {
			n, more := q.sendRun(b, w, n)
			if !more {
				return false
			}
			if n > 0 {
				continue
			}
		}
		from, to := r.nextPacket, r.nextPacket+1
		if w.op == driver.OpRead {
			to = q.chunkEnd(w, from)
		}
		if wantsResponse(w.op) && r.reads >= int(q.attr.MaxRdAtomic) {
			return false
		}
		cost := q.cost(w, from, to)
		if !q.mayFly(cost) {
			return false
		}
		if !q.sendPacket(b, w, from, to) {
			q.flow.give(cost)
			q.flow.wake()
			w.failed = driver.LocProtErr
			return false
		}
		r.inFlight += cost
		if wantsResponse(w.op) {
			r.reads++
		}
		r.nextPacket = to
		if end := w.psn.Add(to); end.Sub(r.sent) > 0 {
			r.sent = end
		}
	}
	return true
}

// chunkEnd is one past the last packet that answers a wire request of a read that
// begins at packet from. Chunks begin at multiples of their size, so that one that
// is asked for again ends where it did.
func (q *qp) chunkEnd(w *request, from uint32) uint32 {
	n := uint32(readChunk / q.mtu)
	return min((from/n+1)*n, w.packets)
}

// mayFly takes cost from the window.
func (q *qp) mayFly(cost int) bool {
	r := &q.req
	if r.inFlight > 0 && (r.probing || r.limit > 0 && r.inFlight+cost > r.limit) ||
		!r.congestion.allows(r.inFlight, cost) {
		return false
	}
	return q.flow.take(q, cost, 1) > 0
}

// goBack sends again from the oldest packet that is not acknowledged.
func (q *qp) goBack() {
	q.sq.next, q.req.nextPacket = q.sq.done, q.req.unaPacket
	q.req.reads = 0
	q.unfly(q.req.inFlight)
	q.wakeFlow()
}

// retry begins a round of retransmission, or ends the queue pair after the last.
func (q *qp) retry() {
	r := &q.req
	if r.retries == 0 {
		q.failSend(driver.RetryExcErr)
		return
	}
	r.retries--
	r.resending, r.round = true, r.una
	q.e.counters.retries.Add(1)
	q.narrow()
	q.goBack()
	q.req.clock.restart(q)
	q.transmit()
}

// failSend ends the oldest request with s and the queue pair with it.
func (q *qp) failSend(s driver.Status) {
	q.e.counters.failure(s)
	q.setState(driver.StateErr)
	if q.sq.done < q.sq.posted {
		q.completeSend(s, 0)
	}
	q.flush()
}

// progress is called when una has moved. A peer that was not ready has taken the
// packet after all then, from a copy that came late.
func (q *qp) progress() {
	r := &q.req
	q.refill()
	r.resending, r.probing, r.notReady = false, false, false
	r.clock.restart(q)
	q.drained()
}

// retryClock is the local ACK timer, or the wait after an RNR NAK. It is not set
// back with each packet: when it fires too early it goes on for the rest.
type retryClock struct {
	timer    *time.Timer
	deadline time.Time // zero: nothing to wait for
	due      time.Time // when the timer fires, if
	armed    bool
}

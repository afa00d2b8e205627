package softroce

import (
	"time"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// congestion is what a connection does about the marks that a switch on its way to
// overflow puts on packets (ECN), where Config.ECN has it.
//
// The receiver tells the sender: it answers marked packets with a congestion
// notification packet, one in cnpInterval at most.
//
// The sender has a limit of its own to what it has in flight, beside the window to
// the peer. A notification halves what is in flight and makes that the limit, which
// is never less than one packet. Then notifications count again once all that was
// sent before has been acknowledged. Each time as much as the limit is acknowledged
// it grows by a packet, until it is as large as the window and there is none. So the
// rate falls within a round trip and rises by a packet a round trip, as TCP's does.
// What is in flight after a loss has a limit of its own.
//
// Answers to reads are slowed by who asks: marks on them halve its own limit.
type congestion struct {
	limit   int      // bytes in flight, as charged; 0 is none
	grown   int      // acknowledged since the limit grew
	cutting bool     // until all before cutAt is acknowledged
	cutAt   wire.PSN // what was sent when the limit was cut

	owed bool      // a notification
	told time.Time // when the last one went
}

// cnpInterval is the least time between two notifications of a queue pair, as long
// as in DCQCN.
const cnpInterval = 50 * time.Microsecond

// Values of the lowest two bits of a type of service or traffic class.
const (
	ecnMask    = 3
	ecnCapable = 2 // ECT(0)
	ecnMarked  = 3 // CE
)

// classOf is the type of service of a packet. Only data of reliable connections,
// which can be slowed, may be marked: what is marked is not dropped, and an
// acknowledgement that comes late slows nobody.
func (q *qp) classOf(way *route, op wire.Opcode) uint8 {
	switch {
	case !q.e.ecn || op.Transport() != wire.RC && op != wire.CNP:
		return way.tos
	case op.HasData():
		return way.tos&^ecnMask | ecnCapable
	}
	return way.tos &^ ecnMask
}

// marked takes note of a packet of the peer with a mark.
func (q *qp) marked(p *packet) {
	c := &q.req.congestion
	q.e.counters.marked.Add(1)
	if now := time.Now(); now.Sub(c.told) >= cnpInterval {
		c.told, c.owed = now, true
	}
	if p.op.Operation() == wire.ReadResponse {
		q.slowDown()
	}
}

// notify sends the notification that is owed.
func (q *qp) notify() {
	if !q.req.congestion.owed {
		return
	}
	q.req.congestion.owed = false
	q.e.counters.cnpsSent.Add(1)
	var b burst
	b.add(q, wire.CNP, wire.BECN, 0, 0)
	b.flush(q.e)
}

// notified is a notification from the peer.
func (q *qp) notified() {
	if !q.e.ecn {
		q.e.counters.cnpsIgnored.Add(1)
		return
	}
	q.e.counters.cnpsHandled.Add(1)
	q.slowDown()
}

// slowDown halves the limit, once for what is in flight.
func (q *qp) slowDown() {
	r, c := &q.req, &q.req.congestion
	if r.inFlight == 0 || c.cutting {
		return
	}
	c.limit = max(r.inFlight/2, q.charge(q.mtu))
	c.cutting, c.cutAt, c.grown = true, r.sent, 0
}

// allows says whether the limit lets bytes fly. One packet always may.
func (c *congestion) allows(inFlight, bytes int) bool {
	return c.limit == 0 || inFlight == 0 || inFlight+bytes <= c.limit
}

// delivered takes note of acknowledged bytes, una having moved.
func (q *qp) delivered(bytes int) {
	c := &q.req.congestion
	if c.limit == 0 {
		return
	}
	if c.cutting && q.req.una.Sub(c.cutAt) >= 0 {
		c.cutting = false
	}
	if c.grown += bytes; c.grown >= c.limit {
		c.grown -= c.limit
		c.limit += q.charge(q.mtu)
	}
	if c.limit >= q.e.window() {
		c.limit = 0
	}
}

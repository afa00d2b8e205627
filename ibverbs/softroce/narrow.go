package softroce

// What comes behind a lost packet is sent again with it, so the more is in flight
// the more is sent in vain: where one packet of a hundred gets lost, a window of a
// thousand sends everything ten times. After a loss a queue pair therefore has less
// in flight than the flow to the peer would let it, by what came through since the
// loss before, and more again as packets are acknowledged.

const (
	// narrowest is the packets that may always be in flight.
	narrowest = 16
	// widening is by which part of what is acknowledged the limit grows.
	widening = 8
)

// narrow is called when a packet was lost.
func (q *qp) narrow() {
	r := &q.req
	r.limit = max(min(r.inFlight/2, r.sinceLoss/4), narrowest*q.charge(q.mtu))
	r.sinceLoss = 0
}

// widen is told what was acknowledged. A limit that the flow would set as well ends.
func (q *qp) widen(bytes int) {
	r := &q.req
	r.sinceLoss = min(r.sinceLoss+bytes, 1<<30)
	if r.limit == 0 {
		return
	}
	if r.limit += bytes / widening; r.limit >= q.e.window() {
		r.limit = 0
	}
}

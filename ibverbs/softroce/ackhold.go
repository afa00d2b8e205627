package softroce

// Two programs that poll memory and answer each other's writes do without most ACKs:
// each one is a datagram that both ends take from their time. So the ACK of a write
// which a poll took, and which the program has answered by a request of its own,
// waits for the peer's next write, as IBTA volume 1, 9.7.5 lets a responder coalesce.
// It goes out with the last of several, or when the peer does not go on, which it may
// do because it waits for that very ACK. Who does so is not kept waiting again soon.

// hold is what a responder knows about a peer that may go on without an ACK.
type hold struct {
	on     bool   // a request went out without the ACK
	since  uint64 // the engine's polls when it did
	credit int    // of the peer: how often it went on, less what waiting in vain costs
}

const (
	// holdPackets is for how many packets there is one ACK at least.
	holdPackets = 8
	// holdPolls is how many polls an ACK waits for the peer's next request.
	holdPolls = 16
	// holdCost is how often a peer must have gone on to make up for one wait in vain, which
	// takes about as long as the ACKs that so many packets do without. Processors are taken
	// away for longer than a wait now and then, so it begins with holdStart and may gather
	// holdCredit.
	holdCost   = 16
	holdStart  = 4 * holdCost
	holdCredit = 16 * holdCost
	// holdAgain is how many ACKs are not held after waits that were not made up for.
	holdAgain = 256
	// holdPairs is of how many queue pairs at once ACKs are held.
	holdPairs = 8
	// holdTimeout is the shortest local ACK time-out, 1 ms, of a connection on which they
	// are held.
	holdTimeout = 8
)

// holdsAck decides whether the ACK that is owed stays behind a request that goes out.
// A poll that sees to it is sure to come, or else the timer.
func (q *qp) holdsAck() bool {
	s := &q.resp.replies
	h := &s.hold
	switch t := q.attr.Timeout; {
	case h.on:
		return true
	case !q.owing, s.prompt, s.unacked == 0, s.unacked >= holdPackets, t > 0 && t < holdTimeout:
		return false
	case h.credit < 0:
		h.credit++
		return false
	}
	h.on, h.since = true, q.e.polls.Load()
	return true
}

// proceeded is called when the peer's next packet is there.
func (h *hold) proceeded() {
	if h.on {
		h.on = false
		h.credit = min(h.credit+1, holdCredit)
	}
}

// waited is called when the ACK goes out because the peer did not go on.
func (h *hold) waited() {
	if h.on {
		h.on = false
		if h.credit -= holdCost; h.credit < 0 {
			h.credit = -holdAgain
		}
	}
}

// noneLeft is called when all requests of the queue pair have completed. The program
// may end now, so that a peer which waits for a held ACK would never get it.
func (s *replies) noneLeft() {
	if s.hold.on {
		s.hold.waited()
		s.prompt = true
	}
}

// payAcks sends the ACKs that have waited, all or those that no longer may.
func (r *receiver) payAcks(all bool) {
	polls := r.e.polls.Load()
	all = all || len(r.owing) > holdPairs
	kept := 0
	r.payAt = polls + holdPolls
	for _, q := range r.owing {
		q.mu.Lock()
		s := &q.resp.replies
		if h := &s.hold; h.on && !all && !q.closed && polls-h.since < holdPolls {
			r.payAt = min(r.payAt, h.since+holdPolls)
			r.owing[kept] = q
			kept++
		} else {
			q.owing = false
			h.waited()
			if !q.closed && s.owesAck() {
				q.addAck(&r.acks)
			}
		}
		q.mu.Unlock()
	}
	clear(r.owing[kept:])
	r.owing = r.owing[:kept]
	r.acks.flush(r.e)
}

// payLate pays for a program that has stopped to poll. It does not wait for the lock,
// as takeBatch does not.
func (r *receiver) payLate() {
	freshSlice()
	if !r.mu.TryLock() {
		r.late.Reset(ackLater)
		return
	}
	defer r.mu.Unlock()
	if polls := r.e.polls.Load(); len(r.owing) > 0 && polls-r.latePolls >= holdPolls {
		r.latePolls = polls // these pay
		r.late.Reset(ackLater)
		return
	}
	r.lateSet = false
	r.payAcks(true)
}

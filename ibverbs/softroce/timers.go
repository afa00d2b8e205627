package softroce

import (
	"time"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// watch starts the timer if something is in flight and it does not run.
func (q *qp) watch() {
	if q.req.inFlight > 0 && q.req.clock.deadline.IsZero() {
		q.req.clock.restart(q)
	}
}

// restart gives what is in flight the whole local ACK time-out from now on.
//
// A connection to a peer that is silent fails after RetryCnt+1 time-outs of
// 4.096 µs × 2^Timeout, counted from the last packet that acknowledged something:
// 7 retries with Timeout 14 take 0.54 s. Retry count 7 is seven retries, not
// infinity.
func (c *retryClock) restart(q *qp) {
	limit := wire.AckTime(q.attr.Timeout)
	if limit == 0 || q.req.inFlight == 0 {
		c.deadline = time.Time{}
		return
	}
	c.set(q, limit)
}

func (c *retryClock) set(q *qp, d time.Duration) {
	c.deadline = time.Now().Add(d)
	if c.armed && c.due.After(c.deadline) {
		c.armed = !c.timer.Stop() // a longer wait was on
	}
	if c.armed {
		return
	}
	c.armed, c.due = true, c.deadline
	if c.timer == nil {
		c.timer = time.AfterFunc(d, q.expired)
	} else {
		c.timer.Reset(d)
	}
}

// stop forgets the deadline. A timer that still runs finds nothing to do.
func (c *retryClock) stop() {
	c.deadline = time.Time{}
	if c.armed && c.timer.Stop() {
		c.armed = false
	}
}

// expired runs in a goroutine of package time.
func (q *qp) expired() {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := &q.req.clock
	c.armed = false
	if c.deadline.IsZero() || q.closed {
		return
	}
	if rest := time.Until(c.deadline); rest > 0 {
		c.armed, c.due = true, c.deadline
		c.timer.Reset(rest)
		return
	}
	c.deadline = time.Time{}
	q.req.probing = true
	if q.req.notReady {
		q.req.notReady = false
		q.transmit()
		return
	}
	q.e.counters.timeouts.Add(1)
	q.retry()
}

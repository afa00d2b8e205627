package memdriver

import (
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// stall is what the first request of a send queue waits for.
type stall uint8

const (
	running     stall = iota
	delayed           // Config.Delay
	unreachable       // a peer that answers
	notReady          // a receive at the peer
)

// wait stalls q for why. The time starts when the reason changes, so that
// trying again does not prolong it. limit 0 is for ever.
func (q *qp) wait(why stall, limit time.Duration) {
	if q.stall == why {
		return
	}
	d := q.dev().d
	if q.stall == running {
		d.stalled = append(d.stalled, q)
	}
	q.stall = why
	if limit == 0 {
		q.deadline = time.Time{}
		return
	}
	q.deadline = time.Now().Add(limit)
	if q.timer == nil {
		q.timer = time.AfterFunc(limit, q.expired)
	} else {
		q.timer.Reset(limit)
	}
}

func (q *qp) unstall() {
	if q.stall == running {
		return
	}
	q.stall = running
	q.deadline = time.Time{}
	if q.timer != nil {
		q.timer.Stop()
	}
	q.dev().d.stalled = remove(q.dev().d.stalled, q)
}

// expired runs in a goroutine of package time. A timer that was stopped or set
// again too late finds another deadline.
func (q *qp) expired() {
	d := q.dev().d
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.stall == running || q.deadline.IsZero() || time.Now().Before(q.deadline) {
		return
	}
	switch q.stall {
	case delayed:
		q.sq[q.sqDone%uint64(len(q.sq))].delayed = true
		q.run()
	case unreachable:
		q.end(driver.RetryExcErr, 0)
	case notReady:
		q.end(driver.RNRRetryExcErr, 0)
	}
}

// kick tries again what waits for a peer, oldest first.
func (d *Driver) kick() {
	if len(d.stalled) == 0 {
		return
	}
	d.kicked = append(d.kicked[:0], d.stalled...)
	for _, q := range d.kicked {
		if q.stall == unreachable || q.stall == notReady {
			q.run()
		}
	}
}

// retryTime is how long q waits for an answer: the local ACK time-out for the
// request and each of its retries.
func (q *qp) retryTime() time.Duration {
	if t := q.dev().d.cfg.RetryTime; t != 0 {
		return t
	}
	if q.attr.Timeout == 0 {
		return 0
	}
	return (4096 << q.attr.Timeout) * time.Nanosecond * time.Duration(q.attr.RetryCnt+1)
}

// rnrTimes is the codes of QPAttr.MinRNRTimer in units of 10 µs (IBTA volume 1,
// timer field of the RNR NAK).
var rnrTimes = [32]time.Duration{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// rnrTime is how long q tries to find a receive at p: for ever with 7, as the
// IBTA has it.
func (q *qp) rnrTime(p *qp) time.Duration {
	if q.attr.RNRRetry == 7 {
		return 0
	}
	return rnrTimes[p.attr.MinRNRTimer&31] * 10 * time.Microsecond * time.Duration(q.attr.RNRRetry)
}

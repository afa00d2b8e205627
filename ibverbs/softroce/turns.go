package softroce

import (
	"runtime"
	"time"
)

// On a link that can be shared, packets are taken by whoever is about. A poll of a
// CQ that finds nothing looks at the link itself: the goroutine that takes packets
// otherwise need not run for that, which it may not for 10 ms where polling
// goroutines spin on every processor, and no packet wakes a thread. While there are
// such polls that goroutine rests, and only sees to it that they go on. It goes
// back to work when they stop, or somebody arms a CQ to sleep.
const (
	// looks is how often the goroutine looks at the link before it sleeps. With a
	// sender that keeps the window full it so sleeps hardly ever.
	looks = 500
	// looksPerYield is every how manieth look yields.
	looksPerYield = 16
	// busyPolls is how many polls in the time of looksPerYield looks, or of a rest,
	// mean that the link can be left to them.
	busyPolls = 8
	// restFor is how long a rest is, and twice of it the longest time that packets
	// may wait when polls stop.
	restFor = 500 * time.Microsecond
	// rouseAfter is how often polls have taken packets while the goroutine sleeps on the
	// link when they wake it, to rest beside it: it would not run before the runtime looks
	// at its network poller, up to 10 ms later, and meanwhile the sleep makes each packet
	// dearer for both ends.
	rouseAfter = 4
	// pollLooks is how often a poll looks: what comes while one goes back to its program
	// waits until the next is here.
	pollLooks = 2
	// ackLater is how long an ACK waits for a request to go with when polls stop.
	ackLater = 100 * time.Microsecond
)

// poll looks at the link for a poll that found nothing, and reports whether
// something has come. It waits for nobody.
func (e *engine) poll() bool {
	r := e.rx
	if r.shared == nil {
		return false
	}
	polls := e.polls.Add(1)
	if !r.mu.TryLock() {
		return true // somebody takes packets just now
	}
	came := r.look(polls)
	r.mu.Unlock()
	return came
}

// look is what a poll does, under the lock.
func (r *receiver) look(polls uint64) bool {
	if len(r.owing) > 0 && polls >= r.payAt {
		r.payAcks(false)
	}
	n, err := r.shared.TryRecv(r.batch[:r.want])
	for more := pollLooks - 1; n == 0 && err == nil && more > 0; more-- {
		r.want = 1
		n, err = r.shared.TryRecv(r.batch[:1])
	}
	if n == 0 || err != nil {
		r.want = 1
		return false
	}
	if n == r.want {
		r.want = min(2*n, pollBatch)
	}
	if e := r.e; e.sleeps.Load() {
		if r.unslept++; r.unslept >= rouseAfter && e.sleeps.CompareAndSwap(true, false) {
			r.shared.Rouse()
		}
	} else {
		r.unslept = 0
	}
	// A request that the program sends now takes the ACK along. If none does, the
	// next poll sends it, or else the timer.
	r.through(n, true)
	if len(r.owing) > 0 && !r.lateSet {
		r.lateSet, r.latePolls = true, polls
		r.late.Reset(ackLater)
	}
	return true
}

// receiveInTurn takes packets until the link is closed, unless polls do.
func (e *engine) receiveInTurn() {
	rest := time.NewTimer(restFor)
	defer rest.Stop()
	for {
		switch e.work() {
		case polled:
			e.leaveToPolls(rest)
		case quiet:
			e.sleeps.Store(true)
			if e.rx.shared.Await() != nil {
				return
			}
			if !e.sleeps.Swap(false) {
				e.leaveToPolls(rest)
			}
		case closed:
			return
		}
	}
}

// workEnd is why the goroutine stops to look at the link.
type workEnd uint8

const (
	quiet  workEnd = iota // nothing came for a while
	polled                // others look
	closed
)

// work takes packets.
func (e *engine) work() workEnd {
	polls := e.polls.Load()
	for idle, n := 0, 1; idle < looks; n++ {
		came, err := e.takeBatch()
		if err != nil {
			return closed
		}
		if idle++; came {
			idle = 0
		}
		if n%looksPerYield == 0 {
			runtime.Gosched()
			now := e.polls.Load()
			if now-polls >= busyPolls {
				return polled
			}
			polls = now
		}
	}
	return quiet
}

// takeBatch takes what is there, if nobody else does just now: to wait for that lock
// would make it one that is handed on, and so nobody's until the one that waits gets
// a processor, which goroutines that poll may not leave it for 10 ms.
func (e *engine) takeBatch() (came bool, err error) {
	r := e.rx
	if !r.mu.TryLock() {
		return true, nil
	}
	defer r.mu.Unlock()
	n, err := r.shared.TryRecv(r.batch[:])
	if n == 0 || err != nil {
		return false, err
	}
	r.through(n, false)
	return true, nil
}

// leaveToPolls rests while there are polls.
func (e *engine) leaveToPolls(rest *time.Timer) {
	for {
		before := e.polls.Load()
		rest.Reset(restFor)
		select {
		case <-rest.C:
			if e.polls.Load()-before >= busyPolls {
				continue
			}
		case <-e.handover:
		case <-e.stop:
		}
		freshSlice()
		return
	}
}

// freshSlice is called before the lock is taken by a goroutine that something woke:
// it runs in what is left of the time slice of the one before it, mostly one that
// polls and has used it up. It would be stopped at once, and with the lock.
func freshSlice() { runtime.Gosched() }

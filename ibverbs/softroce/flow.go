package softroce

import (
	"sync"
	"sync/atomic"
)

// flow is the window to one peer device, which all queue pairs to it share: what
// they have in flight must fit into the buffer of its socket, or the kernel there
// drops packets and everybody sends again. What counts is what the kernel charges
// for a packet, not its payload. Answers to reads count as well, for they come the
// other way into a buffer of the same size.
//
// Queue pairs that find nothing left wait in turn, and so do those that come later.
type flow struct {
	e       *engine
	left    atomic.Int64
	waiters atomic.Int32
	mu      sync.Mutex
	waiting []*qp
	head    int // of waiting, up to which all had their turn
}

// maxWindow bounds what is in flight to a peer, whatever its buffer: more than fits
// the processor's cache makes nothing faster.
const maxWindow = 1 << 20

// take takes up to n times bytes, and says how many times; if that is none, q waits
// for its turn. A packet larger than the whole window goes alone.
func (f *flow) take(q *qp, bytes, n int) int {
	if f.waiters.Load() == 0 || q.req.turn {
		if n := f.try(bytes, n); n > 0 {
			return n
		}
	}
	if q.req.starved {
		return 0
	}
	q.req.starved = true
	f.mu.Lock()
	f.waiting = append(f.waiting, q)
	f.waiters.Add(1)
	f.mu.Unlock()
	f.wake() // something may have been given back meanwhile
	return 0
}

// try lets the window go below zero by one packet, so that none is too large.
func (f *flow) try(bytes, n int) int {
	for {
		left := f.left.Load()
		if left <= 0 {
			return 0
		}
		n := min(n, (int(left)+bytes-1)/bytes)
		if f.left.CompareAndSwap(left, left-int64(n*bytes)) {
			return n
		}
	}
}

// give gives back. Who calls it then has those that wait go on: the goroutine that
// takes packets at the end of its batch, all others by wake.
func (f *flow) give(bytes int) { f.left.Add(int64(bytes)) }

// next is whose turn it is, nil if there is nothing left or nobody waits.
func (f *flow) next() *qp {
	if f.waiters.Load() == 0 || f.left.Load() <= 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.head == len(f.waiting) {
		return nil
	}
	q := f.waiting[f.head]
	f.waiting[f.head] = nil
	f.waiters.Add(-1)
	if f.head++; f.head == len(f.waiting) {
		f.waiting, f.head = f.waiting[:0], 0
	} else if f.head >= 64 && 2*f.head >= len(f.waiting) {
		f.waiting = f.waiting[:copy(f.waiting, f.waiting[f.head:])]
		f.head = 0
	}
	return q
}

// wake has the pump send for the first that waits, and so for those behind it.
func (f *flow) wake() {
	if q := f.next(); q != nil {
		f.e.pump.addTurn(q, f)
	}
}

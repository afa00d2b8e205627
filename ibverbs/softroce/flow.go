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
type flow struct {
	e       *engine
	left    atomic.Int64
	waiters atomic.Int32
	mu      sync.Mutex
	waiting []*qp
}

// take takes bytes, or notes that q waits for them. A packet larger than the whole
// window goes alone.
func (f *flow) take(q *qp, bytes int) bool {
	if f.try(bytes) {
		return true
	}
	if q.req.starved {
		return false
	}
	q.req.starved = true
	f.mu.Lock()
	f.waiting = append(f.waiting, q)
	f.waiters.Add(1)
	f.mu.Unlock()
	if f.left.Load() > 0 {
		f.wake() // something was given back meanwhile
	}
	return false
}

// try lets the window go below zero by one packet, so that none is too large.
func (f *flow) try(bytes int) bool {
	for {
		left := f.left.Load()
		if left <= 0 {
			return false
		}
		if f.left.CompareAndSwap(left, left-int64(bytes)) {
			return true
		}
	}
}

func (f *flow) give(bytes int) {
	if f.left.Add(int64(bytes)) > 0 && f.waiters.Load() > 0 {
		f.wake()
	}
}

// wake has the pump send for all that wait; those that find nothing left wait again.
func (f *flow) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, q := range f.waiting {
		f.e.pump.add(q)
		f.waiting[i] = nil
	}
	f.waiters.Add(-int32(len(f.waiting)))
	f.waiting = f.waiting[:0]
}

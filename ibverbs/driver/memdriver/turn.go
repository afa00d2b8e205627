package memdriver

import "sync/atomic"

// turn notices callers that break the seam's rule: calls of a kind come one at
// a time, and none after Close.
type turn struct{ state atomic.Uint32 }

const (
	turnFree uint32 = iota
	turnTaken
	turnClosed
)

func (t *turn) take(call string) {
	if !t.state.CompareAndSwap(turnFree, turnTaken) {
		t.broken(call)
	}
}

func (t *turn) give() { t.state.Store(turnFree) }

// close takes the turn for ever.
func (t *turn) close(call string) {
	if !t.state.CompareAndSwap(turnFree, turnClosed) {
		t.broken(call)
	}
}

func (t *turn) broken(call string) {
	if t.state.Load() == turnClosed {
		panic("memdriver: " + call + " after Close; the caller of a driver must prevent that")
	}
	panic("memdriver: " + call + " while a call that excludes it is running; the caller of a driver must prevent that")
}

package softroce

import (
	"errors"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// step is a change of state with what it must and may have (IBTA volume 1, modify queue pair).
type step struct {
	to        driver.QPState
	must, may driver.QPMask
}

var (
	path   = driver.QPAV | driver.QPPathMTU | driver.QPDestQPN | driver.QPRQPSN
	rcRTS  = driver.QPCurState | driver.QPAccessFlags | driver.QPMinRNRTimer
	ucRTS  = driver.QPCurState | driver.QPAccessFlags
	udRTS  = driver.QPCurState | driver.QPQKey
	rights = driver.QPPort | driver.QPPKeyIndex | driver.QPAccessFlags
)

var stepsOfTypes = map[driver.QPType][]step{
	driver.RC: {
		{driver.StateInit, rights, 0},
		{driver.StateInit, 0, rights},
		{driver.StateRTR, path | driver.QPMaxDestRdAtomic | driver.QPMinRNRTimer, driver.QPAccessFlags | driver.QPPKeyIndex},
		{driver.StateRTS, driver.QPSQPSN | driver.QPTimeout | driver.QPRetryCnt | driver.QPRNRRetry | driver.QPMaxQPRdAtomic, rcRTS},
		{driver.StateRTS, 0, rcRTS},
		{driver.StateSQD, 0, driver.QPEnSQDAsyncNotify},
		{driver.StateRTS, 0, rcRTS},
	},
	driver.UC: {
		{driver.StateInit, rights, 0},
		{driver.StateInit, 0, rights},
		{driver.StateRTR, path, driver.QPAccessFlags | driver.QPPKeyIndex},
		{driver.StateRTS, driver.QPSQPSN, ucRTS},
		{driver.StateRTS, 0, ucRTS},
		{driver.StateSQD, 0, driver.QPEnSQDAsyncNotify},
		{driver.StateRTS, 0, ucRTS},
		{driver.StateSQE, 0, 0},
		{driver.StateRTS, 0, ucRTS},
	},
	driver.UD: {
		{driver.StateInit, driver.QPPort | driver.QPPKeyIndex | driver.QPQKey, 0},
		{driver.StateInit, 0, driver.QPPort | driver.QPPKeyIndex | driver.QPQKey},
		{driver.StateRTR, 0, driver.QPPKeyIndex | driver.QPQKey},
		{driver.StateRTS, driver.QPSQPSN, udRTS},
		{driver.StateRTS, 0, udRTS},
		{driver.StateSQD, 0, driver.QPEnSQDAsyncNotify},
		{driver.StateRTS, 0, udRTS},
		{driver.StateSQE, 0, 0},
		{driver.StateRTS, 0, udRTS},
	},
}

// Each attribute that a change of state must have and is left out, and each one that
// it may not have, is refused and changes nothing.
func TestTransitionsOfEachType(t *testing.T) {
	for typ, steps := range stepsOfTypes {
		t.Run(typ.String(), func(t *testing.T) {
			inBubble(t, rigConfig{typ: typ, apart: true}, func(r *rig) {
				q := r.a.q
				r.must(q.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask))
				from := driver.StateReset
				for _, s := range steps {
					a := driver.QPAttr{State: s.to, CurState: from, Port: 1, PathMTU: driver.MTU256, DestQPN: 2, Access: everything,
						AH: driver.AHAttr{DGID: gidOf(r.b.addr), Port: 1, IsGlobal: true}}
					if s.to == driver.StateSQE { // which the device enters by itself
						q.mu.Lock()
						q.setState(driver.StateSQE)
						q.mu.Unlock()
						from = s.to
						continue
					}
					for bit := range 26 {
						b := driver.QPMask(1) << bit
						mask := s.must ^ b // one less, or one more
						if b == driver.QPStateMask || s.may&b != 0 {
							continue
						}
						if err := q.Modify(&a, driver.QPStateMask|mask); !errors.Is(err, syscall.EINVAL) {
							t.Fatalf("%v to %v with mask %#x: %v", from, s.to, mask, err)
						}
						if now := r.a.state(); now != from {
							t.Fatalf("a refused change from %v to %v led to %v", from, s.to, now)
						}
					}
					r.must(q.Modify(&a, driver.QPStateMask|s.must|s.may))
					from = s.to
				}
				for _, to := range []driver.QPState{driver.StateSQE, driver.StateInit, driver.StateRTR} {
					if err := q.Modify(&driver.QPAttr{State: to}, driver.QPStateMask); !errors.Is(err, syscall.EINVAL) {
						t.Errorf("RTS to %v: %v", to, err)
					}
				}
			})
		})
	}
}

// From Reset a queue pair can be put into Err, where posts are flushed: it has no
// path yet.
func TestPostsInErrWithoutAPath(t *testing.T) {
	for _, typ := range []driver.QPType{driver.RC, driver.UC, driver.UD} {
		inBubble(t, rigConfig{typ: typ, apart: true}, func(r *rig) {
			h := r.a.handle()
			r.must(r.a.q.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask))
			r.must(r.a.q.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
			r.a.post(r.a.datagram(h, 1, 0, 1000))
			r.a.one(1, driver.WRFlushErr)
		})
	}
}

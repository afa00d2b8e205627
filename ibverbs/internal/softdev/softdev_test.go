package softdev

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestMailboxKeepsOrder(t *testing.T) {
	m := NewMailbox[int](nil)
	next, put := 0, 0
	for n := range 50 { // taken in other portions than put
		for range n % 7 {
			m.Put(put)
			put++
		}
		for range n % 5 {
			if v, ok := m.Take(); ok {
				if v != next {
					t.Fatalf("took %d, want %d", v, next)
				}
				next++
			}
		}
	}
	m.Drop(func(v int) bool { return v%2 == 0 })
	for v, ok := m.Take(); ok; v, ok = m.Take() {
		if next += 1 - next%2; v != next {
			t.Fatalf("took %d, want %d", v, next)
		}
		next++
	}
	if next < put-1 {
		t.Errorf("%d of %d came", next, put)
	}
}

func TestMailboxWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMailbox[int](nil)
		ctx, cancel := context.WithCancelCause(context.Background())
		why := errors.New("enough")
		go func() {
			for v := range 3 {
				time.Sleep(time.Second)
				m.Put(v)
			}
			time.Sleep(time.Second)
			cancel(why)
		}()
		for want := range 3 {
			if v, err := m.Wait(ctx); v != want || err != nil {
				t.Errorf("Wait: %d, %v, want %d", v, err, want)
			}
		}
		if _, err := m.Wait(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("Wait after cancel: %v", err)
		}
		// What is there comes first, ctx being done or not.
		m.Put(7)
		if v, err := m.Wait(ctx); v != 7 || err != nil {
			t.Errorf("Wait: %d, %v, want 7", v, err)
		}
		go func() {
			time.Sleep(time.Second)
			m.Close()
		}()
		if _, err := m.Wait(context.Background()); err != driver.ErrClosed {
			t.Errorf("Wait during Close: %v", err)
		}
		m.Put(8)
		if _, err := m.Wait(context.Background()); err != driver.ErrClosed {
			t.Errorf("Wait after Close: %v", err)
		}
	})
}

// What is put under a lock is seen when that is free.
func TestMailboxUnderALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		m := NewMailbox[int](&mu)
		var done atomic.Bool
		go func() {
			mu.Lock()
			defer mu.Unlock()
			m.Put(1)
			for range 100 {
				runtime.Gosched()
			}
			done.Store(true)
		}()
		if v, err := m.Wait(context.Background()); v != 1 || err != nil || !done.Load() {
			t.Errorf("Wait: %d, %v, after the lock was free: %v", v, err, done.Load())
		}
	})
}

func TestMailboxAllocatesNothing(t *testing.T) {
	m := NewMailbox[driver.Event](nil)
	if n := testing.AllocsPerRun(100, func() {
		m.Put(driver.Event{})
		m.Put(driver.Event{})
		m.Take()
		m.Take()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Each attribute that a change must have is missed, and each that it may not have is
// refused.
func TestCheckTransition(t *testing.T) {
	const all = driver.QPMask(1) << 22
	changes := 0
	for typ, table := range transitions {
		for from := driver.StateReset; from <= driver.StateErr+1; from++ {
			for to := driver.StateReset; to <= driver.StateErr+1; to++ {
				a := &driver.QPAttr{State: to, CurState: from}
				c, ok := table[[2]driver.QPState{from, to}]
				if to == driver.StateReset || to == driver.StateErr {
					ok = true
				}
				check := func(mask driver.QPMask, want bool) {
					t.Helper()
					changes++
					if err := CheckTransition(typ, from, a, mask|driver.QPStateMask); (err == nil) != want || !want && err != syscall.EINVAL {
						t.Errorf("%v from %v to %v with %#x: %v", typ, from, to, mask, err)
					}
				}
				check(c.must, ok)
				check(c.must|c.may, ok)
				for bit := driver.QPMask(2); bit < all; bit <<= 1 {
					switch {
					case c.must&bit != 0:
						check(c.must&^bit, false)
					case c.may&bit == 0:
						check(c.must|bit, false)
					}
				}
				if Required(typ, from, to) != c.must {
					t.Errorf("%v from %v to %v requires %#x", typ, from, to, Required(typ, from, to))
				}
				a.CurState = from + 1
				check(c.must|driver.QPCurState, false)
			}
		}
	}
	if changes < 1000 {
		t.Errorf("%d changes tried", changes)
	}
	// Without the state it is a change within it.
	if err := CheckTransition(driver.RC, driver.StateRTS, &driver.QPAttr{State: driver.StateInit}, driver.QPAccessFlags); err != nil {
		t.Errorf("rights in RTS: %v", err)
	}
	if err := CheckTransition(driver.QPType(99), driver.StateReset, &driver.QPAttr{State: driver.StateInit}, driver.QPStateMask); err == nil {
		t.Error("an unknown type was initialised")
	}
}

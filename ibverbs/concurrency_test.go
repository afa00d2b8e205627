package ibverbs_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// Goroutines share one QP: each request completes once.
func TestSharedQP(t *testing.T) {
	e := connect(t, ibverbs.WithEvents())
	const posters, each = 4, 200
	var seen [posters * each]atomic.Int32
	var group sync.WaitGroup
	for p := range posters {
		group.Go(func() {
			for i := 0; i < each; {
				_, err := e.qps[0].PostSend(e.write(uint64(p*each+i), 8))
				switch {
				case err == nil:
					i++
				case errors.Is(err, ibverbs.ErrQueueFull):
					time.Sleep(10 * time.Microsecond)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	for left := posters * each; left > 0; {
		var wcs [8]ibverbs.WC
		n, err := e.cqs[0].Wait(deadline(t), wcs[:])
		if err != nil {
			t.Fatalf("%d completions are missing: %v", left, err)
		}
		for _, wc := range wcs[:n] {
			if wc.Status != ibverbs.Success || seen[wc.ID].Add(1) != 1 {
				t.Fatalf("completion %+v, seen %d times", wc, seen[wc.ID].Load())
			}
		}
		left -= n
	}
	group.Wait()
}

// Everything is closed while everything is used: calls end with ErrClosed and
// nothing faults. The fabric panics if a call reaches a closed object.
func TestCloseInTheMiddle(t *testing.T) {
	for round := range 10 {
		e := connect(t, ibverbs.WithEvents())
		sub := e.dev.Subscribe()
		ch := get(e.dev.CreateCompChannel())(t)
		ctx := context.Background()
		var group sync.WaitGroup
		use := func(call func() error) {
			group.Go(func() {
				for {
					err := call()
					if errors.Is(err, ibverbs.ErrClosed) {
						return
					}
					if err != nil && !errors.Is(err, ibverbs.ErrQueueFull) {
						t.Error(err)
						return
					}
					runtime.Gosched()
				}
			})
		}
		for i := range e.qps {
			q, cq := e.qps[i], e.cqs[i]
			use(func() error { return second(q.PostSend(e.write(1, 64))) })
			use(func() error { return second(q.PostRecv(ibverbs.RecvWR{})) })
			use(func() error { return second(q.Query()) })
			use(func() error { return second(cq.Poll(make([]ibverbs.WC, 4))) })
			use(func() error { return second(cq.Wait(ctx, make([]ibverbs.WC, 4))) })
		}
		use(func() error { return second(e.dev.Port(1)) })
		use(func() error { return second(e.dev.GIDs(1)) })
		use(func() error { return second(sub.Next(ctx)) })
		use(func() error { return second(ch.Wait(ctx)) })
		use(func() error {
			pd, err := e.dev.AllocPD()
			if err != nil {
				return err
			}
			m, err := pd.RegMR(e.buf, ibverbs.LocalWrite)
			if err != nil {
				return err
			}
			return errors.Join(m.Close(), pd.Close())
		})
		use(func() error {
			e.fabric.Device("mem0").SetPort(1, ibverbs.PortActive) // an event
			return second(e.dev.Query())
		})
		time.Sleep(time.Millisecond)
		if round%2 == 0 {
			try(t, e.qps[0].Close())
			try(t, e.mem.Close())
		}
		var closers sync.WaitGroup
		for range 2 {
			closers.Go(func() { try2(e.dev.Close()) })
		}
		closers.Wait()
		group.Wait()
	}
}

// A QP is reset and closed while its completions are polled.
func TestResetWhilePolling(t *testing.T) {
	e := connect(t)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			var wcs [4]ibverbs.WC
			if _, err := e.cqs[0].Poll(wcs[:]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 50 {
		a, b := newQP(t, e.pd, e.cqs[0], e.cqs[0]), newQP(t, e.pd, e.cqs[1], e.cqs[1])
		for range 2 {
			join(t, e.dev, a, b)
			for id := range uint64(8) {
				get(a.PostSend(e.write(id, 8)))(t)
			}
			for _, q := range []*ibverbs.QP{a, b} {
				try(t, q.Modify(&ibverbs.QPAttr{State: ibverbs.StateReset}, ibverbs.QPStateMask))
			}
		}
		try(t, a.Close())
		try(t, b.Close())
	}
	cancel()
	group.Wait()
}

// Contexts of one device, opened and closed from many goroutines.
func TestOpenAndCloseAtOnce(t *testing.T) {
	fabric := memdriver.New(memdriver.Config{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				dev, err := ibverbs.Open("mem0", ibverbs.WithDrivers(fabric))
				if err != nil {
					t.Error(err)
					return
				}
				cq, err := dev.CreateCQ(4, ibverbs.WithEvents())
				if err != nil {
					t.Error(err)
				} else if _, err := cq.Poll(make([]ibverbs.WC, 1)); err != nil {
					t.Error(err)
				}
				if err := dev.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if contexts, objects := fabric.Device("mem0").Leaks(); contexts+objects != 0 {
		t.Errorf("%d contexts and %d objects are left", contexts, objects)
	}
}

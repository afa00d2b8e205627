package ibverbs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
)

// kinds is the ways in which a CQ can be made to be waited for.
func kinds(t *testing.T, f func(t *testing.T, opts ...ibverbs.CQOption)) {
	t.Run("events", func(t *testing.T) { f(t, ibverbs.WithEvents()) })
	t.Run("no events", func(t *testing.T) { f(t) })
}

func TestWaitSleeps(t *testing.T) {
	kinds(t, func(t *testing.T, opts ...ibverbs.CQOption) {
		synctest.Test(t, func(t *testing.T) {
			e := connect(t, opts...)
			const late = 3 * time.Second
			time.AfterFunc(late, func() { get(e.qps[0].PostSend(e.write(5, 8)))(t) })
			start := time.Now()
			wc := one(t, e.cqs[0])
			if d := time.Since(start); wc.ID != 5 || d < late || d > late+time.Millisecond {
				t.Errorf("completion %+v after %v, want it after %v", wc, d, late)
			}
		})
	})
}

func TestWaitEnds(t *testing.T) {
	kinds(t, func(t *testing.T, opts ...ibverbs.CQOption) {
		for name, c := range map[string]struct {
			end  func(e *ends, cancel context.CancelFunc)
			want error
		}{
			"cancel":        {func(_ *ends, cancel context.CancelFunc) { cancel() }, context.Canceled},
			"context close": {func(e *ends, _ context.CancelFunc) { try2(e.dev.Close()) }, ibverbs.ErrClosed},
			"close": {func(e *ends, _ context.CancelFunc) {
				try2(e.qps[0].Close())
				try2(e.cqs[0].Close())
			}, ibverbs.ErrClosed},
			"device fatal": {func(e *ends, _ context.CancelFunc) { e.fabric.Device("mem0").Fatal() }, ibverbs.ErrDeviceGone},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := connect(t, opts...)
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					const waiters = 3
					errs := make(chan error, waiters)
					for range waiters {
						go func() {
							n, err := e.cqs[0].Wait(ctx, make([]ibverbs.WC, 4))
							if n != 0 {
								err = fmt.Errorf("%d completions out of nothing, %w", n, err)
							}
							errs <- err
						}()
					}
					time.Sleep(time.Second)
					synctest.Wait()
					c.end(e, cancel)
					for range waiters {
						select {
						case err := <-errs:
							if !errors.Is(err, c.want) {
								t.Errorf("Wait: %v, want %v", err, c.want)
							}
						case <-time.After(time.Minute):
							t.Fatal("a waiter was left asleep")
						}
					}
				})
			})
		}
	})
}

// Waits with nothing to wait for.
func TestWaitAtOnce(t *testing.T) {
	e := connect(t, ibverbs.WithEvents())
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if n, err := e.cqs[0].Wait(done, make([]ibverbs.WC, 1)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %d, %v", n, err)
	}
	if n, err := e.cqs[0].Wait(context.Background(), nil); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("no room: %d, %v", n, err)
	}
	get(e.qps[0].PostSend(e.write(1, 8)))(t)
	if n, err := e.cqs[0].Wait(done, make([]ibverbs.WC, 1)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled, with a completion there: %d, %v", n, err)
	}
	one(t, e.cqs[0]) // nobody has taken it
}

// Several waiters share a queue and none of the completions is lost.
func TestWaitShared(t *testing.T) {
	kinds(t, func(t *testing.T, opts ...ibverbs.CQOption) {
		e := connect(t, opts...)
		const waiters, messages = 4, 400
		ctx, cancel := context.WithCancel(deadline(t))
		defer cancel()
		var got atomic.Int64
		var seen [messages]atomic.Int32
		var group sync.WaitGroup
		for range waiters {
			group.Go(func() {
				for {
					var wcs [3]ibverbs.WC
					n, err := e.cqs[1].Wait(ctx, wcs[:])
					if err != nil {
						if got.Load() != messages {
							t.Errorf("Wait: %v", err)
						}
						return
					}
					for _, wc := range wcs[:n] {
						seen[wc.ID].Add(1)
						if got.Add(1) == messages {
							cancel()
						}
					}
				}
			})
		}
		for id := range uint64(messages) {
			for {
				_, err := e.qps[1].PostRecv(ibverbs.RecvWR{ID: id})
				if err == nil {
					break
				}
				if !errors.Is(err, ibverbs.ErrQueueFull) || ctx.Err() != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Microsecond)
			}
			get(e.qps[0].PostSend(ibverbs.SendWR{Op: ibverbs.OpSend, Flags: ibverbs.Signaled}))(t)
			one(t, e.cqs[0])
		}
		group.Wait()
		for id := range seen {
			if n := seen[id].Load(); n != 1 {
				t.Errorf("completion %d came %d times", id, n)
			}
		}
	})
}

// Many CQs on one channel, by CompChannel.Wait and by CQ.Wait at the same time.
func TestChannelShared(t *testing.T) {
	e := connect(t)
	ch := get(e.dev.CreateCompChannel())(t)
	const queues, rounds = 4, 100
	var group sync.WaitGroup
	type pair struct {
		cq   *ibverbs.CQ
		a, b *ibverbs.QP
	}
	var pairs []pair
	for range queues {
		cq := get(e.dev.CreateCQ(64, ibverbs.WithChannel(ch)))(t)
		p := pair{cq, newQP(t, e.pd, cq, cq), newQP(t, e.pd, e.cqs[1], e.cqs[1])}
		join(t, e.dev, p.a, p.b)
		pairs = append(pairs, p)
	}
	// Half of the queues are waited for by themselves.
	for _, p := range pairs[:queues/2] {
		group.Go(func() {
			for i := range uint64(rounds) {
				if _, err := p.a.PostSend(e.write(i, 8)); err != nil {
					t.Error(err)
					return
				}
				var wcs [1]ibverbs.WC
				if n, err := p.cq.Wait(deadline(t), wcs[:]); n != 1 || err != nil || wcs[0].ID != i {
					t.Errorf("round %d: %d, %v, %+v", i, n, err, wcs[0])
					return
				}
			}
		})
	}
	// The others through the channel.
	group.Go(func() {
		left := map[*ibverbs.CQ]int{}
		for _, p := range pairs[queues/2:] {
			left[p.cq] = rounds
			try2(p.cq.Arm(false))
			if _, err := p.a.PostSend(e.write(0, 8)); err != nil {
				t.Error(err)
				return
			}
		}
		for len(left) > 0 {
			cq, err := ch.Wait(deadline(t))
			if err != nil {
				t.Error(err, left)
				return
			}
			if _, ours := left[cq]; !ours {
				continue // of a queue whose own waiter was between two sleeps
			}
			try2(cq.Arm(false))
			var wcs [8]ibverbs.WC
			n, err := cq.Poll(wcs[:])
			if err != nil {
				t.Error(err)
				return
			}
			if left[cq] -= n; left[cq] <= 0 {
				delete(left, cq)
				continue
			}
			for _, p := range pairs {
				for ; p.cq == cq && n > 0; n-- {
					if _, err := p.a.PostSend(e.write(0, 8)); err != nil {
						t.Error(err)
						return
					}
				}
			}
		}
	})
	group.Wait()
}

func TestChannelWaitEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(e *ends, ch *ibverbs.CompChannel, cancel context.CancelFunc)
		want error
	}{
		"cancel":        {func(_ *ends, _ *ibverbs.CompChannel, cancel context.CancelFunc) { cancel() }, context.Canceled},
		"close":         {func(_ *ends, ch *ibverbs.CompChannel, _ context.CancelFunc) { try2(ch.Close()) }, ibverbs.ErrClosed},
		"context close": {func(e *ends, _ *ibverbs.CompChannel, _ context.CancelFunc) { try2(e.dev.Close()) }, ibverbs.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := connect(t)
				ch := get(e.dev.CreateCompChannel())(t)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				errs := make(chan error, 2)
				for range cap(errs) {
					go func() { _, err := ch.Wait(ctx); errs <- err }()
				}
				synctest.Wait()
				c.end(e, ch, cancel)
				for range cap(errs) {
					select {
					case err := <-errs:
						if !errors.Is(err, c.want) {
							t.Errorf("Wait: %v, want %v", err, c.want)
						}
					case <-time.After(time.Minute):
						t.Fatal("a waiter was left asleep")
					}
				}
			})
		})
	}
}

// Who sleeps on a channel for many CQs learns that one of them failed.
func TestChannelTellsOfFailedQueue(t *testing.T) {
	for name, fail := range map[string]func(e *ends, a *ibverbs.QP){
		"overrun": func(e *ends, a *ibverbs.QP) {
			for range 8 {
				_, _ = a.PostSend(e.write(1, 8))
			}
		},
		"device fatal": func(e *ends, _ *ibverbs.QP) { e.fabric.Device("mem0").Fatal() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := connect(t)
				ch := get(e.dev.CreateCompChannel())(t)
				small := get(e.dev.CreateCQ(2, ibverbs.WithChannel(ch)))(t)
				a, b := newQP(t, e.pd, small, small), newQP(t, e.pd, e.cqs[1], e.cqs[1])
				join(t, e.dev, a, b)
				go func() {
					time.Sleep(time.Second)
					fail(e, a) // the queue is not armed
				}()
				if cq, err := ch.Wait(deadline(t)); cq != small || err != nil {
					t.Errorf("Wait: %p, %v; want %p", cq, err, small)
				}
			})
		})
	}
}

// One event stands for two completions: who took the first passes it on.
func TestWaitPassesEventOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := connect(t, ibverbs.WithEvents())
		errs := make(chan error, 2)
		for range cap(errs) {
			go func() {
				var wcs [1]ibverbs.WC
				errs <- second(e.cqs[0].Wait(deadline(t), wcs[:]))
			}()
		}
		synctest.Wait()
		switches := e.fabric.Device("mem0")
		switches.HoldCompletions()
		get(e.qps[0].PostSend(e.write(1, 8), e.write(2, 8)))(t)
		switches.ReleaseCompletions()
		for range cap(errs) {
			try(t, <-errs)
		}
	})
}

// The waiter of one queue reads the event of another and hands it over.
func TestWaitHandsEventOver(t *testing.T) {
	for range 20 { // which of the two sleepers reads is chance
		synctest.Test(t, func(t *testing.T) {
			e := connect(t)
			ch := get(e.dev.CreateCompChannel())(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var cqs [2]*ibverbs.CQ
			var errs [2]chan error
			for i := range cqs {
				cqs[i], errs[i] = get(e.dev.CreateCQ(4, ibverbs.WithChannel(ch)))(t), make(chan error, 1)
				go func() { errs[i] <- second(cqs[i].Wait(ctx, make([]ibverbs.WC, 1))) }()
				synctest.Wait() // the first is the reader
			}
			q, peer := newQP(t, e.pd, cqs[1], cqs[1]), newQP(t, e.pd, e.cqs[1], e.cqs[1])
			join(t, e.dev, q, peer)
			get(q.PostSend(e.write(1, 8)))(t)
			select {
			case err := <-errs[1]:
				try(t, err)
			case <-time.After(time.Minute):
				t.Fatal("the event was not handed over")
			}
			cancel()
			if err := <-errs[0]; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// Closing a queue wakes its waiter also if the channel stays open.
func TestWaitEndsOnSharedChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := connect(t)
		ch := get(e.dev.CreateCompChannel())(t)
		cq := get(e.dev.CreateCQ(4, ibverbs.WithChannel(ch)))(t)
		errs := make(chan error, 1)
		go func() { errs <- second(cq.Wait(context.Background(), make([]ibverbs.WC, 1))) }()
		synctest.Wait()
		try(t, cq.Close())
		select {
		case err := <-errs:
			if !errors.Is(err, ibverbs.ErrClosed) {
				t.Errorf("Wait: %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the waiter was left asleep")
		}
		try(t, ch.Close())
	})
}

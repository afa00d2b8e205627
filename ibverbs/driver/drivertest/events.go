package drivertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

func (q *queue) arm(t testing.TB, solicitedOnly bool) {
	t.Helper()
	q.control.Lock()
	defer q.control.Unlock()
	must(t, "arm", q.CQ.Arm(solicitedOnly))
}

func newChannel(s *side) driver.CompChannel {
	ch, err := s.Context.CreateCompChannel()
	must(s.t, "create completion channel", err)
	s.t.Cleanup(func() { check(s.t, "close completion channel", ch.Close()) })
	return ch
}

// waiting runs wait in a goroutine and gives its answer, with a deadline.
type answer[T any] struct {
	v   T
	err error
}

func begin[T any](wait func() (T, error)) <-chan answer[T] {
	c := make(chan answer[T], 1)
	go func() {
		v, err := wait()
		c <- answer[T]{v, err}
	}()
	return c
}

func finish[T any](t testing.TB, cfg Config, what string, c <-chan answer[T]) (T, error) {
	t.Helper()
	select {
	case a := <-c:
		return a.v, a.err
	case <-time.After(cfg.Wait):
		t.Fatalf("%s did not return within %v", what, cfg.Wait)
	}
	panic("unreachable")
}

// silent sees that the channel has no event.
func silent(t testing.TB, cfg Config, ch driver.CompChannel) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cfg.Quiet)
	defer cancel()
	if cookie, err := ch.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("event of CQ %d, error %v, where none is due", cookie, err)
	}
}

// event waits for one of the CQ with this cookie.
func event(t testing.TB, cfg Config, ch driver.CompChannel, want uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cfg.Wait)
	defer cancel()
	if cookie, err := ch.Wait(ctx); err != nil || cookie != want {
		t.Fatalf("event of CQ %d, error %v; want CQ %d", cookie, err, want)
	}
}

// testEvents is completion events: armed queues wake their channel once, with
// their cookie.
func testEvents(t *testing.T, cfg Config) {
	a, b := open(t, cfg)
	ch := newChannel(b)
	want := setup{}.withDefaults(cfg)
	a.build(want)
	b.build(want)
	// The QP of build has a CQ without a channel; these are with one.
	first := b.newCQ(driver.CQConfig{Depth: 64, Channel: ch, Cookie: 1 << 40})
	second := b.newCQ(driver.CQConfig{Depth: 64, Channel: ch, Cookie: 2})
	b.closeQP()
	b.pairOn(first, second)
	b.init(want)
	a.join(want)
	b.join(want)

	recv := func(n int) {
		for id := range uint64(n) {
			b.postRecv(driver.RecvWR{ID: id})
		}
	}
	send := func(f driver.SendFlags) {
		t.Helper()
		a.postSend(driver.SendWR{ID: 1, Op: driver.OpSend, Flags: f | driver.Signaled})
		a.one(1, driver.Success)
	}
	recv(4)
	send(0)
	second.take(t, cfg, 1)
	silent(t, cfg, ch) // not armed

	second.arm(t, false)
	send(0)
	send(0)
	event(t, cfg, ch, 2)
	second.take(t, cfg, 2)
	silent(t, cfg, ch) // one event an arming

	second.arm(t, true)
	send(0)
	second.take(t, cfg, 1)
	silent(t, cfg, ch)
	recv(3)
	send(driver.Solicited)
	event(t, cfg, ch, 2)
	second.take(t, cfg, 1)

	// Both queues, each with its cookie.
	second.arm(t, false)
	send(0)
	event(t, cfg, ch, 2)
	first.arm(t, false)
	b.postSend(driver.SendWR{ID: 5, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{b.sge(0, 8)}, Remote: a.remote(0)})
	event(t, cfg, ch, 1<<40)
	first.take(t, cfg, 1)
	second.take(t, cfg, 1)

	// A completion in error wakes also who waits for solicited ones.
	second.arm(t, true)
	b.state(driver.StateErr)
	event(t, cfg, ch, 2)
	second.take(t, cfg, 1)

	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		w := begin(func() (uint64, error) { return ch.Wait(ctx) })
		time.Sleep(cfg.Quiet / 4) // mostly it sleeps by now; the result is the same if not
		cancel()
		_, err := finish(t, cfg, "Wait after cancel", w)
		wantErr(t, "Wait after cancel", err, context.Canceled)
	})
	t.Run("close", func(t *testing.T) {
		other, err := b.Context.CreateCompChannel()
		must(t, "create completion channel", err)
		w := begin(func() (uint64, error) { return other.Wait(context.Background()) })
		time.Sleep(cfg.Quiet / 4)
		check(t, "close completion channel", other.Close())
		_, err = finish(t, cfg, "Wait after Close", w)
		wantErr(t, "Wait that was on during Close", err, driver.ErrClosed)
		_, err = other.Wait(context.Background())
		wantErr(t, "Wait after Close", err, driver.ErrClosed)
	})
	t.Run("cycle", func(t *testing.T) {
		pingPong(t, cfg)
	})
}

// pairOn makes the QP with these CQs. Completions are taken from the CQs.
func (s *side) pairOn(send, recv *queue) {
	qp, err := s.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: send.CQ, RecvCQ: recv.CQ, Cap: driver.QPCap{
		SendWR: 16, RecvWR: 16, SendSGE: 1, RecvSGE: 1}})
	must(s.t, "create QP", err)
	s.qp = qp
	s.t.Cleanup(func() {
		send.poll.Lock()
		defer send.poll.Unlock()
		recv.poll.Lock()
		defer recv.poll.Unlock()
		s.closeQP()
	})
}

// pingPong has both ends arm, poll and sleep, many times: a wake-up that is lost
// ends in the deadline.
func pingPong(t *testing.T, cfg Config) {
	a, b := open(t, cfg)
	want := setup{channels: [2]driver.CompChannel{newChannel(a), newChannel(b)}}.withDefaults(cfg)
	a.build(want)
	b.build(want)
	a.join(want)
	b.join(want)
	ctx, cancel := context.WithTimeout(context.Background(), cfg.Wait+time.Duration(cfg.Rounds)*10*time.Millisecond)
	defer cancel()
	for _, s := range []*side{a, b} {
		s.postRecv(driver.RecvWR{})
	}
	wa := begin(func() (int, error) { return a.rally(ctx, want.channels[0], true) })
	wb := begin(func() (int, error) { return b.rally(ctx, want.channels[1], false) })
	for name, w := range map[string]<-chan answer[int]{"a": wa, "b": wb} {
		if r := <-w; r.err != nil {
			t.Errorf("end %s did %d of %d rounds: %v", name, r.v, cfg.Rounds, r.err)
		}
	}
}

// rally answers each message with one, Config.Rounds times. One end serves.
func (s *side) rally(ctx context.Context, ch driver.CompChannel, serves bool) (round int, err error) {
	for round := range s.cfg.Rounds {
		if serves {
			if _, err := s.trySend(driver.SendWR{Op: driver.OpSend, Flags: driver.Signaled}); err != nil {
				return round, err
			}
		}
		if err := s.sleepForRecv(ctx, ch); err != nil {
			return round, err
		}
		if _, err := s.tryRecv(driver.RecvWR{}); err != nil {
			return round, err
		}
		if !serves {
			if _, err := s.trySend(driver.SendWR{Op: driver.OpSend, Flags: driver.Signaled}); err != nil {
				return round, err
			}
		}
	}
	return s.cfg.Rounds, nil
}

// sleepForRecv arms, polls, and sleeps if there was nothing.
func (s *side) sleepForRecv(ctx context.Context, ch driver.CompChannel) error {
	for {
		s.cq.control.Lock()
		err := s.cq.CQ.Arm(false)
		s.cq.control.Unlock()
		if err != nil {
			return err
		}
		wcs, err := s.cq.pollOnce(1)
		switch {
		case err != nil:
			return err
		case len(wcs) == 0:
			if _, err := ch.Wait(ctx); err != nil {
				return err
			}
		case wcs[0].Status != driver.Success:
			return wcs[0].Status
		case wcs[0].Op.IsRecv():
			return nil
		}
	}
}

// testAsyncEvents waits for events that do not come.
func testAsyncEvents(t *testing.T, cfg Config) {
	end, other := cfg.Open(t)
	if other.Context != end.Context {
		defer func() { check(t, "close context", other.Context.Close()) }()
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		e, err := end.Context.NextEvent(ctx) // what the set-up of the device left may come first
		if err != nil {
			wantErr(t, "NextEvent after cancel", err, context.Canceled)
			break
		}
		t.Logf("event %v of port %d", e.Type, e.Port)
	}
	w := begin(func() (driver.Event, error) { return end.Context.NextEvent(context.Background()) })
	time.Sleep(cfg.Quiet / 4)
	check(t, "close context", end.Context.Close())
	_, err := finish(t, cfg, "NextEvent after Close", w)
	wantErr(t, "NextEvent that was on during Close", err, driver.ErrClosed)
	_, err = end.Context.NextEvent(context.Background())
	wantErr(t, "NextEvent after Close", err, driver.ErrClosed)
}

// testOverrun has more completions than a CQ holds. The queue says so, by Poll
// or by an event, and all can be closed.
func testOverrun(t *testing.T, cfg Config) {
	if cfg.NoOverrun {
		t.Skip("Config.NoOverrun")
	}
	a, b := open(t, cfg)
	want := setup{cap: driver.QPCap{SendWR: 512, RecvWR: 1, SendSGE: 1, RecvSGE: 1}, depth: 2048}.withDefaults(cfg)
	a.build(want)
	b.build(want)
	a.closeQP()
	small := a.newCQ(driver.CQConfig{Depth: 4, Cookie: 1234})
	recv := a.newCQ(driver.CQConfig{Depth: 4, Cookie: 1235})
	qp, err := a.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: small.CQ, RecvCQ: recv.CQ, Cap: want.cap, Cookie: 77})
	must(t, "create QP", err)
	a.qp = qp
	t.Cleanup(func() {
		small.poll.Lock()
		defer small.poll.Unlock()
		recv.poll.Lock()
		defer recv.poll.Unlock()
		a.closeQP()
	})
	a.init(want)
	b.join(want)
	a.join(want)
	for id := range uint64(small.Depth() + 8) {
		if _, err := a.trySend(driver.SendWR{ID: id, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)}); err != nil {
			break // the queue was lost before all were posted
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := begin(func() (driver.Event, error) {
		for {
			e, err := a.Context.NextEvent(ctx)
			if err != nil || e.Type == driver.EventCQErr {
				return e, err
			}
		}
	})
	byEvent, byPoll := false, false
	eventually(t, cfg, func() (bool, string) {
		select {
		case e := <-w:
			if e.err != nil || e.v.Cookie != 1234 {
				t.Fatalf("event %+v, error %v", e.v, e.err)
			}
			byEvent = true
		default:
		}
		if !byPoll {
			_, err := small.pollOnce(1)
			byPoll = errors.Is(err, driver.ErrCQOverrun)
		}
		return byEvent || byPoll, fmt.Sprintf("a CQ of %d lost nothing of %d completions", small.Depth(), small.Depth()+8)
	})
	t.Logf("told by event: %v, by Poll: %v", byEvent, byPoll)
	cancel()
	if !byEvent {
		<-w
	}
}

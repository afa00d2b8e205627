package drivertest

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// What the suites of UC and UD share. A network may lose what these types of QP
// send, sockets above all: what must arrive is sent a few times.

// tries is how often a message that must arrive is sent.
const tries = 20

// longestUnreliable is the longest UC message to try: what a receive buffer of a
// socket holds by default.
const longestUnreliable = 64 << 10

// has skips unless both ends have a type of QP, and sees that the call says what
// the probe said. not is what Config says.
func has(t *testing.T, cfg Config, typ driver.QPType, not bool, features ...driver.Feature) {
	t.Helper()
	a, b := open(t, cfg)
	if not {
		t.Skipf("Config.No%v", typ)
	}
	for _, s := range []*side{a, b} {
		for _, f := range features {
			if s.Context.Probe(f) == nil {
				continue
			}
			if f != driver.FeatureAH {
				s.lacks(t, typ)
			}
			t.Skipf("the device has no %s", f)
		}
	}
}

// lacks sees that a type of QP that is not there is not made.
func (s *side) lacks(t *testing.T, typ driver.QPType) {
	t.Helper()
	q := s.newCQ(driver.CQConfig{Depth: 4})
	qp, err := s.otherPD().CreateQP(driver.QPConfig{Type: typ, SendCQ: q.CQ, RecvCQ: q.CQ, Cap: driver.QPCap{SendWR: 1, RecvWR: 1, SendSGE: 1, RecvSGE: 1}})
	wantErr(t, typ.String()+" QP without the feature", err, driver.ErrNotSupported)
	if err == nil {
		check(t, "close QP", qp.Close())
	}
}

// arrival waits a good part of Config.Wait for one receive completion: what is only
// late would meet its copy. It is nil if none comes: the message was lost.
func (s *side) arrival() *driver.WC {
	s.t.Helper()
	for end := time.Now().Add(s.cfg.Wait / 4); ; time.Sleep(time.Millisecond) {
		wcs, err := s.cq.pollOnce(1)
		must(s.t, "poll", err)
		if len(wcs) > 0 {
			return &wcs[0]
		}
		if time.Now().After(end) {
			return nil
		}
	}
}

// untilArrives sends wr until the peer's receive id has completed.
func (s *side) untilArrives(t *testing.T, wr driver.SendWR, id uint64) driver.WC {
	t.Helper()
	for try := range tries {
		s.postSend(again(wr))
		s.one(wr.ID, driver.Success)
		wc := s.peer.arrival()
		if wc == nil {
			continue
		}
		if wc.ID != id || wc.Status != driver.Success || wc.QPN != s.peer.qp.Num() {
			t.Fatalf("receive %+v (%v), want %#x", *wc, wc.Status, id)
		}
		if try > 0 { // copies may be under way
			time.Sleep(s.cfg.Quiet)
		}
		return *wc
	}
	t.Fatalf("a message did not arrive in %d tries", tries)
	panic("unreachable")
}

// again is a copy of wr for a post, which overwrites what it is given.
func again(wr driver.SendWR) driver.SendWR {
	wr.SGL = append([]driver.SGE(nil), wr.SGL...)
	if len(wr.SGL) == 0 {
		wr.SGL = nil
	}
	wr.Flags |= driver.Signaled
	return wr
}

// refuses posts what the type of QP does not have.
func (s *side) refuses(t *testing.T, err error, wrs ...driver.SendWR) {
	t.Helper()
	for _, wr := range wrs {
		if n, got := s.trySend(again(wr)); n != 0 || !errors.Is(got, err) {
			t.Errorf("operation %d: %d posted, error %v; want %v", wr.Op, n, got, err)
		}
	}
	s.none()
}

// sendQueueFails posts a request of a that fails here, and one behind it. Devices
// go to SQE, as the IBTA says, and receive on, or to Err. good is a request that
// the peer's receive id takes.
func sendQueueFails(t *testing.T, a, b *side, bad, good func(from *side) driver.SendWR, recv func(at *side, id uint64) driver.RecvWR, allowed ...driver.Status) {
	t.Helper()
	a.postRecv(recv(a, 70))
	first, second := bad(a), again(good(a))
	first.ID, second.ID = 1, 2
	a.postSend(first, second)
	a.oneOf(1, allowed...)
	flushed := map[uint64]bool{}
	take := func() { // the two queues are flushed in any order
		wc := a.take(1)[0]
		if wc.Status != driver.WRFlushErr || wc.ID != 2 && wc.ID != 70 || flushed[wc.ID] {
			t.Fatalf("completion %+v (%v), want request 2 or receive 70, flushed", wc, wc.Status)
		}
		flushed[wc.ID] = true
	}
	take()
	switch got := a.settled(); got {
	case driver.StateErr:
		take()
	case driver.StateSQE:
		if !flushed[2] {
			t.Fatal("a receive was flushed though the QP is in SQE")
		}
		wr := again(good(a))
		wr.ID = 3
		a.postSend(wr)
		a.one(3, driver.WRFlushErr)
		wr = good(b)
		wr.ID = 4
		b.untilArrives(t, wr, 70)
		a.state(driver.StateRTS)
		b.postRecv(recv(b, 71))
		wr = good(a)
		wr.ID = 5
		a.untilArrives(t, wr, 71)
	default:
		t.Errorf("after a request that failed the QP is in %v, want SQE or ERR", got)
	}
}

// settled is the state that a QP whose request failed goes to.
func (s *side) settled() (state driver.QPState) {
	s.t.Helper()
	eventually(s.t, s.cfg, func() (bool, string) {
		s.control.Lock()
		defer s.control.Unlock()
		a, err := s.qp.Query()
		must(s.t, "query QP", err)
		state = a.State
		return state != driver.StateRTS, "QP is still in RTS"
	})
	return state
}

// wantBytes looks at n bytes of s from off on, and that what surrounds them in
// whole, which begins at byte 0, is as it was filled.
func (s *side) wantBytes(t *testing.T, off int, want []byte, whole int) {
	t.Helper()
	got := s.bytes(0, whole)
	if !bytes.Equal(got[off:off+len(want)], want) {
		t.Errorf("data differ first at byte %d of %d", firstDifference(got[off:off+len(want)], want), len(want))
	}
	for i, v := range got {
		if (i < off || i >= off+len(want)) && v != 0xee {
			t.Fatalf("byte %d changed, outside of %d to %d", i, off, off+len(want))
		}
	}
}

// allocates counts allocations of a round of post, receive and poll once things
// run. A message that is lost is sent again.
func allocates(t *testing.T, cfg Config, a, b *side, sends []driver.SendWR, recvs []driver.RecvWR) {
	t.Helper()
	var wcs [4]driver.WC
	poll := func(q driver.CQ, patience time.Duration) int {
		for start := time.Now(); ; runtime.Gosched() {
			n, err := q.Poll(wcs[:])
			if err != nil || n > 0 && wcs[0].Status != driver.Success {
				t.Fatalf("poll: %+v, %v", wcs[0], err)
			}
			if n > 0 || time.Since(start) > patience {
				return n
			}
		}
	}
	if n, err := b.qp.PostRecv(recvs); n != len(recvs) || err != nil {
		t.Fatalf("post receive: %d, %v", n, err)
	}
	got := testing.AllocsPerRun(cfg.Rounds, func() {
		for range tries {
			if n, err := a.qp.PostSend(sends); n != len(sends) || err != nil {
				t.Fatalf("post send: %d, %v", n, err)
			}
			if poll(a.cq.CQ, cfg.Wait) == 0 {
				t.Fatal("no completion")
			}
			if poll(b.cq.CQ, cfg.Wait/tries) > 0 {
				break
			}
		}
		if n, err := b.qp.PostRecv(recvs); n != len(recvs) || err != nil {
			t.Fatalf("post receive: %d, %v", n, err)
		}
	})
	if got != 0 {
		t.Errorf("posting and polling allocates %v times a round", got)
	}
}

package drivertest

import (
	"errors"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"golang.org/x/sys/unix"
)

// testRefusals posts what a queue must refuse, and sees that it did nothing else
// and works as before.
func testRefusals(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{})
	c := a.qp.Cap()
	good := func(id uint64) driver.SendWR {
		return driver.SendWR{ID: id, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)}
	}
	many := make([]driver.SGE, c.SendSGE+1)
	for i := range many {
		many[i] = a.sge(0, 1)
	}
	for _, bad := range []struct {
		name string
		wr   driver.SendWR
		err  error
	}{
		{"too many entries", driver.SendWR{Op: driver.OpWrite, SGL: many, Remote: b.remote(0)}, driver.ErrTooManySGE},
		{"too much inline", driver.SendWR{Op: driver.OpSend, Inline: make([]byte, c.Inline+1)}, driver.ErrInlineTooBig},
		{"inline and SGL", driver.SendWR{Op: driver.OpSend, Inline: []byte{1}, SGL: []driver.SGE{a.sge(0, 8)}}, unix.EINVAL},
		{"inline read", driver.SendWR{Op: driver.OpRead, Inline: []byte{1}, Remote: b.remote(0)}, unix.EINVAL},
		{"unknown operation", driver.SendWR{Op: 77, SGL: []driver.SGE{a.sge(0, 8)}}, driver.ErrBadOpcode},
		{"unknown flag", driver.SendWR{Op: driver.OpWrite, Flags: 1 << 3, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)}, unix.EINVAL},
		{"3 GiB in two entries", driver.SendWR{Op: driver.OpWrite, Remote: b.remote(0), SGL: []driver.SGE{
			{Addr: a.mem.Addr(), Length: 3 << 29, LKey: a.lkey()}, {Addr: a.mem.Addr(), Length: 3 << 29, LKey: a.lkey()},
		}}, driver.ErrTooLong},
		{"4 GiB and 8 bytes", driver.SendWR{Op: driver.OpWrite, Remote: b.remote(0), SGL: []driver.SGE{
			{Addr: a.mem.Addr(), Length: 1 << 31, LKey: a.lkey()}, {Addr: a.mem.Addr(), Length: 1 << 31, LKey: a.lkey()}, a.sge(0, 8),
		}}, driver.ErrTooLong},
	} {
		t.Run(bad.name, func(t *testing.T) {
			bad.wr.ID, bad.wr.Flags = 13, bad.wr.Flags|driver.Signaled
			n, err := a.trySend(good(1), good(2), bad.wr, good(4))
			if n != 2 || !errors.Is(err, bad.err) {
				t.Fatalf("%d requests were posted, error %v; want 2 and %v", n, err, bad.err)
			}
			a.one(1, driver.Success)
			a.one(2, driver.Success)
			a.none()
			a.postSend(good(5))
			a.one(5, driver.Success)
		})
	}

	manyRecv := make([]driver.SGE, b.qp.Cap().RecvSGE+1)
	for i := range manyRecv {
		manyRecv[i] = b.sge(0, 8)
	}
	n, err := b.tryRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(0, 8)}}, driver.RecvWR{ID: 2, SGL: manyRecv})
	if n != 1 || !errors.Is(err, driver.ErrTooManySGE) {
		t.Fatalf("%d receives were posted, error %v; want 1 and %v", n, err, driver.ErrTooManySGE)
	}
	a.postSend(driver.SendWR{ID: 6, Op: driver.OpSend, Flags: driver.Signaled})
	a.one(6, driver.Success)
	b.one(1, driver.Success)

	if n, err := a.trySend(); n != 0 || err != nil {
		t.Errorf("no request: %d, %v", n, err)
	}
	if n, err := a.tryRecv(); n != 0 || err != nil {
		t.Errorf("no receive: %d, %v", n, err)
	}
}

// testQueueFull fills the queues, drains them, and goes several times around.
// What keeps the send queue full is a peer without receives: a device may free
// slots of requests that are done.
func testQueueFull(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{depth: 256, cap: driver.QPCap{SendWR: 5, RecvWR: 7, SendSGE: 1, RecvSGE: 1}})
	for round := range 5 {
		sent := 0
		for {
			n, err := a.trySend(driver.SendWR{ID: uint64(sent), Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 4)}})
			if err != nil {
				if n != 0 || !errors.Is(err, driver.ErrQueueFull) || !errors.Is(err, unix.ENOMEM) {
					t.Fatalf("post number %d: %d, %v; want %v", sent, n, err, driver.ErrQueueFull)
				}
				break
			}
			if sent++; sent > 1<<20 {
				t.Fatal("the send queue is never full")
			}
		}
		if sent < 5 {
			t.Fatalf("the send queue took %d requests, it was asked for 5", sent)
		}
		for done := 0; done < sent; {
			posted := 0
			for posted < sent-done {
				n, err := b.tryRecv(driver.RecvWR{ID: uint64(done + posted), SGL: []driver.SGE{b.sge(0, 4)}})
				if n == 0 {
					if !errors.Is(err, driver.ErrQueueFull) || posted < 7 {
						t.Fatalf("receive number %d: %v", posted, err)
					}
					break
				}
				posted++
			}
			for range posted {
				b.one(uint64(done), driver.Success)
				a.one(uint64(done), driver.Success)
				done++
			}
		}
		a.none()
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	filled := 0
	for {
		if _, err := b.tryRecv(driver.RecvWR{ID: uint64(filled)}); err != nil {
			wantErr(t, "full receive queue", err, driver.ErrQueueFull)
			break
		}
		filled++
	}
	if filled < 7 {
		t.Errorf("the receive queue took %d, it was asked for 7", filled)
	}
}

// testStates posts in each state in which posting is allowed.
func testStates(t *testing.T, cfg Config) {
	a, b := open(t, cfg)
	want := setup{}.withDefaults(cfg)
	a.build(want)
	b.build(want)
	b.postRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(0, 8)}}) // in Init
	b.toRTR(want)
	b.postRecv(driver.RecvWR{ID: 2, SGL: []driver.SGE{b.sge(8, 8)}})
	a.join(want)
	for i, text := range []string{"in init!", "in rtr!!"} {
		copy(a.bytes(0, 8), text)
		a.postSend(driver.SendWR{ID: 9, Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}})
		a.one(9, driver.Success)
		b.one(uint64(i+1), driver.Success)
		if got := string(b.bytes(8*i, 8)); got != text {
			t.Errorf("receive %d holds %q, want %q", i+1, got, text)
		}
	}
	b.toRTS(want)
	attr, err := a.qp.Query()
	must(t, "query QP", err)
	if attr.State != driver.StateRTS || attr.DestQPN != b.qp.Num() || attr.PathMTU != a.mtu() || attr.AH.DGID != b.gid {
		t.Errorf("query says %+v", attr)
	}

	if !cfg.NoSQD {
		a.state(driver.StateSQD)
		a.postSend(driver.SendWR{ID: 10, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(64)})
		a.none()
		a.state(driver.StateRTS)
		a.one(10, driver.Success)
	}

	for _, bad := range []struct {
		name string
		a    driver.QPAttr
		mask driver.QPMask
	}{
		{"RTS to INIT", driver.QPAttr{State: driver.StateInit, Port: a.Port}, driver.QPStateMask | driver.QPPort | driver.QPPKeyIndex | driver.QPAccessFlags},
		{"RTS to RTR", driver.QPAttr{State: driver.StateRTR}, driver.QPStateMask},
		{"unknown state", driver.QPAttr{State: 42}, driver.QPStateMask},
	} {
		if a.modify(bad.a, bad.mask) == nil {
			t.Errorf("modify was accepted: %s", bad.name)
		}
	}
	a.postSend(driver.SendWR{ID: 11, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(64)})
	a.one(11, driver.Success) // a refused change changed nothing

	a.state(driver.StateErr)
	for id := range uint64(3) {
		a.postSend(driver.SendWR{ID: id, Op: driver.OpWrite, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(64)})
		a.one(id, driver.WRFlushErr)
		a.postRecv(driver.RecvWR{ID: id + 100, SGL: []driver.SGE{a.sge(0, 8)}})
		a.one(id+100, driver.WRFlushErr)
	}
}

// testFlush has both queues full of requests when the QP goes to Err: all of
// them come back, in order, also unsignaled ones.
func testFlush(t *testing.T, cfg Config) {
	a, _ := connect(t, cfg, setup{})
	const n = 8
	for id := range uint64(n) {
		a.postRecv(driver.RecvWR{ID: 100 + id, SGL: []driver.SGE{a.sge(0, 8)}})
	}
	for id := range uint64(n) { // the peer has no receive, so these stay
		var f driver.SendFlags
		if id%2 == 0 {
			f = driver.Signaled
		}
		a.postSend(driver.SendWR{ID: id, Op: driver.OpSend, Flags: f, SGL: []driver.SGE{a.sge(0, 8)}})
	}
	a.none()
	a.state(driver.StateErr)
	send, recv := uint64(0), uint64(100)
	for _, wc := range a.take(2 * n) {
		switch {
		case wc.Status != driver.WRFlushErr || wc.QPN != a.qp.Num():
			t.Errorf("flushed: %+v", wc)
		case wc.ID == send:
			send++
		case wc.ID == recv:
			recv++
		default:
			t.Errorf("flushed %d out of order, next are %d and %d", wc.ID, send, recv)
		}
	}
	a.none()
	a.state(driver.StateErr) // again is allowed and adds nothing
	a.none()
}

// testRemovesEntries closes and resets a QP whose completions lie in a CQ that
// another QP uses too.
func testRemovesEntries(t *testing.T, cfg Config) {
	for _, how := range []string{"close", "reset"} {
		t.Run(how, func(t *testing.T) {
			a, b := connect(t, cfg, setup{depth: 64})
			// A second pair of QPs on the same CQs.
			a2, b2 := a.twin(), b.twin()
			a2.peer, b2.peer = b2, a2
			want := setup{}.withDefaults(cfg)
			a2.init(want)
			b2.init(want)
			a2.join(want)
			b2.join(want)
			for id := range uint64(3) {
				for _, s := range []*side{a, a2} {
					s.postSend(driver.SendWR{ID: id, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: s.peer.remote(0)})
				}
			}
			// The last of each has completed when an operation after it has.
			a2.postSend(driver.SendWR{ID: 3, Op: driver.OpRead, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b2.remote(0)})
			b.postRecv(driver.RecvWR{ID: 7})
			a.postSend(driver.SendWR{ID: 4, Op: driver.OpSendWithImm})
			b.one(7, driver.Success)
			if how == "close" {
				a.closeQP()
			} else {
				a.state(driver.StateReset)
			}
			for i, wc := range a2.take(4) {
				if wc.QPN != a2.qp.Num() || wc.ID != uint64(i) || wc.Status != driver.Success {
					t.Errorf("completion %d is %+v, want one of QP %#x", i, wc, a2.qp.Num())
				}
			}
			a2.none()
			a2.closeQP()
			b2.closeQP()
		})
	}
}

// twin is another QP with the same PD, CQ and memory.
func (s *side) twin() *side { return s.twinOn(nil) }

// twinOn is a twin that takes its receives from an SRQ, if there is one.
func (s *side) twinOn(srq driver.SRQ) *side {
	c := &side{t: s.t, cfg: s.cfg, End: s.End, attr: s.attr, port: s.port, gid: s.gid, pd: s.pd, cq: s.cq, mem: s.mem, mr: s.mr}
	var err error
	sizes := driver.QPCap{SendWR: 16, RecvWR: 16, SendSGE: 1, RecvSGE: 1, Inline: 16}
	if srq != nil {
		sizes.RecvWR, sizes.RecvSGE = 0, 0
	}
	c.qp, err = s.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: s.cq.CQ, RecvCQ: s.cq.CQ, SRQ: srq, Cap: sizes, Cookie: 78})
	must(s.t, "create QP", err)
	s.t.Cleanup(func() { c.closeQP() })
	return c
}

// testReconnect takes a QP through Reset and uses it again.
func testReconnect(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{})
	for round := range uint32(3) {
		// New numbers, as packets of before may be under way.
		want := setup{psn: 0x1234 + round<<16}.withDefaults(cfg)
		for id := range uint64(4) {
			a.postRecv(driver.RecvWR{ID: id}) // never used
			a.postSend(driver.SendWR{ID: id, Op: driver.OpSend})
		}
		for _, s := range []*side{a, b} {
			s.state(driver.StateErr)
			s.state(driver.StateReset)
		}
		a.none()
		for _, s := range []*side{a, b} {
			s.init(want)
		}
		for _, s := range []*side{a, b} {
			s.join(want)
		}
		copy(a.bytes(0, 8), "anew....")
		b.postRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(0, 8)}})
		a.postSend(driver.SendWR{ID: 2, Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}})
		a.one(2, driver.Success)
		b.one(1, driver.Success)
		if string(b.bytes(0, 8)) != "anew...." {
			t.Errorf("after a reset came %q", b.bytes(0, 8))
		}
	}
}

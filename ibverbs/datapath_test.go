package ibverbs_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
)

// Posting and polling allocate nothing, for slices, literals and arrays on the
// stack.
func TestDataPathAllocatesNothing(t *testing.T) {
	e := connect(t)
	a, b := e.qps[0], e.qps[1]
	wr := e.write(1, 64)
	list := []ibverbs.SendWR{wr, wr, wr}
	var data [32]byte
	drain := func(cq *ibverbs.CQ, want int) {
		var wcs [4]ibverbs.WC
		if n, err := cq.Poll(wcs[:]); n != want || err != nil || wcs[0].Status != ibverbs.Success {
			t.Fatalf("poll: %d of %d, %v, %+v", n, want, err, wcs[0])
		}
	}
	post := func(n int, err error) {
		if err != nil {
			t.Fatalf("%d posted, %v", n, err)
		}
	}
	for name, f := range map[string]func(){
		"value": func() { post(a.PostSend(wr)); drain(e.cqs[0], 1) },
		"slice": func() { post(a.PostSend(list...)); drain(e.cqs[0], 3) },
		"literal": func() {
			post(a.PostSend(ibverbs.SendWR{ID: 1, Op: ibverbs.OpWrite, Flags: ibverbs.Signaled,
				SGL: []ibverbs.SGE{e.mem.SGE(0, 8), e.mem.SGE(64, 8)}, Remote: e.mem.Remote(1024)}))
			drain(e.cqs[0], 1)
		},
		"array": func() {
			var wrs [2]ibverbs.SendWR
			for i := range wrs {
				wrs[i] = ibverbs.SendWR{Op: ibverbs.OpWrite, Flags: ibverbs.Signaled, Inline: data[:], Remote: e.mem.Remote(2048)}
			}
			post(a.PostSend(wrs[:]...))
			drain(e.cqs[0], 2)
		},
		"receive": func() {
			post(b.PostRecv(ibverbs.RecvWR{ID: 2, SGL: []ibverbs.SGE{e.mem.SGE(4096, 64)}}))
			local := [16]byte{1, 2, 3}
			post(a.PostSend(ibverbs.SendWR{Op: ibverbs.OpSend, Flags: ibverbs.Signaled, Inline: local[:]}))
			drain(e.cqs[0], 1)
			drain(e.cqs[1], 1)
		},
		"atomic": func() {
			post(a.PostSend(ibverbs.SendWR{Op: ibverbs.OpFetchAdd, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{e.mem.SGE(0, 8)},
				Remote: e.mem.Remote(8192), CompareAdd: 1}))
			drain(e.cqs[0], 1)
		},
		"nothing there": func() {
			var wcs [16]ibverbs.WC
			if n, err := e.cqs[0].Poll(wcs[:]); n != 0 || err != nil {
				t.Fatal(n, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if n := testing.AllocsPerRun(200, f); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
	t.Run("queue full", func(t *testing.T) {
		for range a.Cap().SendWR {
			post(a.PostSend(wr))
		}
		if n := testing.AllocsPerRun(200, func() {
			if _, err := a.PostSend(wr); !errors.Is(err, ibverbs.ErrQueueFull) {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// Before it may take requests a QP refuses them, and names its state.
func TestPostInEachState(t *testing.T) {
	e := connect(t)
	q := newQP(t, e.pd, e.cqs[0], e.cqs[0])
	peer := newQP(t, e.pd, e.cqs[1], e.cqs[1])
	toInit(t, peer)
	toRTS(t, e.dev, peer, q.Num())
	for _, c := range []struct {
		state      ibverbs.QPState
		enter      func()
		send, recv bool
	}{
		{ibverbs.StateReset, func() {}, false, false},
		{ibverbs.StateInit, func() { toInit(t, q) }, false, true},
		{ibverbs.StateRTS, func() { toRTS(t, e.dev, q, peer.Num()) }, true, true},
		{ibverbs.StateErr, func() { try(t, q.Modify(&ibverbs.QPAttr{State: ibverbs.StateErr}, ibverbs.QPStateMask)) }, true, true},
		{ibverbs.StateReset, func() { try(t, q.Modify(&ibverbs.QPAttr{State: ibverbs.StateReset}, ibverbs.QPStateMask)) }, false, false},
	} {
		c.enter()
		if got := q.State(); got != c.state {
			t.Fatalf("QP is in %v, want %v", got, c.state)
		}
		_, sendErr := q.PostSend(e.write(1, 8))
		_, recvErr := q.PostRecv(ibverbs.RecvWR{})
		for name, r := range map[string]struct {
			ok  bool
			err error
		}{"send": {c.send, sendErr}, "receive": {c.recv, recvErr}} {
			if r.ok != (r.err == nil) {
				t.Errorf("%s in %v: %v", name, c.state, r.err)
			}
			if !r.ok && (!errors.Is(r.err, ibverbs.ErrBadState) || !errors.Is(r.err, syscall.EINVAL) || !strings.Contains(r.err.Error(), c.state.String())) {
				t.Errorf("%s in %v: %v, want %v and the state", name, c.state, r.err, ibverbs.ErrBadState)
			}
		}
	}
}

// An error of a post and of a completion name the device, the QP and the peer.
func TestErrorsName(t *testing.T) {
	e := connect(t)
	a := e.qps[0]
	bad := e.write(7, 8)
	bad.Remote.RKey ^= 0x7f00
	get(a.PostSend(bad))(t)
	wc := one(t, e.cqs[0])
	err := e.cqs[0].Err(&wc)
	var detail *ibverbs.Error
	var completion *ibverbs.CompletionError
	if !errors.As(err, &detail) || !errors.As(err, &completion) || !errors.Is(err, ibverbs.RemAccessErr) {
		t.Fatalf("error %v (%T)", err, err)
	}
	if detail.Device != "mem0" || detail.Peer != a.Peer() || detail.Peer == "" || completion.ID != 7 || completion.QPN != a.Num() {
		t.Errorf("error %+v, completion %+v", detail, completion)
	}
	if attr := get(a.Query())(t); attr.State != ibverbs.StateErr || a.State() != ibverbs.StateErr {
		t.Errorf("after a failed completion the device has the QP in %v and State says %v", attr.State, a.State())
	}
	try(t, a.Close())
	if err := e.cqs[0].Err(&wc); !errors.As(err, &detail) || detail.Peer != "" {
		t.Errorf("after its QP is closed: %v, want no peer, as the number may be another's", err)
	}
	if ok := (ibverbs.WC{}); e.cqs[0].Err(&ok) != nil {
		t.Error("a completion that succeeded is an error")
	}

	_, err = e.qps[1].PostSend(ibverbs.SendWR{Op: ibverbs.OpSend, Inline: make([]byte, 4096)})
	if !errors.As(err, &detail) || !errors.Is(err, ibverbs.ErrInlineTooBig) || detail.Peer != e.qps[1].Peer() {
		t.Errorf("post of too much inline: %v", err)
	}
	if want := fmt.Sprintf("it takes %d bytes", e.qps[1].Cap().Inline); detail != nil && !strings.Contains(detail.Hint, want) {
		t.Errorf("the hint is %q, want %q in it", detail.Hint, want)
	}
}

// What an MR gives out stays within it.
func TestMRRanges(t *testing.T) {
	e := connect(t)
	size := e.buf.Len()
	if s := e.mem.SGE(size, 0); s.Length != 0 {
		t.Errorf("SGE at the end: %+v", s)
	}
	if s := e.mem.SGE(16, size-16); s.Addr != e.mem.Addr()+16 || int(s.Length) != size-16 || s.LKey != e.mem.LKey() {
		t.Errorf("SGE of the rest: %+v", s)
	}
	for _, c := range [][2]int{{-1, 1}, {0, -1}, {0, size + 1}, {size, 1}, {size + 1, 0}, {1 << 62, 1 << 62}} {
		if !panics(func() { e.mem.SGE(c[0], c[1]) }) {
			t.Errorf("SGE(%d, %d) of %d bytes", c[0], c[1], size)
		}
	}
	for _, off := range []int{-1, size + 1} {
		if !panics(func() { e.mem.Remote(off) }) {
			t.Errorf("Remote(%d) of %d bytes", off, size)
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// A CQ that is too small says so, for good, to all that use it; what it still
// holds can be polled.
func TestOverrun(t *testing.T) {
	e := connect(t)
	sub := e.dev.Subscribe()
	defer sub.Close()
	small := get(e.dev.CreateCQ(2, ibverbs.WithEvents()))(t)
	a, b := newQP(t, e.pd, small, small), newQP(t, e.pd, e.cqs[1], e.cqs[1])
	join(t, e.dev, a, b)
	for id := range uint64(4) {
		if _, err := a.PostSend(e.write(id, 8)); err != nil {
			t.Logf("post %d: %v", id, err) // the device may have failed the QP already
		}
	}
	ev := get(sub.Next(deadline(t)))(t)
	if ev.Type != ibverbs.EventCQErr || ev.Object != small || ev.Count != 1 {
		t.Errorf("event %+v, want one of CQ %p", ev, small)
	}
	var err error
	for got := 0; err == nil; got++ {
		var wcs [1]ibverbs.WC
		if _, err = small.Poll(wcs[:]); got > 4 {
			t.Fatal("polled more than fits")
		}
	}
	if !errors.Is(err, ibverbs.ErrCQOverrun) {
		t.Errorf("Poll: %v", err)
	}
	// A QP that was posting when the CQ failed is told in the background: until then posts pass, and may complete.
	for ctx := deadline(t); ; runtime.Gosched() {
		if _, err = a.PostSend(e.write(9, 8)); errors.Is(err, ibverbs.ErrCQOverrun) {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("PostSend: %v", err)
		}
	}
	for range 2 {
		for err = nil; err == nil; {
			_, err = small.Wait(deadline(t), make([]ibverbs.WC, 1))
		}
		if !errors.Is(err, ibverbs.ErrCQOverrun) {
			t.Errorf("Wait: %v", err)
		}
		if _, err := a.PostSend(e.write(9, 8)); !errors.Is(err, ibverbs.ErrCQOverrun) {
			t.Errorf("PostSend: %v", err)
		}
		if _, err := a.PostRecv(ibverbs.RecvWR{}); !errors.Is(err, ibverbs.ErrCQOverrun) {
			t.Errorf("PostRecv: %v", err)
		}
	}
	if a.State() != ibverbs.StateErr {
		t.Errorf("QP is in %v", a.State())
	}
	if _, err := e.pd.CreateQP(ibverbs.QPConfig{SendCQ: e.cqs[0], RecvCQ: small}); !errors.Is(err, ibverbs.ErrCQOverrun) {
		t.Errorf("CreateQP on the lost queue: %v", err)
	}
	try(t, a.Close())
	try(t, small.Close())
	if _, err := small.Poll(nil); !errors.Is(err, ibverbs.ErrClosed) {
		t.Errorf("Poll after Close: %v", err)
	}
	// The others are not concerned.
	get(e.qps[0].PostSend(e.write(1, 8)))(t)
	if wc := one(t, e.cqs[0]); wc.Status != ibverbs.Success {
		t.Errorf("write on another QP: %v", wc.Status)
	}
}

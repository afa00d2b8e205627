package ibverbs_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/mr"
)

// softEnds is two connected QPs of one device of softroce, the second with an SRQ.
type softEnds struct {
	dev *ibverbs.Context
	pd  *ibverbs.PD
	cq  *ibverbs.CQ
	srq *ibverbs.SRQ
	qps [2]*ibverbs.QP
	buf *mr.Buffer
	mem *ibverbs.MR
}

func connectSoft(t testing.TB) *softEnds {
	t.Helper()
	drv := softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Network: softroce.OnSim(softroce.NewSim(softroce.SimConfig{MTU: 9000}))})
	e := &softEnds{dev: get(ibverbs.Open("soft0", ibverbs.WithDrivers(drv)))(t)}
	t.Cleanup(func() { try(t, e.dev.Close()) })
	e.pd, e.buf = get(e.dev.AllocPD())(t), get(mr.Alloc(64<<10))(t)
	t.Cleanup(func() { try(t, e.buf.Close()) })
	e.mem = get(e.pd.RegMR(e.buf, ibverbs.LocalWrite|ibverbs.MWBind))(t)
	e.cq = get(e.dev.CreateCQ(64, ibverbs.WithEvents()))(t)
	e.srq = get(e.pd.CreateSRQ(ibverbs.SRQConfig{WR: 8, SGE: 1}))(t)
	e.qps[0] = newQP(t, e.pd, e.cq, e.cq)
	e.qps[1] = e.sharing(t)
	join(t, e.dev, e.qps[0], e.qps[1])
	return e
}

func (e *softEnds) sharing(t testing.TB) *ibverbs.QP {
	t.Helper()
	return get(e.pd.CreateQP(ibverbs.QPConfig{SendCQ: e.cq, RecvCQ: e.cq, SRQ: e.srq, Cap: ibverbs.QPCap{SendWR: 16, RecvWR: 99, SendSGE: 2, RecvSGE: 99}}))(t)
}

// event waits for the next of a type.
func event(t testing.TB, sub *ibverbs.Subscription, want ibverbs.EventType) ibverbs.Event {
	t.Helper()
	for {
		if ev := get(sub.Next(deadline(t)))(t); ev.Type == want {
			return ev
		}
	}
}

func TestSRQ(t *testing.T) {
	e := connectSoft(t)
	sub := e.dev.Subscribe()
	defer sub.Close()
	a, b := e.qps[0], e.qps[1]
	if b.SRQ() != e.srq || a.SRQ() != nil || b.Cap().RecvWR != 0 {
		t.Errorf("QPs take from %v and %v, sizes %+v", a.SRQ(), b.SRQ(), b.Cap())
	}

	_, err := b.PostRecv(ibverbs.RecvWR{ID: 1})
	if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "post to the SRQ #") {
		t.Errorf("post to the QP: %v", err)
	}

	try(t, e.srq.SetLimit(0))
	get(e.srq.PostRecv(ibverbs.RecvWR{ID: 7, SGL: []ibverbs.SGE{e.mem.SGE(0, 64)}}, ibverbs.RecvWR{ID: 8, SGL: []ibverbs.SGE{e.mem.SGE(64, 64)}}))(t)
	try(t, e.srq.SetLimit(2))
	if at := get(e.srq.Query())(t); at.Limit != 2 || at.WR != 8 || at.SGE != 1 {
		t.Errorf("query says %+v", at)
	}
	get(a.PostSend(ibverbs.SendWR{Op: ibverbs.OpSend, Inline: []byte("shared")}))(t)
	if wc := one(t, e.cq); wc.ID != 7 || wc.QPN != b.Num() || wc.Status != ibverbs.Success || string(e.buf.Bytes()[:6]) != "shared" {
		t.Errorf("%+v, %q", wc, e.buf.Bytes()[:6])
	}
	if ev := event(t, sub, ibverbs.EventSRQLimitReached); ev.Object != e.srq || ev.Count != 1 {
		t.Errorf("event %+v, want one of the SRQ", ev)
	}

	try(t, b.Modify(&ibverbs.QPAttr{State: ibverbs.StateErr}, ibverbs.QPStateMask))
	if ev := event(t, sub, ibverbs.EventQPLastWQEReached); ev.Object != b || ev.Count != 1 {
		t.Errorf("event %+v, want one of the QP", ev)
	}

	try(t, e.srq.Resize(32))
	if c := e.srq.Cap(); c.WR != 32 {
		t.Errorf("sizes %+v after a resize to 32", c)
	}
	for n := 1; ; n++ { // one is there
		if _, err := e.srq.PostRecv(ibverbs.RecvWR{}); err != nil {
			if n != 32 || !errors.Is(err, ibverbs.ErrQueueFull) || !strings.Contains(err.Error(), "SRQ #") {
				t.Errorf("receive %d: %v", n+1, err)
			}
			break
		}
	}
	for name, err := range map[string]error{"limit": e.srq.SetLimit(33), "size": e.srq.Resize(31)} {
		if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "SRQ #") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := e.pd.CreateSRQ(ibverbs.SRQConfig{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("SRQ of nothing: %v", err)
	}
	other := connectSoft(t)
	if _, err := e.pd.CreateQP(ibverbs.QPConfig{SendCQ: e.cq, RecvCQ: e.cq, SRQ: other.srq}); err == nil {
		t.Error("a QP took another device's SRQ")
	}
}

func TestSRQCloses(t *testing.T) {
	e := connectSoft(t)
	second := e.sharing(t)
	get(e.srq.PostRecv(ibverbs.RecvWR{}))(t)
	for _, q := range []*ibverbs.QP{e.qps[1], second} {
		before := e.dev.Objects()
		err := e.srq.Close()
		if !errors.Is(err, ibverbs.ErrBusy) || !strings.Contains(err.Error(), "QP 0x") {
			t.Fatalf("close of an SRQ in use: %v", err)
		}
		if after := e.dev.Objects(); !slices.Equal(before, after) {
			t.Errorf("objects were %v, are %v", before, after)
		}
		get(e.srq.PostRecv(ibverbs.RecvWR{}))(t)
		try(t, q.Close())
	}
	if err := e.pd.Close(); !errors.Is(err, ibverbs.ErrBusy) || !strings.Contains(err.Error(), "SRQ #") {
		t.Errorf("close of the PD: %v", err)
	}
	try(t, e.srq.Close())
	try(t, e.srq.Close())
	for name, call := range map[string]func() error{
		"PostRecv": func() error { _, err := e.srq.PostRecv(ibverbs.RecvWR{}); return err },
		"Query":    func() error { _, err := e.srq.Query(); return err },
		"SetLimit": func() error { return e.srq.SetLimit(1) },
		"Resize":   func() error { return e.srq.Resize(64) },
		"CreateQP": func() error {
			_, err := e.pd.CreateQP(ibverbs.QPConfig{SendCQ: e.cq, RecvCQ: e.cq, SRQ: e.srq})
			return err
		},
	} {
		if err := call(); !errors.Is(err, ibverbs.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	e.srq.Cap()
}

func TestSRQAllocatesNothing(t *testing.T) {
	e := connectSoft(t)
	for range 8 {
		get(e.srq.PostRecv(ibverbs.RecvWR{}))(t)
	}
	if n := testing.AllocsPerRun(100, func() {
		_, err := e.srq.PostRecv(ibverbs.RecvWR{ID: 1, SGL: []ibverbs.SGE{e.mem.SGE(0, 8)}})
		if !errors.Is(err, ibverbs.ErrQueueFull) {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a post to a full SRQ allocates %v times", n)
	}
	e = connectSoft(t)
	try(t, e.srq.Resize(512))
	if n := testing.AllocsPerRun(300, func() {
		if _, err := e.srq.PostRecv(ibverbs.RecvWR{ID: 1, SGL: []ibverbs.SGE{e.mem.SGE(0, 8)}}); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 { // blocks of the ring are made on first use
		t.Errorf("a post to an SRQ allocates %v times", n)
	}
}

// A window's way from bind to close, and what stands in the way of its MR.
func TestMW(t *testing.T) {
	e := connectSoft(t)
	a, b := e.qps[0], e.qps[1]
	w := get(e.pd.AllocMW())(t)
	first := w.RKey()
	for _, inv := range []ibverbs.SendWR{
		{Op: ibverbs.OpLocalInv, Flags: ibverbs.Signaled}, {Op: ibverbs.OpSendWithInv},
	} {
		bind := w.Bind(e.mem, 4096, 100, ibverbs.RemoteWrite)
		if bind.RKey == first || bind.RKey>>8 != first>>8 || w.RKey() != bind.RKey {
			t.Errorf("key %#x after %#x, RKey %#x", bind.RKey, first, w.RKey())
		}
		first = bind.RKey
		get(a.PostSend(ibverbs.SendWR{Op: ibverbs.OpBindMW, Flags: ibverbs.Signaled, Bind: &bind}))(t)
		if wc := one(t, e.cq); wc.Op != ibverbs.WCBindMW || wc.Status != ibverbs.Success {
			t.Fatalf("bind: %+v", wc)
		}
		before := e.dev.Objects()
		if err := e.mem.Close(); !errors.Is(err, ibverbs.ErrBusy) || !slices.Equal(before, e.dev.Objects()) {
			t.Errorf("close of an MR with a window: %v", err)
		}
		to := bind.Remote()
		to.Addr += 90
		get(b.PostSend(ibverbs.SendWR{Op: ibverbs.OpWrite, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{e.mem.SGE(0, 10)}, Remote: to}))(t)
		if wc := one(t, e.cq); wc.Status != ibverbs.Success {
			t.Fatalf("write through the window: %v", wc.Status)
		}
		inv.Imm = w.RKey()
		by := a
		if inv.Op == ibverbs.OpSendWithInv {
			by = b
			get(a.PostRecv(ibverbs.RecvWR{}))(t)
		}
		get(by.PostSend(inv))(t)
		if wc := one(t, e.cq); wc.Status != ibverbs.Success || inv.Op == ibverbs.OpSendWithInv && (wc.Flags&ibverbs.WCWithInv == 0 || wc.Imm != bind.RKey) {
			t.Fatalf("%v: %+v", inv.Op, wc)
		}
	}
	if err := e.pd.Close(); !errors.Is(err, ibverbs.ErrBusy) || !strings.Contains(err.Error(), "MW #") {
		t.Errorf("close of the PD: %v", err)
	}
	// A bound one, which closes before its MR, and one that Context.Close finds bound.
	for range 2 {
		bound := get(e.pd.AllocMW())(t)
		bind := bound.Bind(e.mem, 0, 8, ibverbs.RemoteRead)
		get(a.PostSend(ibverbs.SendWR{Op: ibverbs.OpBindMW, Flags: ibverbs.Signaled, Bind: &bind}))(t)
		one(t, e.cq)
		try(t, w.Close())
		try(t, w.Close())
		w = bound
	}
	if _, err := b.PostSend(ibverbs.SendWR{Op: ibverbs.OpBindMW, Bind: &ibverbs.BindMW{}}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("bind of nothing: %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a range outside the MR was taken")
			}
		}()
		w.Bind(e.mem, 64<<10-7, 8, ibverbs.RemoteRead)
	}()
}

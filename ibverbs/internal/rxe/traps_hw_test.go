//go:build hw && linux

package rxe

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"golang.org/x/sys/unix"
)

// local is two ends on one device, which is all that most traps need.
func local(t *testing.T, s shape) (a, b *end) {
	t.Helper()
	at, there := pair(t, random(t), false)
	return open(t, at, s), open(t, there, s)
}

// hinted says whether err matches want and its hint has all words.
func hinted(t *testing.T, err, want error, words ...string) {
	t.Helper()
	var e *driver.Error
	if !errors.Is(err, want) || !errors.As(err, &e) {
		t.Errorf("error %v, want a hinted %v", err, want)
		return
	}
	for _, w := range words {
		if !strings.Contains(e.Hint, w) {
			t.Errorf("hint %q does not say %q", e.Hint, w)
		}
	}
}

// The kernel takes a path MTU that the port does not have, and then nothing
// arrives and nothing fails.
func TestHWPathMTUAbovePort(t *testing.T) {
	a, b := local(t, shape{})
	if a.at.mtu == driver.MTU4096 {
		t.Skipf("the port has the largest MTU already: %v", a.at)
	}
	must(t, a.qp.toInit())
	attr, mask := a.rtr(b)
	attr.PathMTU = a.at.mtu + 1
	hinted(t, a.qp.Modify(attr, mask), errPathMTU, attr.PathMTU.String(), a.at.mtu.String())
	if got := get(a.qp.Query())(t).State; got != driver.StateInit {
		t.Errorf("state after the refusal is %v", got)
	}
	must(t, a.qp.Modify(a.rtr(b)))
}

// The doorbell is refused before RTS, but the entry would stay in the ring and
// run later.
func TestHWRefusedSendLeavesNothing(t *testing.T) {
	a, b := local(t, shape{})
	wr := []driver.SendWR{{ID: 1, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)}}
	a.mem.Bytes()[0] = 1
	refused := func() {
		t.Helper()
		if n, err := a.qp.PostSend(wr); n != 0 || err != driver.ErrBadState {
			t.Errorf("posted %d, %v", n, err)
		}
	}
	refused()
	if n, err := a.qp.PostRecv([]driver.RecvWR{{}}); n != 0 || err != driver.ErrBadState {
		t.Errorf("receive in RESET: posted %d, %v", n, err)
	}
	must(t, a.qp.toInit())
	refused()
	must(t, a.qp.Modify(a.rtr(b)))
	refused()
	must(t, a.qp.toRTS())
	b.to(driver.StateRTS, a)
	wr[0].ID = 2
	a.mem.Bytes()[0] = 2
	a.send(wr...)
	if wc := a.one(driver.Success); wc.ID != 2 {
		t.Errorf("request %d ran, want 2", wc.ID)
	}
	a.none()
}

// brokenBell fails a number of times without reaching the kernel.
type brokenBell struct {
	bell
	fail int
}

func (b *brokenBell) Ring() error {
	if b.fail > 0 {
		b.fail--
		return syscall.ENOMEM
	}
	return b.bell.Ring()
}

// A doorbell that fails moves the QP to ERR: what was posted is flushed, and not
// run by the next doorbell.
func TestHWDoorbellFails(t *testing.T) {
	a, b := local(t, shape{})
	a.to(driver.StateRTS, b)
	b.to(driver.StateRTS, a)
	a.qp.bell = &brokenBell{bell: a.qp.bell, fail: 1}
	wrs := []driver.SendWR{
		{ID: 1, Op: driver.OpWrite, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)},
		{ID: 2, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)},
	}
	a.mem.Bytes()[0] = 1
	n, err := a.qp.PostSend(wrs)
	hinted(t, err, syscall.ENOMEM, "ERR")
	if n != 2 {
		t.Errorf("posted %d, want 2", n)
	}
	for i, wc := range a.wait(2) {
		if wc.Status != driver.WRFlushErr || wc.ID != uint64(i+1) {
			t.Errorf("completion %+v", wc)
		}
	}
	// In ERR requests are accepted and flushed.
	a.send(driver.SendWR{ID: 3, Op: driver.OpWrite, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)})
	if wc := a.one(driver.WRFlushErr); wc.ID != 3 {
		t.Errorf("completion %+v", wc)
	}
	if b.mem.Bytes()[0] != 0 {
		t.Error("a flushed request ran")
	}
}

// The kernel does not flush receives that are posted in ERR.
func TestHWRecvInErr(t *testing.T) {
	for _, how := range []string{"by Modify", "by a failed request", "seen by Query"} {
		t.Run(how, func(t *testing.T) {
			a, b := local(t, shape{})
			a.to(driver.StateRTS, b)
			b.to(driver.StateRTS, a)
			switch how {
			case "by Modify":
				must(t, a.qp.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
			case "by a failed request":
				bad := b.remote(0)
				bad.RKey ^= 0x5a00
				a.send(driver.SendWR{ID: 1, Op: driver.OpWrite, SGL: []driver.SGE{a.sge(0, 8)}, Remote: bad})
				a.one(driver.RemAccessErr)
			case "seen by Query":
				// The kernel moves it to ERR behind the driver's back, and is done
				// when it has flushed what there was.
				a.recv(driver.RecvWR{ID: 6})
				must(t, a.qp.flush())
				a.filled(1)
				a.cq.q.drop(a.qp.Num())
				a.recv(driver.RecvWR{ID: 7})
				a.none()
				if got := get(a.qp.Query())(t).State; got != driver.StateErr {
					t.Errorf("state %v", got)
				}
				if wc := a.one(driver.WRFlushErr); wc.ID != 7 {
					t.Errorf("completion %+v", wc)
				}
			}
			for id := range uint64(3) {
				a.recv(driver.RecvWR{ID: id, SGL: []driver.SGE{a.sge(0, 8)}})
				if wc := a.one(driver.WRFlushErr); wc.ID != id {
					t.Errorf("completion %+v, want %d", wc, id)
				}
			}
		})
	}
}

// Receives that are posted between the failure of a QP and the poll that tells
// of it are flushed too.
func TestHWRecvBeforeErrIsKnown(t *testing.T) {
	a, b := local(t, shape{})
	a.to(driver.StateRTS, b)
	b.to(driver.StateRTS, a)
	bad := b.remote(0)
	bad.RKey ^= 0x5a00
	a.send(driver.SendWR{ID: 1, Op: driver.OpWrite, SGL: []driver.SGE{a.sge(0, 8)}, Remote: bad})
	a.filled(1)
	a.recv(driver.RecvWR{ID: 2})
	wcs := a.wait(2)
	if wcs[0].ID != 1 || wcs[0].Status != driver.RemAccessErr || wcs[1].ID != 2 || wcs[1].Status != driver.WRFlushErr {
		t.Errorf("completions %+v", wcs)
	}
}

// A CQ that is too small loses completions while its QPs go on. The event, the
// driver's word, and ERR are what the caller has.
func TestHWOverrun(t *testing.T) {
	a, b := local(t, shape{depth: 32, cq: 4})
	a.to(driver.StateRTS, b)
	b.to(driver.StateRTS, a)
	room := a.cq.Depth()
	wrs := make([]driver.SendWR, room+3)
	for i := range wrs {
		wrs[i] = driver.SendWR{ID: uint64(i), Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 1)}, Remote: b.remote(0)}
	}
	a.send(wrs...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		e := get(a.dev.NextEvent(ctx))(t)
		if e.Type == driver.EventCQErr {
			if e.Cookie != 77 {
				t.Errorf("event %+v, want cookie 77", e)
			}
			break
		}
	}
	if got := get(a.qp.Query())(t).State; got != driver.StateRTS {
		t.Logf("this kernel moved the QP to %v itself", got)
	}
	for i, wc := range a.wait(room) { // none of those that fitted is lost
		if wc.ID != uint64(i) || wc.Status != driver.Success {
			t.Errorf("completion %+v", wc)
		}
	}
	for range 2 {
		if n, err := a.cq.Poll(make([]driver.WC, 1)); n != 0 || err != driver.ErrCQOverrun {
			t.Errorf("poll gave %d, %v", n, err)
		}
	}
	must(t, a.qp.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
	if b.cq.overrun.Load() {
		t.Error("the other CQ is marked too")
	}
}

// Completions that are in the CQ when it is armed give no event; the next one
// does, once.
func TestHWEvents(t *testing.T) {
	a, b := local(t, shape{events: true})
	a.to(driver.StateRTS, b)
	b.to(driver.StateRTS, a)
	write := driver.SendWR{ID: 1, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)}
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	late := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		t.Cleanup(cancel)
		return ctx
	}
	quiet := func(why string) {
		t.Helper()
		if cookie, err := a.ch.Wait(soon()); err != context.DeadlineExceeded {
			t.Errorf("%s: event %d, %v", why, cookie, err)
		}
	}
	event := func(why string) {
		t.Helper()
		if cookie, err := a.ch.Wait(late()); cookie != 77 || err != nil {
			t.Errorf("%s: event %d, %v", why, cookie, err)
		}
	}
	a.send(write)
	a.filled(1)
	quiet("not armed")
	must(t, a.cq.Arm(false))
	quiet("armed with a completion there")
	a.one(driver.Success)
	a.send(write)
	event("the next completion")
	a.one(driver.Success)
	a.send(write)
	quiet("one event for each arming")
	a.one(driver.Success)

	// Solicited only: an ordinary receive is not worth an event.
	must(t, a.cq.Arm(true))
	a.recv(driver.RecvWR{}, driver.RecvWR{})
	b.send(driver.SendWR{Op: driver.OpSend})
	a.one(driver.Success)
	quiet("not solicited")
	b.send(driver.SendWR{Op: driver.OpSend, Flags: driver.Solicited})
	event("solicited")
	a.one(driver.Success)

	// A wait that was cancelled leaves the channel usable; Close ends one.
	ctx, cancel := context.WithCancel(t.Context())
	go func() { time.Sleep(20 * time.Millisecond); cancel() }()
	if _, err := a.ch.Wait(ctx); err != context.Canceled {
		t.Errorf("cancelled wait: %v", err)
	}
	must(t, a.cq.Arm(false))
	woken := make(chan error)
	go func() { _, err := a.ch.Wait(late()); woken <- err }()
	a.send(write)
	must(t, <-woken)
	a.one(driver.Success)
}

// The wait for an asynchronous event ends with its context and with Close.
func TestHWAsyncEventsEnd(t *testing.T) {
	at, _ := pair(t, random(t), false)
	dev := get(at.dev.Open())(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if e, err := dev.NextEvent(ctx); err != context.DeadlineExceeded {
		t.Errorf("event %+v, %v", e, err)
	}
	woken := make(chan error)
	go func() { _, err := dev.NextEvent(t.Context()); woken <- err }()
	time.Sleep(20 * time.Millisecond)
	must(t, dev.Close())
	if err := <-woken; err != driver.ErrClosed {
		t.Errorf("wait ended with %v", err)
	}
}

// RESET empties the queues and takes the completions out; the QP is as new then,
// however often, and also with its indices near their wrap.
func TestHWReset(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rand.Rand, at, there place) {
		a, b := open(t, at, shape{depth: 6}), open(t, there, shape{depth: 6})
		for round := range 5 {
			a.to(driver.StateRTS, b)
			b.to(driver.StateRTS, a)
			for range 1 + r.IntN(5) {
				a.send(driver.SendWR{ID: 1, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)})
				a.recv(driver.RecvWR{ID: 2})
			}
			if round%2 == 1 {
				must(t, a.qp.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
			}
			for _, e := range []*end{a, b} {
				must(t, e.qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask))
				e.qp.Purge()
				if sq, rq := &e.qp.sq, &e.qp.rq; sq.used(sq.prod, sq.consumed()) != 0 || rq.used(rq.prod, rq.consumed()) != 0 {
					t.Errorf("queues are not empty after RESET: send %d %d, receive %d %d", sq.prod, sq.consumed(), rq.prod, rq.consumed())
				}
				if n, err := e.cq.Poll(make([]driver.WC, 1)); n != 0 || err != nil {
					t.Errorf("completions after RESET: %d, %v", n, err)
				}
			}
			a.to(driver.StateRTS, b)
			b.to(driver.StateRTS, a)
			fill(r, a.mem.Bytes()[:64])
			b.recv(driver.RecvWR{ID: 9, SGL: []driver.SGE{b.sge(0, 64)}})
			a.send(driver.SendWR{ID: 8, Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 64)}})
			if wc := a.one(driver.Success); wc.ID != 8 {
				t.Errorf("completion %+v", wc)
			}
			if wc := b.one(driver.Success); wc.ID != 9 || !bytes.Equal(a.mem.Bytes()[:64], b.mem.Bytes()[:64]) {
				t.Errorf("receive %+v, or data differs", wc)
			}
			for _, e := range []*end{a, b} {
				must(t, e.qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask))
				e.qp.Purge()
			}
		}
	})
}

// Purge takes a QP's completions out of a CQ and leaves those of the others.
func TestHWPurgeDropsCompletions(t *testing.T) {
	a, b := local(t, shape{cq: 64})
	a.to(driver.StateRTS, b)
	b.to(driver.StateRTS, a)
	other := get(a.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: a.cq, RecvCQ: a.cq, Cap: driver.QPCap{SendWR: 8, RecvWR: 8, SendSGE: 1, RecvSGE: 1}}))(t).(*QP)
	must(t, other.toInit())
	must(t, other.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
	for i := range 6 {
		if n, err := other.PostRecv([]driver.RecvWR{{ID: 100}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		a.send(driver.SendWR{ID: uint64(i), Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)})
	}
	a.filled(12)
	must(t, other.Close())
	other.Purge()
	for i, wc := range a.wait(6) {
		if wc.ID != uint64(i) || wc.QPN != a.qp.Num() {
			t.Errorf("completion %+v", wc)
		}
	}
	a.none()
}

// SQD lets what was begun end and holds back what comes then.
func TestHWDrain(t *testing.T) {
	a, b := local(t, shape{})
	a.to(driver.StateRTS, b)
	b.to(driver.StateRTS, a)
	wr := driver.SendWR{ID: 1, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)}
	a.send(wr)
	a.one(driver.Success)
	must(t, a.qp.Modify(&driver.QPAttr{State: driver.StateSQD}, driver.QPStateMask))
	for end := time.Now().Add(patience); get(a.qp.Query())(t).SQDraining; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the queue does not drain")
		}
	}
	wr.ID = 2
	a.send(wr)
	a.none()
	err := a.qp.Modify(&driver.QPAttr{State: driver.StateRTS}, driver.QPStateMask)
	must(t, err)
	a.send(driver.SendWR{ID: 3, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)})
	for i, wc := range a.wait(2) {
		if wc.ID != uint64(i+2) || wc.Status != driver.Success {
			t.Errorf("completion %+v", wc)
		}
	}
}

// What the device does not make is refused with the limit.
func TestHWLimits(t *testing.T) {
	a, _ := local(t, shape{})
	attr := get(a.dev.QueryDevice())(t)
	qp := func(c driver.QPCap) error {
		_, err := a.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: a.cq, RecvCQ: a.cq, Cap: c})
		return err
	}
	hinted(t, qp(driver.QPCap{SendWR: 1, RecvWR: 1, SendSGE: attr.MaxSGE + 1, RecvSGE: 1}), syscall.EINVAL, "gather", "33", "32")
	hinted(t, qp(driver.QPCap{SendWR: 1, RecvWR: 1, SendSGE: 1, RecvSGE: attr.MaxSGE + 1}), syscall.EINVAL, "scatter", "33", "32")
	hinted(t, qp(driver.QPCap{SendWR: 1, RecvWR: 1, SendSGE: 1, RecvSGE: 1, Inline: maxInline + 1}), syscall.EINVAL, "inline", "513", "512")
	hinted(t, qp(driver.QPCap{SendWR: attr.MaxQPWR + 1, RecvWR: 1, SendSGE: 1, RecvSGE: 1}), syscall.EINVAL, "send requests")
	hinted(t, qp(driver.QPCap{SendWR: -1, RecvWR: 1}), syscall.EINVAL, "send requests")
	_, err := a.dev.CreateCQ(driver.CQConfig{Depth: attr.MaxCQE + 1})
	hinted(t, err, syscall.EINVAL, "depth", "32768", "32767")
	_, err = a.dev.CreateCQ(driver.CQConfig{Depth: 1, Vector: 99})
	hinted(t, err, syscall.EINVAL, "vector")
	if _, err := a.pd.CreateQP(driver.QPConfig{Type: 9, SendCQ: a.cq, RecvCQ: a.cq}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("type 9: %v", err)
	}
	_, err = a.pd.CreateSRQ(driver.SRQConfig{WR: attr.MaxSRQWR + 1, SGE: 1})
	hinted(t, err, syscall.EINVAL, "number of receives is 1048577", "1048576")
	_, err = a.pd.CreateSRQ(driver.SRQConfig{WR: 1, SGE: attr.MaxSRQSGE + 1})
	hinted(t, err, syscall.EINVAL, "scatter entries is 28", "27")
	if q, err := a.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: a.cq, RecvCQ: a.cq}); err == nil {
		if n, err := q.PostRecv(nil); n != 0 || err != driver.ErrBadState {
			t.Errorf("%d, %v", n, err)
		}
		must(t, q.Close())
	} else {
		t.Errorf("a QP without queues: %v", err)
	}
}

// An address that nobody has is looked for for a second.
func TestHWNoNeighbour(t *testing.T) {
	r := random(t)
	ps := places(t)
	var at place
	for _, i := range r.Perm(len(ps)) {
		if ps[i].gid.GID.Addr().Is4() {
			at = ps[i]
		}
	}
	if at.dev == nil {
		t.Skip("needs a GID that is an IPv4 address")
	}
	a := open(t, at, shape{})
	nobody := a.at.gid.GID.Addr().As4()
	nobody[3] ^= 0x80
	peer := *a
	peer.at.gid.GID = netip.AddrFrom4(nobody).As16()
	must(t, a.qp.toInit())
	err := a.qp.Modify(a.rtr(&peer))
	t.Log(err)
	hinted(t, err, syscall.ETIMEDOUT, netip.AddrFrom4(nobody).String(), "ARP")
	peer.at = a.at
	attr, mask := a.rtr(&peer)
	attr.AH.SGIDIndex = 200
	hinted(t, a.qp.Modify(attr, mask), unix.ENODATA, "GID index 200")
	attr.AH.IsGlobal = false
	if err := a.qp.Modify(attr, mask); err != errNotGlobal {
		t.Errorf("not global: %v", err)
	}
}

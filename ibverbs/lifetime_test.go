package ibverbs_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/internal/offheap"
)

// A parent in use says who uses it, and closing it changed nothing.
func TestCloseOfParentInUse(t *testing.T) {
	e := connect(t, ibverbs.WithEvents())
	ch := get(e.dev.CreateCompChannel())(t)
	onChannel := get(e.dev.CreateCQ(4, ibverbs.WithChannel(ch)))(t)
	for _, c := range []struct {
		name  string
		close func() error
		users []string
	}{
		{"PD", e.pd.Close, []string{"QP 0x", "MR 0x"}},
		{"CQ", e.cqs[0].Close, []string{"QP 0x"}},
		{"channel", ch.Close, []string{"CQ #"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := e.dev.Objects()
			err := c.close()
			if !errors.Is(err, syscall.EBUSY) || !errors.Is(err, ibverbs.ErrBusy) {
				t.Fatalf("error %v, want EBUSY", err)
			}
			for _, u := range c.users {
				if !strings.Contains(err.Error(), u) {
					t.Errorf("%q does not name %s", err, u)
				}
			}
			if after := e.dev.Objects(); !slices.Equal(before, after) {
				t.Errorf("objects were %v, are %v", before, after)
			}
		})
	}
	// All of it still works.
	copy(e.buf.Bytes(), "still here")
	get(e.qps[0].PostSend(e.write(1, 10)))(t)
	if wc := one(t, e.cqs[0]); wc.Status != ibverbs.Success {
		t.Errorf("write after refused closes: %v", wc.Status)
	}
	if got := string(e.buf.Bytes()[32<<10:][:10]); got != "still here" {
		t.Errorf("written %q", got)
	}
	try(t, onChannel.Close())
	try(t, ch.Close())
	for _, q := range e.qps {
		try(t, q.Close())
	}
	try(t, e.mem.Close())
	try(t, e.pd.Close())
	for _, q := range e.cqs {
		try(t, q.Close())
	}
	if left := e.dev.Objects(); len(left) > 0 {
		t.Errorf("objects left: %v", left)
	}
}

// A refusal by the device itself leaves the object open too.
func TestCloseRefusedByDevice(t *testing.T) {
	e := connect(t, ibverbs.WithEvents())
	ch := get(e.dev.CreateCompChannel())(t)
	spare := get(e.dev.CreateCQ(4))(t)
	for _, c := range []struct {
		name  string
		close func() error
		works func(t *testing.T)
	}{
		{"channel", ch.Close, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if _, err := ch.Wait(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Wait: %v, want %v", err, context.Canceled)
			}
		}},
		{"CQ", spare.Close, func(t *testing.T) {
			if _, err := spare.Poll(make([]ibverbs.WC, 1)); err != nil {
				t.Errorf("Poll: %v", err)
			}
		}},
		{"MR", e.mem.Close, func(t *testing.T) {
			get(e.qps[1].PostSend(e.write(1, 8)))(t)
			if wc := one(t, e.cqs[1]); wc.Status != ibverbs.Success {
				t.Errorf("write: %v", wc.Status)
			}
		}},
		{"QP", e.qps[0].Close, func(t *testing.T) {
			get(e.qps[0].PostSend(ibverbs.SendWR{Op: ibverbs.OpWrite, Flags: ibverbs.Signaled}))(t)
			one(t, e.cqs[0])
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.fabric.Device("mem0").FailNext(memdriver.OpClose, syscall.EBUSY)
			if err := c.close(); !errors.Is(err, syscall.EBUSY) {
				t.Fatalf("error %v, want EBUSY", err)
			}
			c.works(t)
			try(t, c.close())
			try(t, c.close())
		})
	}
}

// Closing the device closes all; the second Close of anything is nil; no call
// after it does more than say so.
func TestCallsAfterClose(t *testing.T) {
	for _, how := range []string{"context", "each"} {
		t.Run(how, func(t *testing.T) {
			e := connect(t, ibverbs.WithEvents())
			ch := get(e.dev.CreateCompChannel())(t)
			sub := e.dev.Subscribe()
			closers := map[string]func() error{
				"QP": e.qps[0].Close, "QP 2": e.qps[1].Close, "MR": e.mem.Close, "CQ": e.cqs[0].Close, "CQ 2": e.cqs[1].Close,
				"channel": ch.Close, "PD": e.pd.Close, "context": e.dev.Close, "subscription": sub.Close,
			}
			if how == "each" {
				for _, name := range []string{"QP", "QP 2", "MR", "CQ", "CQ 2", "channel", "PD", "subscription"} {
					try(t, closers[name]())
				}
			} else {
				try(t, e.dev.Close())
			}
			for name, c := range closers {
				for range 2 {
					if err := c(); err != nil {
						t.Errorf("another Close of %s: %v", name, err)
					}
				}
			}
			for name, call := range afterClose(e, ch, sub) {
				if err := call(); !errors.Is(err, ibverbs.ErrClosed) || !errors.Is(err, fs.ErrClosed) {
					t.Errorf("%s: error %v, want %v", name, err, ibverbs.ErrClosed)
				}
			}
			// These have no error to return.
			e.qps[0].Num()
			e.qps[0].Cap()
			e.qps[0].State()
			e.cqs[0].Depth()
			e.mem.Remote(0)
			e.dev.Info()
			e.dev.Objects()
			if err := e.cqs[0].Err(&ibverbs.WC{Status: ibverbs.RetryExcErr}); !errors.Is(err, ibverbs.RetryExcErr) {
				t.Errorf("CQ.Err: %v", err)
			}
		})
	}
}

func afterClose(e *ends, ch *ibverbs.CompChannel, sub *ibverbs.Subscription) map[string]func() error {
	ctx := context.Background()
	var wcs [1]ibverbs.WC
	return map[string]func() error{
		"PostSend":         func() error { _, err := e.qps[0].PostSend(e.write(1, 8)); return err },
		"PostSend none":    func() error { _, err := e.qps[0].PostSend(); return err },
		"PostRecv":         func() error { _, err := e.qps[0].PostRecv(ibverbs.RecvWR{}); return err },
		"Modify":           func() error { return e.qps[0].Modify(&ibverbs.QPAttr{State: ibverbs.StateErr}, ibverbs.QPStateMask) },
		"Modify to Reset":  func() error { return e.qps[0].Modify(&ibverbs.QPAttr{}, ibverbs.QPStateMask) },
		"QP.Query":         func() error { _, err := e.qps[0].Query(); return err },
		"Poll":             func() error { _, err := e.cqs[0].Poll(wcs[:]); return err },
		"Poll none":        func() error { _, err := e.cqs[0].Poll(nil); return err },
		"CQ.Wait":          func() error { _, err := e.cqs[0].Wait(ctx, wcs[:]); return err },
		"Arm":              func() error { return e.cqs[0].Arm(false) },
		"CompChannel.Wait": func() error { _, err := ch.Wait(ctx); return err },
		"RegMR":            func() error { _, err := e.pd.RegMR(e.buf, ibverbs.LocalWrite); return err },
		"CreateQP": func() error {
			_, err := e.pd.CreateQP(ibverbs.QPConfig{SendCQ: e.cqs[0], RecvCQ: e.cqs[0]})
			return err
		},
		"Context.Query":     func() error { try2(e.dev.Close()); _, err := e.dev.Query(); return err },
		"Context.Port":      func() error { try2(e.dev.Close()); _, err := e.dev.Port(1); return err },
		"Context.GIDs":      func() error { try2(e.dev.Close()); _, err := e.dev.GIDs(1); return err },
		"Context.Probe":     func() error { try2(e.dev.Close()); return e.dev.Probe("anything") },
		"AllocPD":           func() error { try2(e.dev.Close()); _, err := e.dev.AllocPD(); return err },
		"CreateCQ":          func() error { try2(e.dev.Close()); _, err := e.dev.CreateCQ(1, ibverbs.WithEvents()); return err },
		"CreateCompChannel": func() error { try2(e.dev.Close()); _, err := e.dev.CreateCompChannel(); return err },
		"Subscription.Next": func() error { _, err := sub.Next(ctx); return err },
		"Subscribe":         func() error { try2(e.dev.Close()); _, err := e.dev.Subscribe().Next(ctx); return err },
	}
}

// try2 is for calls that TestCallsAfterClose has seen to work.
func try2(err error) {
	if err != nil {
		panic(err)
	}
}

// Memory is mapped until its last registration goes, whatever is closed first.
func TestMemoryOutlivesBuffer(t *testing.T) {
	e := connect(t)
	span := e.buf.Span()
	second := get(e.pd.RegMR(e.buf, ibverbs.LocalWrite))(t)
	try(t, e.buf.Close())
	if _, err := e.pd.RegMR(e.buf, ibverbs.LocalWrite); err == nil {
		t.Error("a closed buffer was registered")
	}
	copy(span.Bytes(), "alive")
	get(e.qps[0].PostSend(e.write(1, 5)))(t)
	one(t, e.cqs[0])
	if got := string(span.Bytes()[32<<10:][:5]); got != "alive" {
		t.Errorf("written %q", got)
	}
	try(t, second.Close())
	if !mapped(span) {
		t.Error("memory went with the first of two MRs")
	}
	try(t, e.mem.Close())
	if mapped(span) {
		t.Error("memory outlives its last MR")
	}
}

func mapped(s offheap.Span) bool {
	if s.Retain() != nil {
		return false
	}
	_ = s.Release()
	return true
}

// A call that failed leaves nothing behind: the fixture looks.
func TestFailedCallsLeaveNothing(t *testing.T) {
	e := connect(t)
	before := e.dev.Objects()
	for _, c := range []struct {
		op   memdriver.Op
		call func() error
	}{
		{memdriver.OpAllocPD, func() error { _, err := e.dev.AllocPD(); return err }},
		{memdriver.OpCreateCompChannel, func() error { _, err := e.dev.CreateCompChannel(); return err }},
		{memdriver.OpCreateCompChannel, func() error { _, err := e.dev.CreateCQ(1, ibverbs.WithEvents()); return err }},
		{memdriver.OpCreateCQ, func() error { _, err := e.dev.CreateCQ(1, ibverbs.WithEvents()); return err }},
		{memdriver.OpCreateQP, func() error {
			_, err := e.pd.CreateQP(ibverbs.QPConfig{SendCQ: e.cqs[0], RecvCQ: e.cqs[1]})
			return err
		}},
		{memdriver.OpRegMR, func() error { _, err := e.pd.RegMR(e.buf, 0); return err }},
		{memdriver.OpQueryDevice, func() error { _, err := e.dev.Query(); return err }},
		{memdriver.OpQueryPort, func() error { _, err := e.dev.Port(1); return err }},
		{memdriver.OpModifyQP, func() error { return e.qps[0].Modify(&ibverbs.QPAttr{State: ibverbs.StateErr}, ibverbs.QPStateMask) }},
		{memdriver.OpQueryQP, func() error { _, err := e.qps[0].Query(); return err }},
	} {
		t.Run(string(c.op), func(t *testing.T) {
			e.fabric.Device("mem0").FailNext(c.op, syscall.ENOSPC)
			err := c.call()
			var detail *ibverbs.Error
			if !errors.Is(err, syscall.ENOSPC) || !errors.As(err, &detail) || detail.Op == "" || detail.Device != "mem0" {
				t.Errorf("error %v, want an Error about mem0 with ENOSPC", err)
			}
			if after := e.dev.Objects(); !slices.Equal(before, after) {
				t.Errorf("objects were %v, are %v", before, after)
			}
		})
	}
	if e.qps[0].State() != ibverbs.StateRTS {
		t.Errorf("QP is in %v after a refused change", e.qps[0].State())
	}
	get(e.qps[0].PostSend(e.write(1, 8)))(t)
	one(t, e.cqs[0])
}

// Objects of one device cannot be mixed with those of another.
func TestObjectsOfAnotherDevice(t *testing.T) {
	e, other := connect(t), connect(t)
	if _, err := e.pd.CreateQP(ibverbs.QPConfig{SendCQ: e.cqs[0], RecvCQ: other.cqs[0]}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("CreateQP: %v", err)
	}
	ch := get(other.dev.CreateCompChannel())(t)
	if _, err := e.dev.CreateCQ(1, ibverbs.WithChannel(ch)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("CreateCQ: %v", err)
	}
}

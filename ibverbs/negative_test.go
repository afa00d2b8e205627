package ibverbs_test

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
)

// What rdma-core's own tests (pyverbs) call wrongly gives the same errno on every device, and the object can be used afterwards.
func TestWrongCalls(t *testing.T) {
	t.Run("memdriver", func(t *testing.T) { wrongCalls(t, open(t, memdriver.New(memdriver.Config{}))) })
	t.Run("softroce", func(t *testing.T) {
		drv := softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.9.0.1")}, Network: softroce.OnSim(softroce.NewSim(softroce.SimConfig{}))})
		dev := get(ibverbs.Open("soft0", ibverbs.WithDrivers(drv)))(t)
		defer func() { try(t, dev.Close()) }()
		wrongCalls(t, dev)
	})
}

// tested is two connected QPs with room for 4 sends, 4 receives, 2 entries each and 32 bytes inline.
type tested struct {
	dev  *ibverbs.Context
	pd   *ibverbs.PD
	cq   *ibverbs.CQ
	a, b *qp.QP
	buf  *mr.Buffer
	mem  *ibverbs.MR
}

func newTested(t *testing.T, dev *ibverbs.Context, opts ...qp.Option) *tested {
	t.Helper()
	x := &tested{dev: dev}
	x.pd, x.cq = get(dev.AllocPD())(t), get(dev.CreateCQ(64, ibverbs.WithEvents()))(t)
	x.buf = get(mr.Alloc(64 << 10))(t)
	x.mem = get(x.pd.RegMR(x.buf, ibverbs.LocalWrite|ibverbs.RemoteWrite|ibverbs.RemoteRead))(t)
	opts = append([]qp.Option{qp.WithDepth(4, 4), qp.WithSGEs(2), qp.WithInline(32)}, opts...)
	x.a, x.b = get(qp.New(x.pd, x.cq, x.cq, opts...))(t), get(qp.New(x.pd, x.cq, x.cq, opts...))(t)
	try(t, x.a.Connect(x.b.Info()))
	try(t, x.b.Connect(x.a.Info()))
	return x
}

func (x *tested) close(t *testing.T) {
	t.Helper()
	for _, c := range []interface{ Close() error }{x.a, x.b, x.mem, x.cq, x.pd, x.buf} {
		try(t, c.Close())
	}
}

// works moves bytes, which shows that everything is as it was.
func (x *tested) works(t *testing.T) {
	t.Helper()
	copy(x.buf.Bytes(), "still usable")
	clear(x.buf.Bytes()[4096:4108])
	get(x.a.PostSend(x.write(77)))(t)
	if wc := one(t, x.cq); wc.ID != 77 || wc.Status != ibverbs.Success {
		t.Fatalf("%+v: %v", wc, x.cq.Err(&wc))
	}
	if got := string(x.buf.Bytes()[4096:4108]); got != "still usable" {
		t.Fatalf("the peer's memory has %q", got)
	}
}

func (x *tested) write(id uint64) ibverbs.SendWR {
	return ibverbs.SendWR{ID: id, Op: ibverbs.OpWrite, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{x.mem.SGE(0, 12)}, Remote: x.mem.Remote(4096)}
}

func wrongCalls(t *testing.T, dev *ibverbs.Context, opts ...qp.Option) {
	x := newTested(t, dev, opts...)
	limits := get(dev.Query())(t)
	post := func(wr ibverbs.SendWR) error { _, err := x.a.PostSend(wr); return err }
	small := ibverbs.QPConfig{SendCQ: x.cq, RecvCQ: x.cq, Cap: ibverbs.QPCap{SendWR: 1, RecvWR: 1, SendSGE: 1, RecvSGE: 1}}
	reset := get(x.pd.CreateQP(small))(t)
	foreign := memdriverDevice(t)
	foreignCQ := get(foreign.CreateCQ(4))(t)
	create := func(change func(*ibverbs.QPConfig)) error {
		c := small
		change(&c)
		q, err := x.pd.CreateQP(c)
		if err == nil {
			try(t, q.Close())
		}
		return err
	}
	for _, c := range []struct {
		name  string
		call  func() error
		errno syscall.Errno
		also  error // a sentinel, nil for none
	}{
		{"MR: remote write without local write", func() error { _, err := x.pd.RegMR(x.buf, ibverbs.RemoteWrite); return err }, syscall.EINVAL, nil},
		{"MR: no such right", func() error { _, err := x.pd.RegMR(x.buf, ibverbs.LocalWrite|1<<15); return err }, syscall.EINVAL, nil},
		{"MR: no memory", func() error { _, err := x.pd.RegMR(nil, ibverbs.LocalWrite); return err }, syscall.EINVAL, nil},
		{"MR: address with another offset in the page", func() error {
			_, err := x.pd.RegMRIOVA(x.buf, 0x1000_0000_0008, ibverbs.LocalWrite)
			return err
		}, syscall.EINVAL, nil},
		{"CQ: depth 0", func() error { _, err := dev.CreateCQ(0); return err }, syscall.EINVAL, nil},
		{"CQ: too deep", func() error { _, err := dev.CreateCQ(limits.MaxCQE + 1); return err }, syscall.EINVAL, nil},
		{"CQ: no such vector", func() error { _, err := dev.CreateCQ(4, ibverbs.WithVector(limits.CompVectors)); return err }, syscall.EINVAL, nil},
		{"CQ: negative vector", func() error { _, err := dev.CreateCQ(4, ibverbs.WithVector(-1)); return err }, syscall.EINVAL, nil},
		{"CQ: resize to nothing", func() error { return x.cq.Resize(0) }, syscall.EINVAL, nil},
		{"CQ: in use", func() error { return x.cq.Close() }, syscall.EBUSY, ibverbs.ErrBusy},
		{"PD: in use", func() error { return x.pd.Close() }, syscall.EBUSY, ibverbs.ErrBusy},
		{"QP: without CQ", func() error { return create(func(c *ibverbs.QPConfig) { c.SendCQ = nil }) }, syscall.EINVAL, nil},
		{"QP: CQ of another device", func() error { return create(func(c *ibverbs.QPConfig) { c.RecvCQ = foreignCQ }) }, syscall.EINVAL, nil},
		{"QP: too many requests", func() error { return create(func(c *ibverbs.QPConfig) { c.Cap.SendWR = limits.MaxQPWR + 1 }) }, syscall.EINVAL, nil},
		{"QP: too many entries", func() error { return create(func(c *ibverbs.QPConfig) { c.Cap.SendSGE = limits.MaxSGE + 1 }) }, syscall.EINVAL, nil},
		{"QP: too many receive entries", func() error { return create(func(c *ibverbs.QPConfig) { c.Cap.RecvSGE = limits.MaxSGE + 1 }) }, syscall.EINVAL, nil},
		{"QP: too much inline", func() error { return create(func(c *ibverbs.QPConfig) { c.Cap.Inline = 1 << 20 }) }, syscall.EINVAL, nil},
		{"modify: RESET to RTS", func() error {
			return reset.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTS}, ibverbs.QPStateMask)
		}, syscall.EINVAL, nil},
		{"modify: INIT without a port", func() error {
			return reset.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit}, ibverbs.QPStateMask|ibverbs.QPPKeyIndex|ibverbs.QPAccessFlags)
		}, syscall.EINVAL, nil},
		{"modify: port that is not there", func() error {
			return reset.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit, Port: 200}, ibverbs.QPStateMask|ibverbs.QPPKeyIndex|ibverbs.QPPort|ibverbs.QPAccessFlags)
		}, syscall.EINVAL, nil},
		{"modify: no attributes", func() error { return reset.Modify(nil, ibverbs.QPStateMask) }, syscall.EINVAL, nil},
		{"way back: no completion", func() error { _, err := dev.AHAttrFromWC(1, nil, nil); return err }, syscall.EINVAL, nil},
		{"send in RESET", func() error { _, err := reset.PostSend(x.write(1)); return err }, syscall.EINVAL, ibverbs.ErrBadState},
		{"receive in RESET", func() error { _, err := reset.PostRecv(ibverbs.RecvWR{}); return err }, syscall.EINVAL, ibverbs.ErrBadState},
		{"send with too many entries", func() error {
			wr := x.write(1)
			for range x.a.Cap().SendSGE {
				wr.SGL = append(wr.SGL, x.mem.SGE(0, 1))
			}
			return post(wr)
		}, syscall.EINVAL, ibverbs.ErrTooManySGE},
		{"receive with too many entries", func() error {
			var wr ibverbs.RecvWR
			for range x.a.Cap().RecvSGE + 1 {
				wr.SGL = append(wr.SGL, x.mem.SGE(0, 1))
			}
			_, err := x.a.PostRecv(wr)
			return err
		}, syscall.EINVAL, ibverbs.ErrTooManySGE},
		{"inline too large", func() error {
			wr := x.write(1)
			wr.SGL, wr.Inline = nil, make([]byte, x.a.Cap().Inline+1)
			return post(wr)
		}, syscall.EINVAL, ibverbs.ErrInlineTooBig},
		{"longer than a message", func() error {
			wr := x.write(1)
			wr.SGL = []ibverbs.SGE{{Addr: x.mem.Addr(), Length: 1<<31 + 1, LKey: x.mem.LKey()}}
			return post(wr)
		}, syscall.EINVAL, ibverbs.ErrTooLong},
		{"sum longer than a message", func() error {
			wr := x.write(1)
			half := ibverbs.SGE{Addr: x.mem.Addr(), Length: 1 << 31, LKey: x.mem.LKey()}
			wr.SGL = []ibverbs.SGE{half, half} // 0 in 32 bits
			return post(wr)
		}, syscall.EINVAL, ibverbs.ErrTooLong},
		{"no such operation", func() error { wr := x.write(1); wr.Op = 99; return post(wr) }, syscall.EINVAL, ibverbs.ErrBadOpcode},
		{"port 0", func() error { _, err := dev.Port(0); return err }, syscall.EINVAL, nil},
		{"port beyond", func() error { _, err := dev.GIDs(dev.Info().Ports + 1); return err }, syscall.EINVAL, nil},
		{"counters of no port", func() error { _, err := dev.Counters(-1); return err }, syscall.EINVAL, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(dev.Objects())
			err := c.call()
			var e *ibverbs.Error
			if !errors.Is(err, c.errno) || c.also != nil && !errors.Is(err, c.also) || !errors.As(err, &e) || e.Op == "" || e.Device == "" {
				t.Errorf("got %v, want %v and what was tried on which device", err, c.errno)
			}
			if after := len(dev.Objects()); after != before {
				t.Errorf("%d objects before, %d after: %v", before, after, dev.Objects())
			}
			x.works(t)
		})
	}
	t.Run("queue full", func(t *testing.T) {
		var full error
		n := 0
		for full == nil && n < 1000 { // receives stay
			_, full = x.b.PostRecv(ibverbs.RecvWR{ID: 5})
			n++
		}
		if !errors.Is(full, ibverbs.ErrQueueFull) || !errors.Is(full, syscall.ENOMEM) || n <= 4 {
			t.Errorf("%d receives, then %v", n, full)
		}
		posted, err := x.b.PostRecv(ibverbs.RecvWR{}, ibverbs.RecvWR{})
		if posted != 0 || !errors.Is(err, ibverbs.ErrQueueFull) {
			t.Errorf("%d posted, %v", posted, err)
		}
		x.works(t)
	})
	try(t, reset.Close())
	x.close(t)

	t.Run("bad requests name the first", func(t *testing.T) {
		x := newTested(t, dev, opts...)
		bad := x.write(2)
		bad.Op = 99
		n, err := x.a.PostSend(x.write(1), bad, x.write(3))
		if n != 1 || !errors.Is(err, ibverbs.ErrBadOpcode) {
			t.Errorf("%d, %v", n, err)
		}
		if wc := one(t, x.cq); wc.ID != 1 || wc.Status != ibverbs.Success {
			t.Errorf("%+v", wc)
		}
		x.works(t)
		x.close(t)
	})
	wrongKeys(t, dev, opts...)
	closedObjects(t, dev, opts...)
}

func memdriverDevice(t *testing.T) *ibverbs.Context {
	t.Helper()
	dev := get(ibverbs.Open("mem0", ibverbs.WithDrivers(memdriver.New(memdriver.Config{}))))(t)
	t.Cleanup(func() { try(t, dev.Close()) })
	return dev
}

// What the device finds out comes as a completion; the QP is in ERR and works again once it was reset.
func wrongKeys(t *testing.T, dev *ibverbs.Context, opts ...qp.Option) {
	for name, c := range map[string]struct {
		wr   func(x *tested) ibverbs.SendWR
		want []ibverbs.Status
	}{
		"unknown local key": {func(x *tested) ibverbs.SendWR {
			wr := x.write(1)
			wr.SGL = []ibverbs.SGE{{Addr: x.mem.Addr(), Length: 8, LKey: x.mem.LKey() ^ 0x7f00}}
			return wr
		}, []ibverbs.Status{ibverbs.LocProtErr, ibverbs.LocQPOpErr}},
		"unknown remote key": {func(x *tested) ibverbs.SendWR { wr := x.write(1); wr.Remote.RKey ^= 0x7f00; return wr }, []ibverbs.Status{ibverbs.RemAccessErr}},
		"beyond the memory":  {func(x *tested) ibverbs.SendWR { wr := x.write(1); wr.Remote.Addr += 64 << 10; return wr }, []ibverbs.Status{ibverbs.RemAccessErr}},
		"key of a window that never was": {func(x *tested) ibverbs.SendWR { wr := x.write(1); wr.Remote.RKey = 0xffffff00; return wr },
			[]ibverbs.Status{ibverbs.RemAccessErr}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTested(t, dev, opts...)
			get(x.a.PostSend(c.wr(x)))(t)
			wc := one(t, x.cq)
			ok := false
			for _, s := range c.want {
				ok = ok || wc.Status == s
			}
			err := x.cq.Err(&wc)
			var ce *ibverbs.CompletionError
			if !ok || !errors.As(err, &ce) || !errors.Is(err, wc.Status) {
				t.Errorf("%v: %v", wc.Status, err)
			}
			if a := get(x.a.Query())(t); a.State != ibverbs.StateErr || x.a.State() != ibverbs.StateErr {
				t.Errorf("the QP is in %v and known to be in %v", a.State, x.a.State())
			}
			try(t, x.a.Close())
			try(t, x.b.Close())
			get(x.cq.Poll(make([]ibverbs.WC, 64)))(t) // what was flushed
			all := append([]qp.Option{qp.WithDepth(4, 4)}, opts...)
			x.a, x.b = get(qp.New(x.pd, x.cq, x.cq, all...))(t), get(qp.New(x.pd, x.cq, x.cq, all...))(t)
			try(t, x.a.Connect(x.b.Info()))
			try(t, x.b.Connect(x.a.Info()))
			x.works(t)
			x.close(t)
		})
	}
}

// Closed objects say so in the words of this package and of package os; closing twice is nothing.
func closedObjects(t *testing.T, dev *ibverbs.Context, opts ...qp.Option) {
	t.Run("closed", func(t *testing.T) {
		x := newTested(t, dev, opts...)
		for range 2 {
			x.close(t)
		}
		other := get(mr.Alloc(4096))(t)
		defer func() { try(t, other.Close()) }()
		for name, err := range map[string]error{
			"send":     func() error { _, err := x.a.PostSend(ibverbs.SendWR{}); return err }(),
			"receive":  func() error { _, err := x.a.PostRecv(ibverbs.RecvWR{}); return err }(),
			"modify":   x.a.Modify(&ibverbs.QPAttr{}, ibverbs.QPStateMask),
			"query":    func() error { _, err := x.a.Query(); return err }(),
			"poll":     func() error { _, err := x.cq.Poll(make([]ibverbs.WC, 1)); return err }(),
			"wait":     func() error { _, err := x.cq.Wait(deadline(t), make([]ibverbs.WC, 1)); return err }(),
			"resize":   x.cq.Resize(8),
			"moderate": x.cq.Moderate(1, 1),
			"register": func() error { _, err := x.pd.RegMR(other, 0); return err }(),
			"create":   func() error { _, err := x.pd.CreateQP(ibverbs.QPConfig{SendCQ: x.cq, RecvCQ: x.cq}); return err }(),
		} {
			if !errors.Is(err, ibverbs.ErrClosed) || !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

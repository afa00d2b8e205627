package memdriver_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/internal/offheap"
)

func try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		try(t, err)
		return v
	}
}

// end is a QP with all that it needs, on a device of its own.
type end struct {
	dev  *memdriver.Device
	ctx  driver.Context
	pd   driver.PD
	cq   driver.CQ
	qp   driver.QP
	mem  driver.Span
	mr   driver.MR
	gid  driver.GID
	lkey uint32
	rkey uint32
}

const rights = driver.LocalWrite | driver.RemoteWrite | driver.RemoteRead | driver.RemoteAtomic

// link is what two ends agree on.
type link struct {
	timeout, retry, rnrTimer, rnrRetry uint8
	depth                              int // of the send queue
}

// pair connects mem0 and mem1 of a fabric of two devices.
func pair(t testing.TB, d *memdriver.Driver, l link) (a, b *end) {
	t.Helper()
	a, b = open(t, d.Device("mem0"), l), open(t, d.Device("mem1"), l)
	a.join(t, b, l)
	b.join(t, a, l)
	return a, b
}

func open(t testing.TB, dev *memdriver.Device, l link) *end {
	t.Helper()
	e := &end{dev: dev, ctx: get(dev.Open())(t)}
	e.pd = get(e.ctx.AllocPD())(t)
	e.cq = get(e.ctx.CreateCQ(driver.CQConfig{Depth: 64, Cookie: 1}))(t)
	e.qp = get(e.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: e.cq, RecvCQ: e.cq, Cookie: 2,
		Cap: driver.QPCap{SendWR: max(8, l.depth), RecvWR: 8, SendSGE: 2, RecvSGE: 2, Inline: 64}}))(t)
	e.mem = get(offheap.Map(4096, offheap.Options{}))(t)
	e.mr = get(e.pd.RegMR(e.mem, e.mem.Addr(), rights))(t)
	e.lkey, e.rkey = e.mr.Keys()
	e.gid = get(e.ctx.GIDs(1))(t)[0].GID
	t.Cleanup(func() {
		for _, c := range []func() error{e.qp.Close, e.mr.Close, e.mem.Release, e.cq.Close, e.pd.Close, e.ctx.Close} {
			try(t, c())
		}
	})
	return e
}

func (e *end) join(t testing.TB, peer *end, l link) {
	t.Helper()
	try(t, e.qp.Modify(&driver.QPAttr{State: driver.StateInit, Port: 1, Access: rights},
		driver.QPStateMask|driver.QPPort|driver.QPPKeyIndex|driver.QPAccessFlags))
	try(t, e.qp.Modify(&driver.QPAttr{State: driver.StateRTR, PathMTU: driver.MTU1024, DestQPN: peer.qp.Num(), MaxDestRdAtomic: 1, MinRNRTimer: l.rnrTimer,
		AH: driver.AHAttr{DGID: peer.gid, Port: 1, IsGlobal: true}},
		driver.QPStateMask|driver.QPAV|driver.QPPathMTU|driver.QPDestQPN|driver.QPRQPSN|driver.QPMaxDestRdAtomic|driver.QPMinRNRTimer))
	try(t, e.qp.Modify(&driver.QPAttr{State: driver.StateRTS, Timeout: l.timeout, RetryCnt: l.retry, RNRRetry: l.rnrRetry, MaxRdAtomic: 1},
		driver.QPStateMask|driver.QPSQPSN|driver.QPTimeout|driver.QPRetryCnt|driver.QPRNRRetry|driver.QPMaxQPRdAtomic))
}

func (e *end) sge(off, n int) []driver.SGE {
	return []driver.SGE{{Addr: e.mem.Addr() + uint64(off), Length: uint32(n), LKey: e.lkey}}
}

func (e *end) remote(off int) driver.Remote {
	return driver.Remote{Addr: e.mem.Addr() + uint64(off), RKey: e.rkey}
}

func (e *end) post(t testing.TB, wrs ...driver.SendWR) {
	t.Helper()
	if n, err := e.qp.PostSend(wrs); n != len(wrs) || err != nil {
		t.Fatalf("posted %d of %d: %v", n, len(wrs), err)
	}
}

// ids is the requests that have completed, which all must have succeeded.
func (e *end) ids(t testing.TB) (ids []uint64) {
	t.Helper()
	var wcs [64]driver.WC
	n := get(e.cq.Poll(wcs[:]))(t)
	for _, wc := range wcs[:n] {
		if wc.Status != driver.Success {
			t.Errorf("completion %+v: %v", wc, wc.Status)
		}
		ids = append(ids, wc.ID)
	}
	return ids
}

func (e *end) write(id uint64, n int, peer *end) driver.SendWR {
	return driver.SendWR{ID: id, Op: driver.OpWrite, Flags: driver.Signaled, SGL: e.sge(0, n), Remote: peer.remote(0)}
}

func two() *memdriver.Driver {
	return memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{{}, {}}})
}

// Requests that nobody answers end after the time that the QP's attributes say.
func TestTimeouts(t *testing.T) {
	const ack = 4096 * time.Nanosecond << 14
	for _, c := range []struct {
		name string
		cfg  memdriver.Config
		link link
		op   driver.Opcode
		cut  bool
		want driver.Status
		at   time.Duration
	}{
		{"no answer", memdriver.Config{}, link{timeout: 14, retry: 7}, driver.OpWrite, true, driver.RetryExcErr, 8 * ack},
		{"no answer, no retry", memdriver.Config{}, link{timeout: 14}, driver.OpWrite, true, driver.RetryExcErr, ack},
		{"no answer, as configured", memdriver.Config{RetryTime: time.Second}, link{timeout: 20, retry: 7}, driver.OpWrite, true, driver.RetryExcErr, time.Second},
		{"no receive", memdriver.Config{}, link{timeout: 14, rnrTimer: 12, rnrRetry: 3}, driver.OpSend, false, driver.RNRRetryExcErr, 3 * 640 * time.Microsecond},
		{"no receive, longest timer", memdriver.Config{}, link{timeout: 14, rnrTimer: 0, rnrRetry: 1}, driver.OpSend, false, driver.RNRRetryExcErr, 655360 * time.Microsecond},
		{"no receive, no retry", memdriver.Config{}, link{timeout: 14, rnrTimer: 12}, driver.OpSend, false, driver.RNRRetryExcErr, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.cfg.Devices = []memdriver.DeviceConfig{{}, {}}
				a, b := pair(t, memdriver.New(c.cfg), c.link)
				b.dev.Silence(c.cut)
				wr := a.write(1, 8, b)
				wr.Op = c.op
				a.post(t, wr)
				var wcs [1]driver.WC
				start := time.Now()
				for get(a.cq.Poll(wcs[:]))(t) == 0 {
					time.Sleep(10 * time.Microsecond)
				}
				if d := time.Since(start); wcs[0].Status != c.want || d < c.at || d > c.at+10*time.Microsecond {
					t.Errorf("ended as %v after %v, want %v after %v", wcs[0].Status, d, c.want, c.at)
				}
			})
		})
	}
	t.Run("for ever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := pair(t, two(), link{timeout: 0, rnrRetry: 7})
			b.dev.Silence(true)
			a.post(t, a.write(1, 8, b))
			time.Sleep(time.Hour)
			b.dev.Silence(false)
			send := a.write(2, 8, b)
			send.Op = driver.OpSend
			a.post(t, send)
			time.Sleep(time.Hour)
			if got := a.ids(t); !slices.Equal(got, []uint64{1}) {
				t.Errorf("completed %v, want the write", got)
			}
			get(b.qp.PostRecv([]driver.RecvWR{{SGL: b.sge(0, 8)}}))(t)
			if got := a.ids(t); !slices.Equal(got, []uint64{2}) {
				t.Errorf("completed %v, want the send", got)
			}
		})
	})
}

func TestPortDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, two(), link{timeout: 14, retry: 7})
		b.dev.SetPort(1, driver.PortDown)
		if p := get(b.ctx.QueryPort(1))(t); p.State != driver.PortDown {
			t.Errorf("port is %v", p.State)
		}
		a.post(t, a.write(1, 8, b))
		time.Sleep(100 * time.Millisecond)
		if got := a.ids(t); got != nil {
			t.Errorf("completed %v over a port that is down", got)
		}
		b.dev.SetPort(1, driver.PortActive)
		if got := a.ids(t); !slices.Equal(got, []uint64{1}) {
			t.Errorf("completed %v after the port came back", got)
		}
		for _, want := range []driver.EventType{driver.EventPortErr, driver.EventPortActive} {
			if e := get(b.ctx.NextEvent(t.Context()))(t); e.Type != want || e.Port != 1 {
				t.Errorf("event %+v, want %v", e, want)
			}
		}
	})
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delays := []time.Duration{5 * time.Second, 0, time.Second}
		fabric := memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{{}, {}}, Delay: func() time.Duration {
			d := delays[0]
			delays = delays[1:]
			return d
		}})
		a, b := pair(t, fabric, link{})
		a.post(t, a.write(1, 8, b), a.write(2, 8, b), a.write(3, 8, b))
		for _, want := range [][]uint64{nil, {1, 2}, {3}} {
			if got := a.ids(t); !slices.Equal(got, want) {
				t.Errorf("completed %v, want %v", got, want)
			}
			time.Sleep(time.Duration(5-2*len(want)) * time.Second)
			synctest.Wait()
		}
	})
}

func TestHoldAndStep(t *testing.T) {
	fabric := two()
	a, b := pair(t, fabric, link{})
	a.dev.Hold()
	a.post(t, a.write(1, 8, b), a.write(2, 8, b), a.write(3, 8, b), a.write(4, 8, b))
	if got := a.ids(t); got != nil {
		t.Errorf("completed %v while held", got)
	}
	for _, want := range [][]uint64{{1}, {2}} {
		if n := a.dev.Step(1); n != 1 {
			t.Errorf("did %d steps", n)
		}
		if got := a.ids(t); !slices.Equal(got, want) {
			t.Errorf("completed %v, want %v", got, want)
		}
	}
	a.dev.Resume()
	a.post(t, a.write(5, 8, b))
	if got := a.ids(t); !slices.Equal(got, []uint64{3, 4, 5}) {
		t.Errorf("completed %v after Resume", got)
	}
	if n := a.dev.Step(3); n != 0 {
		t.Errorf("did %d steps of nothing", n)
	}
}

func TestHoldCompletions(t *testing.T) {
	a, b := pair(t, two(), link{})
	a.dev.HoldCompletions()
	copy(a.mem.Bytes(), "moved")
	a.post(t, a.write(1, 5, b))
	if got := a.ids(t); got != nil || string(b.mem.Bytes()[:5]) != "moved" {
		t.Errorf("completed %v, data %q", got, b.mem.Bytes()[:5])
	}
	a.dev.ReleaseCompletions()
	if got := a.ids(t); !slices.Equal(got, []uint64{1}) {
		t.Errorf("completed %v", got)
	}
}

// Of three entries written at once the first is seen, the others late: at
// ReleaseTails, or before the next request of the QP has its effect.
func TestDelayTail(t *testing.T) {
	const entry = 64
	seen := func(b *end) (n int) {
		for i := range 3 {
			if binary.NativeEndian.Uint64(b.mem.Bytes()[(i+1)*entry-8:]) == 7 {
				n++
			}
		}
		return n
	}
	for _, how := range []string{"release", "next request", "deregistered", "reset"} {
		t.Run(how, func(t *testing.T) {
			a, b := pair(t, two(), link{})
			a.dev.DelayTail(entry)
			for i := range 3 {
				binary.NativeEndian.PutUint64(a.mem.Bytes()[(i+1)*entry-8:], 7)
			}
			a.post(t, a.write(1, 3*entry, b))
			if got := a.ids(t); !slices.Equal(got, []uint64{1}) || seen(b) != 1 {
				t.Fatalf("completed %v, %d entries are seen, want 1", got, seen(b))
			}
			want := 3
			switch how {
			case "release":
				a.dev.ReleaseTails()
			case "next request":
				get(b.qp.PostRecv([]driver.RecvWR{{}}))(t)
				a.post(t, driver.SendWR{ID: 2, Op: driver.OpSend})
			case "deregistered":
				try(t, b.mr.Close())
				a.dev.ReleaseTails()
				want = 1
				b.mr = get(b.pd.RegMR(b.mem, b.mem.Addr(), rights))(t)
			case "reset":
				try(t, a.qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask))
				a.dev.ReleaseTails()
				want = 1
			}
			if got := seen(b); got != want {
				t.Errorf("%d entries are seen, want %d", got, want)
			}
		})
	}
}

func TestObserve(t *testing.T) {
	var got []memdriver.Request
	fabric := memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{{}, {}}, Observe: func(r memdriver.Request) { got = append(got, r) }})
	a, b := pair(t, fabric, link{rnrRetry: 7})
	copy(a.mem.Bytes(), "seen")
	a.post(t, driver.SendWR{Op: driver.OpWriteWithImm, Imm: 5, SGL: a.sge(0, 4), Remote: b.remote(8)})
	if len(got) != 0 {
		t.Error("a request that waits for a receive was observed")
	}
	get(b.qp.PostRecv([]driver.RecvWR{{}}))(t)
	if len(got) != 1 {
		t.Fatalf("observed %+v", got)
	}
	if r := got[0]; r.Device != "mem0" || r.QPN != a.qp.Num() || r.DestQPN != b.qp.Num() || r.Op != driver.OpWriteWithImm || r.Imm != 5 ||
		r.Remote != b.remote(8) || string(r.Data) != "seen" || !slices.Equal(r.Length, []uint32{4}) {
		t.Errorf("observed %+v", r)
	}
}

func TestFaults(t *testing.T) {
	a, b := pair(t, two(), link{})
	a.dev.FailNext(memdriver.OpPostSend, nil, driver.ErrQueueFull)
	if n, err := a.qp.PostSend([]driver.SendWR{a.write(1, 8, b), a.write(2, 8, b)}); n != 1 || err != driver.ErrQueueFull {
		t.Errorf("posted %d, %v", n, err)
	}
	a.dev.FailNext(memdriver.OpCreateQP, syscall.ENOMEM)
	config := driver.QPConfig{Type: driver.RC, SendCQ: a.cq, RecvCQ: a.cq}
	if _, err := a.pd.CreateQP(config); err != syscall.ENOMEM {
		t.Errorf("CreateQP: %v", err)
	}
	q := get(a.pd.CreateQP(config))(t)
	try(t, q.Close())
	a.ids(t)

	a.dev.FailNextRequest(driver.RemOpErr, 0x42)
	a.post(t, a.write(3, 8, b))
	var wcs [2]driver.WC
	if n := get(a.cq.Poll(wcs[:]))(t); n != 1 || wcs[0].ID != 3 || wcs[0].Status != driver.RemOpErr || wcs[0].VendorErr != 0x42 {
		t.Errorf("completions %+v", wcs[:n])
	}
}

// A queue that lost completions gives what it has, then an error for good.
func TestOverrun(t *testing.T) {
	fabric := two()
	a, b := pair(t, fabric, link{depth: 80})
	for id := range uint64(65) {
		a.post(t, a.write(id, 8, b))
	}
	if got := a.ids(t); len(got) != 64 {
		t.Errorf("%d completions, want 64", len(got))
	}
	for range 2 {
		if _, err := a.cq.Poll(make([]driver.WC, 1)); err != driver.ErrCQOverrun {
			t.Errorf("Poll: %v", err)
		}
	}
	if attr := get(a.qp.Query())(t); attr.State != driver.StateErr {
		t.Errorf("QP is in %v", attr.State)
	}
	if e := get(a.ctx.NextEvent(t.Context()))(t); e != (driver.Event{Type: driver.EventCQErr, Cookie: 1}) {
		t.Errorf("event %+v", e)
	}
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fabric := memdriver.New(memdriver.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		changed, ended := make(chan struct{}, 1), make(chan error)
		go func() { ended <- fabric.Watch(ctx, changed) }()
		synctest.Wait()
		for range 3 { // more than the channel holds
			fabric.Add(memdriver.DeviceConfig{})
		}
		<-changed
		fabric.Remove("mem1")
		<-changed
		if ds := get(fabric.Devices())(t); len(ds) != 3 {
			t.Errorf("%d devices", len(ds))
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
	})
}

// Connections that cannot work on a wire do not work here: each end must name
// the other, with its numbers.
func TestPathMustAgree(t *testing.T) {
	for name, spoil := range map[string]func(a, b *end, attr *driver.QPAttr){
		"QP number":   func(_, _ *end, attr *driver.QPAttr) { attr.DestQPN++ },
		"GID":         func(a, _ *end, attr *driver.QPAttr) { attr.AH.DGID = a.gid },
		"source GID":  func(_, _ *end, attr *driver.QPAttr) { attr.AH.SGIDIndex = 1 },
		"receive PSN": func(_, _ *end, attr *driver.QPAttr) { attr.RQPSN = 5 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fabric, l := two(), link{timeout: 10}
				a, b := open(t, fabric.Device("mem0"), l), open(t, fabric.Device("mem1"), l)
				a.join(t, b, l)
				try(t, b.qp.Modify(&driver.QPAttr{State: driver.StateInit, Port: 1, Access: rights},
					driver.QPStateMask|driver.QPPort|driver.QPPKeyIndex|driver.QPAccessFlags))
				attr := driver.QPAttr{State: driver.StateRTR, PathMTU: driver.MTU1024, DestQPN: a.qp.Num(), AH: driver.AHAttr{DGID: a.gid, Port: 1, IsGlobal: true}}
				spoil(b, a, &attr)
				try(t, b.qp.Modify(&attr, driver.QPStateMask|driver.QPAV|driver.QPPathMTU|driver.QPDestQPN|driver.QPRQPSN|driver.QPMaxDestRdAtomic|driver.QPMinRNRTimer))
				a.post(t, a.write(1, 8, b))
				time.Sleep(time.Minute)
				var wcs [1]driver.WC
				if n := get(a.cq.Poll(wcs[:]))(t); n != 1 || wcs[0].Status != driver.RetryExcErr {
					t.Errorf("%d completions, %v; want %v", n, wcs[0].Status, driver.RetryExcErr)
				}
			})
		})
	}
}

// Each attribute of a change of state is needed, and none is allowed that is
// not.
func TestModifyWantsTheTable(t *testing.T) {
	fabric := two()
	e := open(t, fabric.Device("mem0"), link{})
	attr := driver.QPAttr{State: driver.StateInit, Port: 1, PathMTU: driver.MTU1024, AH: driver.AHAttr{DGID: e.gid, Port: 1, IsGlobal: true}}
	steps := []struct {
		to   driver.QPState
		must []driver.QPMask
	}{
		{driver.StateInit, []driver.QPMask{driver.QPPort, driver.QPPKeyIndex, driver.QPAccessFlags}},
		{driver.StateRTR, []driver.QPMask{driver.QPAV, driver.QPPathMTU, driver.QPDestQPN, driver.QPRQPSN, driver.QPMaxDestRdAtomic, driver.QPMinRNRTimer}},
		{driver.StateRTS, []driver.QPMask{driver.QPSQPSN, driver.QPTimeout, driver.QPRetryCnt, driver.QPRNRRetry, driver.QPMaxQPRdAtomic}},
	}
	for _, s := range steps {
		attr.State = s.to
		all := driver.QPStateMask
		for _, m := range s.must {
			all |= m
		}
		for _, m := range s.must {
			if err := e.qp.Modify(&attr, all&^m); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("to %v without attribute %#x: %v", s.to, m, err)
			}
		}
		if err := e.qp.Modify(&attr, all|driver.QPQKey); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("to %v with a Q_Key: %v", s.to, err)
		}
		for name, spoil := range map[string]func(*driver.QPAttr){
			"port":      func(a *driver.QPAttr) { a.Port, a.AH.Port = 2, 2 },
			"MTU":       func(a *driver.QPAttr) { a.PathMTU = 6 },
			"PSN":       func(a *driver.QPAttr) { a.RQPSN, a.SQPSN = 1<<24, 1<<24 },
			"retries":   func(a *driver.QPAttr) { a.RetryCnt = 8 },
			"GID index": func(a *driver.QPAttr) { a.AH.SGIDIndex = 200 },
		} {
			bad := attr
			spoil(&bad)
			concerns := map[string]driver.QPState{"port": driver.StateInit, "MTU": driver.StateRTR, "PSN": driver.StateRTR, "retries": driver.StateRTS, "GID index": driver.StateRTR}[name]
			if err := e.qp.Modify(&bad, all); s.to == concerns && err == nil {
				t.Fatalf("to %v with a wrong %s was taken", s.to, name)
			} else if err == nil {
				try(t, e.qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask))
				for _, again := range steps {
					if again.to >= s.to {
						break
					}
					attr.State = again.to
					mask := driver.QPStateMask
					for _, m := range again.must {
						mask |= m
					}
					try(t, e.qp.Modify(&attr, mask))
				}
				attr.State = s.to
			}
		}
		try(t, e.qp.Modify(&attr, all))
	}
}

// A caller that breaks the seam's rules is told at once.
func TestRulesOfTheSeam(t *testing.T) {
	fabric := two()
	ctx := get(fabric.Device("mem0").Open())(t)
	pd, cq := get(ctx.AllocPD())(t), get(ctx.CreateCQ(driver.CQConfig{Depth: 1}))(t)
	q := get(pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: cq, RecvCQ: cq}))(t)
	for _, c := range []struct {
		name string
		f    func() error
	}{{"PD", pd.Close}, {"CQ", cq.Close}, {"context", ctx.Close}} {
		if err := c.f(); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("close of %s in use: %v", c.name, err)
		}
	}
	try(t, q.Close())
	try(t, cq.Close())
	for name, f := range map[string]func(){
		"PostSend": func() { _, _ = q.PostSend(nil) },
		"PostRecv": func() { _, _ = q.PostRecv(nil) },
		"Query":    func() { _, _ = q.Query() },
		"QP.Close": func() { _ = q.Close() },
		"Poll":     func() { _, _ = cq.Poll(nil) },
		"Arm":      func() { _ = cq.Arm(false) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s after Close was taken", name)
				}
			}()
			f()
		}()
	}
	try(t, pd.Close())
	try(t, ctx.Close())
}

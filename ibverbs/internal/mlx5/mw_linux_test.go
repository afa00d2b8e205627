package mlx5

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	"github.com/purerdma/purerdma/internal/offheap"
)

// register registers 8192 bytes, which go with the test.
func (r *rig) register(pd driver.PD, a driver.Access) *MR {
	r.t.Helper()
	mem, err := offheap.Map(8192, offheap.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	mr, err := pd.RegMR(mem, mem.Addr(), a)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := errors.Join(mr.Close(), mem.Release()); err != nil {
			r.t.Error(err)
		}
	})
	return mr.(*MR)
}

func (r *rig) window(pd driver.PD) *MW {
	r.t.Helper()
	w, err := pd.AllocMW()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := w.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return w.(*MW)
}

// binds is a bind of 4096 bytes of m with the key's low byte.
func binds(w *MW, m *MR, low uint32) *driver.BindMW {
	return &driver.BindMW{MW: w, MR: m, Addr: m.iova + 16, Length: 4096, Access: driver.RemoteWrite | driver.RemoteRead, RKey: w.RKey()&^0xff | low}
}

const bindable = driver.LocalWrite | driver.MWBind

// done completes the request that begins at a block.
func (r *rig) done(block uint32, op uint8) driver.WC {
	r.t.Helper()
	r.complete(mlx5prm.CQEReq, block, func(e *mlx5prm.CQE) { e.SOpDropQPN[0] = op })
	wcs := r.poll(1)
	if len(wcs) != 1 {
		r.t.Fatal("no completion")
	}
	return wcs[0]
}

func TestWindowEntries(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	m := r.register(r.pd, bindable)
	w := r.window(r.pd)
	for i := range r.qp.sq.bytes(0, 1<<20) {
		r.qp.sq.bytes(0, 1<<20)[i] = 0xa5
	}
	b := binds(w, m, 0x77)
	r.post(driver.SendWR{ID: 1, Op: driver.OpBindMW, Flags: driver.Signaled, Bind: b},
		driver.SendWR{ID: 2, Op: driver.OpWrite},
		driver.SendWR{ID: 3, Op: driver.OpLocalInv, Imm: b.RKey, Flags: driver.Fence},
		driver.SendWR{ID: 4, Op: driver.OpSend, Flags: driver.Fence})
	lkey, _ := m.Keys()
	addr := fmt.Sprintf("%016x", b.Addr)
	const zero16 = "00000000000000000000000000000000"
	qpn := fmt.Sprintf("%06x", r.qp.num)
	ring := r.qp.sq.bytes(0, 1<<20)
	same(t, "bind", ring, "00000025"+qpn+"0c 00000008"+fmt.Sprintf("%08x", w.RKey())+
		"b0000000 0004 0000 00000000203c6041"+zero16+zero16+ // UMR control
		"00003000"+qpn+"77 00000000 00000000"+addr+"0000000000001000"+zero16+zero16+ // key context
		"00001000"+fmt.Sprintf("%08x", lkey)+addr+zero16+zero16+zero16)
	same(t, "the request behind it", ring[192:], "00000308"+qpn+"02 00000020 00000000")
	same(t, "invalidation", ring[256:], "00000425"+qpn+"08 00000080"+fmt.Sprintf("%08x", b.RKey)+
		"98000000 0000 0000 0000000020006000"+zero16+zero16+
		"40000000 ffffff00 00000000 00000000"+zero16+zero16+zero16)
	same(t, "the request behind it", ring[384:], "0000060a"+qpn+"01 00000080 00000000")
	if wc := r.done(0, mlx5prm.OpUMR); wc.ID != 1 || wc.Op != driver.WCBindMW {
		t.Errorf("%+v", wc)
	}
	if wc := r.done(4, mlx5prm.OpUMR); wc.ID != 3 || wc.Op != driver.WCLocalInv {
		t.Errorf("%+v", wc)
	}
}

// TestFenceGoesOnToTheNextPost has nothing behind the bind in its own post.
func TestFenceGoesOnToTheNextPost(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	b := binds(r.window(r.pd), r.register(r.pd, bindable), 1)
	r.post(driver.SendWR{Op: driver.OpBindMW, Bind: b})
	for i, want := range []uint8{mlx5prm.CtrlInitiatorSmallFence, 0} {
		block := r.qp.sq.cur
		r.post(driver.SendWR{Op: driver.OpSend})
		if got := r.qp.sq.ctrl(block * mlx5prm.SendBB).FmCeSe; got != want {
			t.Errorf("request %d has flags %#x, want %#x", i, got, want)
		}
	}
	r.post(driver.SendWR{Op: driver.OpLocalInv, Imm: b.RKey})
}

// TestWindowsAcrossTheEnd binds where each block of the entry may be the first of the
// ring.
func TestWindowsAcrossTheEnd(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	m, w := r.register(r.pd, bindable), r.window(r.pd)
	for i := range uint32(200) {
		b := binds(w, m, i&0xff)
		block := r.qp.sq.cur
		r.post(driver.SendWR{Op: driver.OpBindMW, Bind: b}, driver.SendWR{Op: driver.OpLocalInv, Imm: b.RKey})
		at := block * mlx5prm.SendBB
		if k := r.qp.sq.mkey(at + 64); k.QPNMkey.Get() != r.qp.num<<8|i&0xff || k.Len.Get() != 4096 {
			t.Fatalf("bind %d: %+v", i, k)
		}
		if l := r.qp.sq.klm(at + 128); l.Address.Get() != b.Addr {
			t.Fatalf("bind %d: %+v", i, l)
		}
		if k := r.qp.sq.mkey(at + 192 + 64); k.Free != mlx5prm.MkeyFree {
			t.Fatalf("invalidation %d: %+v", i, k)
		}
		r.done(block+3, mlx5prm.OpUMR)
	}
}

// TestBindsThatMustFail names no window where the device would not look.
func TestBindsThatMustFail(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	pd, err := r.c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pd.Close(); err != nil {
			t.Error(err)
		}
	})
	m, w := r.register(r.pd, bindable), r.window(r.pd)
	for name, change := range map[string]func(*driver.BindMW){
		"no bytes":               func(b *driver.BindMW) { b.Length = 0 },
		"before the MR":          func(b *driver.BindMW) { b.Addr = m.iova - 1 },
		"past the MR":            func(b *driver.BindMW) { b.Addr = m.iova + 8000 },
		"longer than the MR":     func(b *driver.BindMW) { b.Addr, b.Length = m.iova, 8193 },
		"end of the addresses":   func(b *driver.BindMW) { b.Addr = ^uint64(0) },
		"MR without the right":   func(b *driver.BindMW) { b.MR = r.register(r.pd, driver.LocalWrite) },
		"write to MR for reads":  func(b *driver.BindMW) { b.MR = r.register(r.pd, driver.MWBind) },
		"MR of another PD":       func(b *driver.BindMW) { b.MR = r.register(pd, bindable) },
		"window of another PD":   func(b *driver.BindMW) { o := r.window(pd); b.MW, b.RKey = o, o.RKey() },
		"atomics to MR for read": func(b *driver.BindMW) { b.MR, b.Access = r.register(r.pd, driver.MWBind), driver.RemoteAtomic },
	} {
		b := binds(w, m, 5)
		change(b)
		if b.MR != driver.MR(m) {
			b.Addr = b.MR.(*MR).iova
		}
		block := r.qp.sq.cur
		r.post(driver.SendWR{Op: driver.OpBindMW, Bind: b})
		if c := r.qp.sq.ctrl(block * mlx5prm.SendBB); c.Imm.Get() != 0 || c.DS() != 12 {
			t.Errorf("%s: key %#x, %d units", name, c.Imm.Get(), c.DS())
		}
		r.done(block, mlx5prm.OpUMR)
	}
	if m.windows.Load() != 0 {
		t.Errorf("%d windows are bound to the MR", m.windows.Load())
	}
	// A read window needs no right to write, and any part that is inside is taken.
	b := binds(w, r.register(r.pd, driver.MWBind), 6)
	b.Addr, b.Length, b.Access = b.Addr-16, 8192, driver.RemoteRead
	block := r.qp.sq.cur
	r.post(driver.SendWR{Op: driver.OpBindMW, Bind: b}, driver.SendWR{Op: driver.OpLocalInv, Imm: b.RKey})
	if c := r.qp.sq.ctrl(block * mlx5prm.SendBB); c.Imm.Get() != w.RKey() {
		t.Errorf("key %#x", c.Imm.Get())
	}
}

func TestRefusedBinds(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	other := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	m, w := r.register(r.pd, bindable), r.window(r.pd)
	type foreign struct{ driver.MW }
	closed := r.window(r.pd)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*driver.BindMW)
		want   error
	}{
		"no window":      {func(b *driver.BindMW) { b.MW = nil }, errOtherMW},
		"no MR":          {func(b *driver.BindMW) { b.MR = nil }, errOtherMW},
		"another driver": {func(b *driver.BindMW) { b.MW = foreign{} }, errOtherMW},
		"another device": {func(b *driver.BindMW) { b.MW = other.window(other.pd) }, errOtherMW},
		"zero based":     {func(b *driver.BindMW) { b.Access |= driver.ZeroBased }, errMWAccess},
		"too long":       {func(b *driver.BindMW) { b.Length = 1<<31 + 1 }, errMWTooLong},
		"key of another": {func(b *driver.BindMW) { b.RKey += 0x100 }, errMWKey},
		"closed":         {func(b *driver.BindMW) { b.MW = closed }, errClosedMW},
	} {
		b := binds(w, m, 1)
		c.change(b)
		if n, err := r.qp.PostSend([]driver.SendWR{{Op: driver.OpBindMW, Bind: b}}); n != 0 || err != c.want {
			t.Errorf("%s: %d, %v; want %v", name, n, err, c.want)
		}
	}
}

// TestMRStaysWhileBound follows a window through its lives.
func TestMRStaysWhileBound(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	m, w := r.register(r.pd, bindable), r.window(r.pd)
	busy := func(when string, want bool) {
		t.Helper()
		if got := m.windows.Load() > 0; got != want {
			t.Fatalf("%s: bound %v", when, got)
		}
		if want {
			if err := m.Close(); !errors.Is(err, driver.ErrBusy) {
				t.Errorf("%s: close the MR: %v", when, err)
			}
		}
	}
	bind := func(low uint32) *driver.BindMW {
		t.Helper()
		b := binds(w, m, low)
		block := r.qp.sq.cur
		r.post(driver.SendWR{Op: driver.OpBindMW, Bind: b})
		r.done(block, mlx5prm.OpUMR)
		return b
	}
	invalidate := func(key uint32) {
		t.Helper()
		block := r.qp.sq.cur
		r.post(driver.SendWR{Op: driver.OpLocalInv, Imm: key})
		r.done(block, mlx5prm.OpUMR)
	}
	b := bind(1)
	busy("bound", true)
	invalidate(b.RKey + 1)
	busy("another key invalidated", true)
	invalidate(b.RKey)
	busy("invalidated", false)
	b = bind(2)
	busy("bound again", true)
	taken := func(key uint32) {
		if n, err := r.qp.PostRecv([]driver.RecvWR{{}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		r.complete(mlx5prm.CQERespSendInv, r.qp.rq.head-1, func(e *mlx5prm.CQE) { e.ImmInvalPKey.Set(key) })
		r.poll(1)
	}
	taken(b.RKey - 1)
	busy("taken back by an old key", true)
	taken(b.RKey)
	busy("taken back by the peer", false)
	taken(b.RKey)
	busy("taken back twice", false)
	bind(3)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	busy("window closed", false)
}

// TestWindowGoesWithItsQP makes a window anew that a QP had bound.
func TestWindowGoesWithItsQP(t *testing.T) {
	for _, lost := range []bool{false, true} {
		r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
		m, w := r.register(r.pd, bindable), r.window(r.pd)
		untouched := r.window(r.pd)
		key := untouched.RKey()
		b := binds(w, m, 1)
		r.post(driver.SendWR{Op: driver.OpBindMW, Bind: b})
		if lost {
			r.k.Commands[uapi.CmdAllocMW] = func(*uverbstest.Call) error { return syscall.ENOMEM }
		}
		if err := r.qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask); err != nil {
			t.Fatal(err)
		}
		r.qp.Purge()
		for s := driver.StateInit; s <= driver.StateRTS; s++ {
			if err := r.qp.Modify(&driver.QPAttr{State: s}, driver.QPStateMask); err != nil {
				t.Fatal(err)
			}
		}
		if m.windows.Load() != 0 || untouched.RKey() != key {
			t.Error("the window is still bound, or another was made anew")
		}
		if lost {
			if _, err := r.qp.PostSend([]driver.SendWR{{Op: driver.OpBindMW, Bind: b}}); !errors.Is(err, syscall.ENOMEM) {
				t.Error(err)
			}
			continue
		}
		if w.RKey()>>8 == b.RKey>>8 {
			t.Errorf("the key is still %#x", w.RKey())
		}
		if _, err := r.qp.PostSend([]driver.SendWR{{Op: driver.OpBindMW, Bind: b}}); err != errMWKey {
			t.Error(err)
		}
		again := binds(w, m, 2)
		r.post(driver.SendWR{Op: driver.OpBindMW, Bind: again}, driver.SendWR{Op: driver.OpLocalInv, Imm: again.RKey})
	}
}

// TestWindowOfAFailedQP is not bound by another before that one goes.
func TestWindowOfAFailedQP(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	qp, err := r.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: r.cq, RecvCQ: r.cq, Cap: small})
	if err != nil {
		t.Fatal(err)
	}
	for s := driver.StateInit; s <= driver.StateRTS; s++ {
		if err := qp.Modify(&driver.QPAttr{State: s}, driver.QPStateMask); err != nil {
			t.Fatal(err)
		}
	}
	m, w := r.register(r.pd, bindable), r.window(r.pd)
	r.post(driver.SendWR{Op: driver.OpBindMW, Bind: binds(w, m, 1)})
	if err := r.qp.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask); err != nil {
		t.Fatal(err)
	}
	if n, err := qp.PostSend([]driver.SendWR{{Op: driver.OpBindMW, Bind: binds(w, m, 2)}}); n != 0 || err != errMWOfFailedQP {
		t.Error(n, err)
	}
	if err := r.qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask); err != nil {
		t.Fatal(err)
	}
	b := binds(w, m, 3)
	if n, err := qp.PostSend([]driver.SendWR{{Op: driver.OpBindMW, Bind: b}, {Op: driver.OpLocalInv, Imm: b.RKey}}); n != 2 || err != nil {
		t.Error(n, err)
	}
	if err := qp.Close(); err != nil {
		t.Error(err)
	}
	qp.Purge()
}

func TestBindsAllocateNothing(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	b := binds(r.window(r.pd), r.register(r.pd, bindable), 1)
	wrs := []driver.SendWR{{Op: driver.OpBindMW, Bind: b}, {Op: driver.OpLocalInv, Imm: b.RKey}}
	var wcs [2]driver.WC
	if n := testing.AllocsPerRun(100, func() {
		block := r.qp.sq.cur
		n, err := r.qp.PostSend(wrs)
		r.complete(mlx5prm.CQEReq, block+3, nil)
		if got, err1 := r.cq.Poll(wcs[:]); n != 2 || got != 1 || errors.Join(err, err1) != nil {
			t.Fatal(n, got, err, err1)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestProbeOfWindows(t *testing.T) {
	k := newFake()
	c := k.open(t, 64)
	if err := c.Probe(driver.FeatureMW2); err != nil {
		t.Error(err)
	}
	k.Commands[uapi.CmdAllocMW] = func(*uverbstest.Call) error { return syscall.EPROTONOSUPPORT }
	var not *driver.NotSupportedError
	if err := c.Probe(driver.FeatureMW2); !errors.As(err, &not) || not.By != driver.LacksKernel {
		t.Error(err)
	}
}

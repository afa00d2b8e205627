package drivertest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// testMW is memory windows of type 2, and what takes their keys back. What Linux 6.1
// does otherwise for Soft-RoCE than the IBTA is not asked for: there a window reaches
// as far as its MR, whatever its own bounds are; a message of any QP may invalidate a
// window, and the kernel does not survive it for one that is not bound.
func testMW(t *testing.T, cfg Config) {
	if _, b := open(t, cfg); !b.hasMW() {
		if _, err := b.otherPD().AllocMW(); !cfg.NoMW && !errors.Is(err, driver.ErrNotSupported) {
			t.Errorf("AllocMW, which Probe says is not there: error %v, want %v", err, driver.ErrNotSupported)
		}
		t.Skip("the device has no memory windows of type 2")
	}
	for _, part := range []struct {
		name string
		run  func(*testing.T, Config)
	}{
		{"Access", testMWAccess},
		{"Denied", testMWDenied},
		{"BindErrors", testMWBindErrors},
		{"Refusals", testMWRefusals},
		{"SendWithInv", testSendWithInv},
		{"SendWithInvErrors", testSendWithInvErrors},
		{"Lifetime", testMWLifetime},
		{"QPGoes", testMWQPGoes},
		{"Rotation", testMWRotation},
		{"Allocations", testMWAllocations},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, cfg) })
	}
}

func (s *side) hasMW() bool { return !s.cfg.NoMW && s.Context.Probe(driver.FeatureMW2) == nil }

// window is a memory window, and an MR without remote rights to bind it to.
type window struct {
	driver.MW
	s    *side
	mem  driver.Span
	mr   driver.MR
	key  uint32
	once sync.Once
	mrs  sync.Once
}

const windowSize = 64 << 10

func (s *side) newWindow() *window { return s.newWindowOf(s.pd, driver.LocalWrite|driver.MWBind) }

func (s *side) newWindowOf(pd driver.PD, a driver.Access) *window {
	w := &window{s: s, mem: alloc(s.t, windowSize)}
	var err error
	// Not by reg: a driver is given its own MR in a BindMW.
	w.mr, err = pd.RegMR(w.mem, w.mem.Addr(), a)
	must(s.t, "register memory", err)
	s.t.Cleanup(func() { check(s.t, "close MR", w.closeMR()) })
	w.MW, err = pd.AllocMW()
	must(s.t, "allocate MW", err)
	s.t.Cleanup(func() { check(s.t, "close MW", w.close()) })
	w.key = w.RKey()
	return w
}

func (w *window) close() (err error) {
	w.once.Do(func() { err = w.MW.Close() })
	return err
}

func (w *window) closeMR() (err error) {
	w.mrs.Do(func() { err = w.mr.Close() })
	return err
}

// next is a bind of bytes off to off+n with the next key.
func (w *window) next(off, n int, a driver.Access) *driver.BindMW {
	w.key = w.key&^0xff | (w.key+1)&0xff
	return &driver.BindMW{MW: w.MW, MR: w.mr, Addr: w.mem.Addr() + uint64(off), Length: uint64(n), Access: a, RKey: w.key}
}

const windowAccess = driver.RemoteWrite | driver.RemoteRead

// bind binds all of it and waits for that.
func (w *window) bind(a driver.Access) driver.Remote {
	w.s.t.Helper()
	b := w.next(0, windowSize, a)
	r := b.Remote()
	w.s.postSend(driver.SendWR{ID: 0xb1d, Op: driver.OpBindMW, Flags: driver.Signaled, Bind: b})
	if wc := w.s.one(0xb1d, driver.Success); wc.Op != driver.WCBindMW {
		w.s.t.Errorf("bind completed as %v", wc.Op)
	}
	return r
}

// invalidate frees it and waits for that.
func (w *window) invalidate() {
	w.s.t.Helper()
	w.s.postSend(driver.SendWR{ID: 0x1f, Op: driver.OpLocalInv, Flags: driver.Signaled, Imm: w.key})
	if wc := w.s.one(0x1f, driver.Success); wc.Op != driver.WCLocalInv {
		w.s.t.Errorf("invalidation completed as %v", wc.Op)
	}
}

// write and read move n bytes at off of the peer's window, and are waited for.
func (s *side) through(t *testing.T, op driver.Opcode, w *window, r driver.Remote, off, n int) {
	t.Helper()
	fill(s.bytes(0, n), byte(off+n))
	fill(w.mem.Bytes(), 0xee)
	if op == driver.OpRead {
		fill(s.bytes(0, n), 0x11)
		fill(w.mem.Bytes()[off:off+n], byte(off+n))
	}
	r.Addr += uint64(off)
	s.postSend(driver.SendWR{ID: 9, Op: op, Flags: driver.Signaled, SGL: []driver.SGE{s.sge(0, n)}, Remote: r})
	s.one(9, driver.Success)
	same := bytes.Equal(s.bytes(0, n), w.mem.Bytes()[off:off+n])
	if !same || n > 0 && s.bytes(0, 1)[0] != byte(off+n) {
		t.Errorf("%v of %d bytes at %d through a window moved something else", op, n, off)
	}
}

func testMWAccess(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{})
	w := b.newWindow()
	for round := range 3 {
		r := w.bind(windowAccess)
		if r.RKey>>8 != w.RKey()>>8 {
			t.Errorf("the key %#x of a window became %#x", w.RKey(), r.RKey)
		}
		for _, n := range []int{1, 8, 4*a.mtu().Bytes() + 3} {
			a.through(t, driver.OpWrite, w, r, 64+round, n)
			a.through(t, driver.OpRead, w, r, 128+round, n)
		}
		a.through(t, driver.OpWrite, w, r, 0, 5)
		a.through(t, driver.OpRead, w, r, windowSize-5, 5)
		w.invalidate()
	}
	// Another part of the MR, and the rights of the window alone.
	bind := w.next(4096, 8192, driver.RemoteRead)
	r := bind.Remote()
	b.postSend(driver.SendWR{ID: 1, Op: driver.OpBindMW, Flags: driver.Signaled, Bind: bind})
	b.one(1, driver.Success)
	fill(w.mem.Bytes(), 0x77)
	a.postSend(driver.SendWR{ID: 2, Op: driver.OpRead, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8192)}, Remote: r})
	a.one(2, driver.Success)
	if !bytes.Equal(a.bytes(0, 8192), w.mem.Bytes()[4096:4096+8192]) {
		t.Error("read something else")
	}
	// A fence waits for the read before it.
	b.postSend(
		driver.SendWR{ID: 3, Op: driver.OpRead, Flags: driver.Signaled, SGL: []driver.SGE{b.sge(0, 4096)}, Remote: a.remote(0)},
		driver.SendWR{ID: 4, Op: driver.OpLocalInv, Flags: driver.Signaled | driver.Fence, Imm: w.key})
	b.one(3, driver.Success)
	b.one(4, driver.Success)
}

// testMWDenied asks through a window for what it does not give.
func testMWDenied(t *testing.T, cfg Config) {
	for _, c := range []struct {
		name   string
		op     driver.Opcode
		remote func(a, b *side, w *window) (who *side, r driver.Remote)
	}{
		{"never bound", driver.OpWrite, func(a, _ *side, w *window) (*side, driver.Remote) {
			return a, driver.Remote{Addr: w.mem.Addr(), RKey: w.RKey()}
		}},
		{"invalidated", driver.OpWrite, func(a, _ *side, w *window) (*side, driver.Remote) {
			r := w.bind(windowAccess)
			w.invalidate()
			return a, r
		}},
		{"key of the bind before", driver.OpRead, func(a, _ *side, w *window) (*side, driver.Remote) {
			r := w.bind(windowAccess)
			w.invalidate()
			w.bind(windowAccess)
			return a, r
		}},
		{"closed", driver.OpWrite, func(a, _ *side, w *window) (*side, driver.Remote) {
			r := w.bind(windowAccess)
			must(w.s.t, "close MW", w.close())
			return a, r
		}},
		{"write through a window for reads", driver.OpWrite, func(a, _ *side, w *window) (*side, driver.Remote) {
			return a, w.bind(driver.RemoteRead)
		}},
		{"read through a window for writes", driver.OpRead, func(a, _ *side, w *window) (*side, driver.Remote) {
			return a, w.bind(driver.RemoteWrite)
		}},
		{"before it", driver.OpWrite, func(a, _ *side, w *window) (*side, driver.Remote) {
			r := w.bind(windowAccess)
			r.Addr--
			return a, r
		}},
		{"past it", driver.OpRead, func(a, _ *side, w *window) (*side, driver.Remote) {
			r := w.bind(windowAccess)
			r.Addr += windowSize - 7
			return a, r
		}},
		{"around the end of the address space", driver.OpWrite, func(a, _ *side, w *window) (*side, driver.Remote) {
			r := w.bind(windowAccess)
			r.Addr = ^uint64(0) - 3
			return a, r
		}},
		{"another QP", driver.OpWrite, func(a, b *side, w *window) (*side, driver.Remote) {
			a2, b2 := a.twin(), b.twin()
			a2.peer, b2.peer = b2, a2
			want := setup{}.withDefaults(a.cfg)
			a2.init(want)
			b2.init(want)
			a2.join(want)
			b2.join(want)
			return a2, w.bind(windowAccess)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := connect(t, cfg, setup{})
			w := b.newWindow()
			who, r := c.remote(a, b, w)
			fill(w.mem.Bytes(), 0xee)
			fill(a.bytes(0, 8), 0x11)
			who.postSend(driver.SendWR{ID: 1, Op: c.op, SGL: []driver.SGE{a.sge(0, 8)}, Remote: r}, follow)
			who.failed(t, driver.RemAccessErr)
			who.peer.awaitState(driver.StateErr)
			for i, v := range w.mem.Bytes() {
				if v != 0xee {
					t.Fatalf("byte %d of the window changed", i)
				}
			}
			for i, v := range a.bytes(0, 8) {
				if v != 0x11 {
					t.Fatalf("byte %d was read", i)
				}
			}
		})
	}
}

// testMWBindErrors has binds and invalidations that end in error, and the queue pair
// with them.
func testMWBindErrors(t *testing.T, cfg Config) {
	bind := func(b *driver.BindMW) driver.SendWR { return driver.SendWR{Op: driver.OpBindMW, Bind: b} }
	for _, c := range []struct {
		name string
		wr   func(s *side) driver.SendWR
	}{
		{"MR without the right", func(s *side) driver.SendWR {
			return bind(s.newWindowOf(s.pd, driver.LocalWrite).next(0, 4096, windowAccess))
		}},
		{"before the MR", func(s *side) driver.SendWR { return bind(s.newWindow().next(-1, 8, windowAccess)) }},
		{"past the MR", func(s *side) driver.SendWR { return bind(s.newWindow().next(windowSize-7, 8, windowAccess)) }},
		{"longer than the MR", func(s *side) driver.SendWR { return bind(s.newWindow().next(0, windowSize+1, windowAccess)) }},
		{"no bytes", func(s *side) driver.SendWR { return bind(s.newWindow().next(0, 0, windowAccess)) }},
		{"bound already", func(s *side) driver.SendWR {
			w := s.newWindow()
			w.bind(windowAccess)
			return bind(w.next(0, 4096, windowAccess))
		}},
		{"window of another PD", func(s *side) driver.SendWR {
			return bind(s.newWindowOf(s.otherPD(), driver.LocalWrite|driver.MWBind).next(0, 4096, windowAccess))
		}},
		{"invalidate an MR", func(s *side) driver.SendWR { return driver.SendWR{Op: driver.OpLocalInv, Imm: s.rkey()} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := connect(t, cfg, setup{})
			a.postRecv(driver.RecvWR{ID: 50})
			wr := c.wr(b)
			wr.ID = 1
			b.postSend(wr, follow)
			// The memory management operation error of the IBTA is this one in the verbs.
			b.failed(t, driver.MWBindErr, driver.LocQPOpErr)
			a.none()
		})
	}
}

// testMWRefusals posts binds of nothing.
func testMWRefusals(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{})
	w := b.newWindow()
	for name, bind := range map[string]func(*driver.BindMW) *driver.BindMW{
		"no bind":      func(*driver.BindMW) *driver.BindMW { return nil },
		"no window":    func(b *driver.BindMW) *driver.BindMW { b.MW = nil; return b },
		"no MR":        func(b *driver.BindMW) *driver.BindMW { b.MR = nil; return b },
		"other driver": func(b *driver.BindMW) *driver.BindMW { b.MW = foreignMW{}; return b },
	} {
		if n, err := b.trySend(driver.SendWR{ID: 1, Op: driver.OpBindMW, Bind: bind(w.next(0, 8, windowAccess))}); n != 0 || err == nil {
			t.Errorf("%s: %d posted, %v", name, n, err)
		}
	}
	b.none()
	a.through(t, driver.OpWrite, w, w.bind(windowAccess), 0, 8)
}

type foreignMW struct{}

func (foreignMW) RKey() uint32 { return 256 }
func (foreignMW) Close() error { return nil }

// testSendWithInv has the peer's message free a window.
func testSendWithInv(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{})
	w := b.newWindow()
	for i, n := range []int{0, 8, a.mtu().Bytes(), 3*a.mtu().Bytes() + 5} {
		r := w.bind(windowAccess)
		a.through(t, driver.OpWrite, w, r, i, 8)
		fill(a.bytes(0, n), byte(0x40+i))
		fill(b.bytes(0, n+1), 0)
		b.postRecv(driver.RecvWR{ID: 7, SGL: []driver.SGE{b.sge(0, 32<<10)}})
		a.postSend(driver.SendWR{ID: 8, Op: driver.OpSendWithInv, Flags: driver.Signaled, Imm: r.RKey, SGL: []driver.SGE{a.sge(0, n)}})
		if wc := a.one(8, driver.Success); wc.Op != driver.WCSend {
			t.Errorf("completed as %v", wc.Op)
		}
		wc := b.one(7, driver.Success)
		if wc.Op != driver.WCRecv || wc.ByteLen != uint32(n) || wc.Flags&(driver.WCWithInv|driver.WCWithImm) != driver.WCWithInv || wc.Imm != r.RKey {
			t.Errorf("receive of %d bytes is %+v, want key %#x", n, wc, r.RKey)
		}
		if !bytes.Equal(a.bytes(0, n), b.bytes(0, n)) || b.bytes(n, 1)[0] != 0 {
			t.Errorf("message of %d bytes differs", n)
		}
	}
	// The window is free: its MR can go, and the key opens nothing.
	must(t, "close MR", w.closeMR())
	a.postSend(driver.SendWR{ID: 1, Op: driver.OpWrite, SGL: []driver.SGE{a.sge(0, 8)}, Remote: driver.Remote{Addr: w.mem.Addr(), RKey: w.key}}, follow)
	a.failed(t, driver.RemAccessErr)
}

// testSendWithInvErrors invalidates what is not a window: the receive ends in error
// and the QP with it, without a NAK, so that the peer may take its own message as
// sent.
func testSendWithInvErrors(t *testing.T, cfg Config) {
	for name, key := range map[string]func(b *side) uint32{
		"MR":      func(b *side) uint32 { return b.rkey() },
		"unknown": func(b *side) uint32 { return b.rkey() ^ 0x00700000 },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := connect(t, cfg, setup{})
			b.postRecv(driver.RecvWR{ID: 50, SGL: []driver.SGE{b.sge(0, 64)}}, driver.RecvWR{ID: 51})
			a.postSend(driver.SendWR{ID: 1, Op: driver.OpSendWithInv, Flags: driver.Signaled, Imm: key(b), SGL: []driver.SGE{a.sge(0, 8)}})
			b.oneOf(50, driver.RemInvReqErr, driver.RemAccessErr, driver.LocQPOpErr)
			b.one(51, driver.WRFlushErr)
			b.awaitState(driver.StateErr)
			wc := a.oneOf(1, driver.Success, driver.RetryExcErr, driver.RemInvReqErr, driver.RemAccessErr)
			a.postSend(driver.SendWR{ID: 2, Op: driver.OpWrite, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)})
			if wc.Status == driver.Success {
				a.one(2, driver.RetryExcErr)
			} else {
				a.one(2, driver.WRFlushErr)
			}
			// The MR is as it was.
			mr := b.reg(b.pd, b.mem, driver.LocalWrite)
			check(t, "close MR", mr.Close())
		})
	}
}

// testMWLifetime closes what is bound.
func testMWLifetime(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{})
	w := b.newWindow()
	r := w.bind(windowAccess)
	wantErr(t, "close an MR that a window is bound to", w.mr.Close(), driver.ErrBusy)
	a.through(t, driver.OpWrite, w, r, 5, 100)
	must(t, "close a window that is bound", w.close())
	must(t, "close the MR that it was bound to", w.closeMR())
	// Two windows on one MR.
	w = b.newWindow()
	second, err := b.pd.AllocMW()
	must(t, "allocate MW", err)
	w.bind(windowAccess)
	b.postSend(driver.SendWR{ID: 1, Op: driver.OpBindMW, Flags: driver.Signaled, Bind: &driver.BindMW{
		MW: second, MR: w.mr, Addr: w.mem.Addr(), Length: 8, Access: driver.RemoteRead, RKey: second.RKey() | 0x55}})
	b.one(1, driver.Success)
	w.invalidate()
	wantErr(t, "close an MR that the second window is bound to", w.mr.Close(), driver.ErrBusy)
	must(t, "close the second window", second.Close())
	must(t, "close the MR", w.closeMR())
}

// testMWQPGoes has the QP go that a window is bound by: the window is free.
func testMWQPGoes(t *testing.T, cfg Config) {
	want := setup{}.withDefaults(cfg)
	for name, goes := range map[string]func(b *side){
		"closed":             func(b *side) { b.closeQP() },
		"reset":              func(b *side) { b.state(driver.StateReset) },
		"closed in error":    func(b *side) { b.state(driver.StateErr); b.closeQP() },
		"reset after errors": func(b *side) { b.state(driver.StateErr); b.state(driver.StateReset) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := connect(t, cfg, setup{})
			a2, b2 := a.twin(), b.twin()
			a2.peer, b2.peer = b2, a2
			a2.init(want)
			b2.init(want)
			a2.join(want)
			b2.join(want)
			w := b.newWindow()
			old := w.bind(windowAccess)
			goes(b)
			w.key = w.RKey()&^0xff | w.key&0xff
			w.s = b2
			r := w.bind(windowAccess)
			a2.through(t, driver.OpWrite, w, r, 7, 100)
			w.invalidate()
			must(t, "close the MR that the window was bound to", w.closeMR())
			if old.RKey == r.RKey {
				t.Errorf("the key %#x came back", r.RKey)
			}
		})
	}
}

// testMWRotation has a window follow its messages: bound and announced in one post,
// written through, taken back by the writer's message. Its key comes around.
func testMWRotation(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{})
	w := b.newWindow()
	rng := rand.New(rand.NewPCG(cfg.Seed, 77))
	for i := range cfg.Rounds {
		n := 1 + rng.IntN(8<<10)
		bind := w.next(rng.IntN(windowSize-n), n, driver.RemoteWrite)
		r := bind.Remote()
		fill(a.bytes(64, n), byte(i))
		a.postRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{a.sge(0, 16)}})
		b.postRecv(driver.RecvWR{ID: 2})
		offer := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, r.Addr), r.RKey)
		b.postSend(
			driver.SendWR{ID: 3, Op: driver.OpBindMW, Bind: bind},
			driver.SendWR{ID: 4, Op: driver.OpSend, Inline: offer})
		a.one(1, driver.Success)
		got := driver.Remote{Addr: binary.LittleEndian.Uint64(a.bytes(0, 8)), RKey: binary.LittleEndian.Uint32(a.bytes(8, 4))}
		a.postSend(
			driver.SendWR{ID: 5, Op: driver.OpWrite, SGL: []driver.SGE{a.sge(64, n)}, Remote: got},
			driver.SendWR{ID: 6, Op: driver.OpSendWithInv, Flags: driver.Signaled, Imm: got.RKey})
		a.one(6, driver.Success)
		if wc := b.one(2, driver.Success); wc.Imm != r.RKey || wc.Flags&driver.WCWithInv == 0 {
			t.Fatalf("round %d: %+v, want key %#x", i, wc, r.RKey)
		}
		at := int(r.Addr - w.mem.Addr())
		if !bytes.Equal(w.mem.Bytes()[at:at+n], a.bytes(64, n)) {
			t.Fatalf("round %d: the window does not hold the %d bytes that were written", i, n)
		}
		if i%4 == 3 { // frees the places of what was not signaled
			b.postSend(driver.SendWR{ID: 10, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{b.sge(0, 8)}, Remote: a.remote(32 << 10)})
			b.one(10, driver.Success)
		}
	}
}

// testMWAllocations counts allocations of binding, and of the messages that take the
// window back.
func testMWAllocations(t *testing.T, cfg Config) {
	if cfg.PostAllocates {
		t.Skip("Config.PostAllocates")
	}
	a, b := connect(t, cfg, setup{})
	w := b.newWindow()
	bind := w.next(0, windowSize, windowAccess)
	inv := []driver.SendWR{{ID: 1, Op: driver.OpSendWithInv, Flags: driver.Signaled, Imm: w.key, SGL: []driver.SGE{a.sge(0, 64)}}}
	recvs := []driver.RecvWR{{ID: 2, SGL: []driver.SGE{b.sge(0, 64)}}}
	binds := []driver.SendWR{
		{ID: 3, Op: driver.OpBindMW, Bind: bind}, {ID: 4, Op: driver.OpLocalInv, Imm: w.key},
		{ID: 5, Op: driver.OpBindMW, Flags: driver.Signaled, Bind: bind},
	}
	wcs := make([]driver.WC, 4)
	got := testing.AllocsPerRun(cfg.Rounds, func() {
		if n, err := b.qp.PostSend(binds); n != 3 || err != nil {
			t.Fatalf("post binds: %d, %v", n, err)
		}
		b.cq.drain(t, cfg, wcs)
		if n, err := b.qp.PostRecv(recvs); n != 1 || err != nil {
			t.Fatalf("post receive: %d, %v", n, err)
		}
		if n, err := a.qp.PostSend(inv); n != 1 || err != nil {
			t.Fatalf("post send: %d, %v", n, err)
		}
		a.cq.drain(t, cfg, wcs)
		b.cq.drain(t, cfg, wcs)
	})
	if got != 0 {
		t.Errorf("binding and invalidating allocates %v times a round", got)
	}
}

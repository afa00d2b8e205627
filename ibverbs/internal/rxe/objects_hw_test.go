//go:build hw && linux

package rxe

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

const (
	testQKey = 0x12345
	grh      = 40 // bytes of the global route header before a datagram
)

// turn replaces the QP of an end.
func (e *end) turn(c driver.QPConfig) {
	e.t.Helper()
	must(e.t, e.qp.Close())
	e.qp = nil
	c.SendCQ, c.RecvCQ = e.cq, e.cq
	if c.Cap == (driver.QPCap{}) {
		c.Cap = driver.QPCap{SendWR: 16, RecvWR: 16, SendSGE: 2, RecvSGE: 2, Inline: 64}
	}
	e.qp = get(e.pd.CreateQP(c))(e.t).(*QP)
}

// datagrams makes the QP one of type UD, in RTS.
func (e *end) datagrams() {
	e.t.Helper()
	e.turn(driver.QPConfig{Type: driver.UD})
	must(e.t, e.qp.Modify(&driver.QPAttr{State: driver.StateInit, Port: 1, QKey: testQKey}, driver.QPStateMask|driver.QPPKeyIndex|driver.QPPort|driver.QPQKey))
	must(e.t, e.qp.Modify(&driver.QPAttr{State: driver.StateRTR}, driver.QPStateMask))
	must(e.t, e.qp.Modify(&driver.QPAttr{State: driver.StateRTS}, driver.QPStateMask|driver.QPSQPSN))
}

func (e *end) handle(a driver.AHAttr) *AH {
	e.t.Helper()
	ah := get(e.pd.CreateAH(a))(e.t).(*AH)
	e.t.Cleanup(func() { must(e.t, ah.Close()) })
	return ah
}

func (e *end) wayTo(g driver.GID) driver.AHAttr {
	return driver.AHAttr{DGID: g, SGIDIndex: e.at.gid.Index, Port: 1, HopLimit: 8, TrafficClass: 0x68, IsGlobal: true}
}

// A datagram arrives behind the route header, with the number of its sender.
func TestHWDatagrams(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rand.Rand, at, there place) {
		a, b := open(t, at, shape{}), open(t, there, shape{})
		a.datagrams()
		b.datagrams()
		to := driver.Destination{AH: a.handle(a.wayTo(there.gid.GID)), QPN: b.qp.num, QKey: testQKey}
		fill(r, a.mem.Bytes()[:200])
		b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(0, 512)}}, driver.RecvWR{ID: 2, SGL: []driver.SGE{b.sge(512, 512)}})
		a.send(driver.SendWR{ID: 1, Op: driver.OpSendWithImm, Flags: driver.Signaled, Imm: 77, SGL: []driver.SGE{a.sge(0, 200)}, UD: to})
		a.one(driver.Success)
		wc := b.one(driver.Success)
		want := driver.WC{ID: 1, Op: driver.WCRecv, ByteLen: grh + 200, Imm: 77, QPN: b.qp.num, SrcQP: a.qp.num, Flags: driver.WCWithImm | driver.WCGRH}
		if wc != want {
			t.Errorf("completion %+v, want %+v", wc, want)
		}
		if !slices.Equal(b.mem.Bytes()[grh:grh+200], a.mem.Bytes()[:200]) {
			t.Error("other data arrived")
		}
		// The sender's own Q_Key.
		to.QKey = 1 << 31
		a.send(driver.SendWR{ID: 2, Op: driver.OpSend, Flags: driver.Signaled, Inline: []byte("inline"), UD: to})
		a.one(driver.Success)
		if wc := b.one(driver.Success); wc.ByteLen != grh+6 || string(b.mem.Bytes()[512+grh:][:6]) != "inline" {
			t.Errorf("%+v", wc)
		}
		// Another one is dropped.
		to.QKey = testQKey + 1
		b.recv(driver.RecvWR{ID: 3, SGL: []driver.SGE{b.sge(0, 512)}})
		a.send(driver.SendWR{ID: 3, Op: driver.OpSend, Flags: driver.Signaled, UD: to})
		a.one(driver.Success)
		b.none()
	})
}

// A datagram longer than the MTU is refused: the kernel drops it and says that it
// was sent.
func TestHWDatagramLongerThanMTU(t *testing.T) {
	a, b := local(t, shape{})
	a.datagrams()
	b.datagrams()
	to := driver.Destination{AH: a.handle(a.wayTo(b.at.gid.GID)), QPN: b.qp.num, QKey: testQKey}
	n := a.at.mtu.Bytes()
	b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(0, grh+n)}})
	if k, err := a.qp.PostSend([]driver.SendWR{{Op: driver.OpSend, SGL: []driver.SGE{a.sge(0, n+1)}, UD: to}}); k != 0 || err != errDatagram {
		t.Errorf("posted %d, %v", k, err)
	}
	a.send(driver.SendWR{ID: 1, Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, n)}, UD: to})
	a.one(driver.Success)
	if wc := b.one(driver.Success); int(wc.ByteLen) != grh+n {
		t.Errorf("%+v", wc)
	}
}

// What an address handle is refused for is said.
func TestHWAddressHandleRefused(t *testing.T) {
	a := open(t, pairOne(t), shape{})
	var four, six driver.GIDEntry
	for _, g := range get(a.dev.GIDs(1))(t) {
		if g.GID.Addr().Is4() {
			four = g
		} else if !g.GID.Addr().IsLinkLocalUnicast() {
			six = g
		}
	}
	way := func(f func(*driver.AHAttr)) driver.AHAttr {
		w := driver.AHAttr{DGID: four.GID, SGIDIndex: four.Index, Port: 1, IsGlobal: true}
		f(&w)
		return w
	}
	for _, tt := range []struct {
		a     driver.AHAttr
		errno error
		words []string
	}{
		{way(func(a *driver.AHAttr) { a.DGID = six.GID }), syscall.EINVAL, []string{"are of two families", "choose the index of an IPv6 address"}},
		{way(func(a *driver.AHAttr) { a.SGIDIndex = 200 }), syscall.ENODATA, []string{"GID index 200 is empty"}},
		{way(func(a *driver.AHAttr) { a.SGIDIndex = 2000 }), syscall.EINVAL, []string{"the GID index is 2000, the device takes 0 to 255"}},
		{way(func(a *driver.AHAttr) { a.Port = 2 }), syscall.EINVAL, []string{"the port is 2, the device has 1 to 1"}},
		{way(func(a *driver.AHAttr) { a.FlowLabel = 1 << 20 }), syscall.EINVAL, []string{"flow label"}},
		{way(func(a *driver.AHAttr) { a.DGID[15] = 99 }), syscall.ETIMEDOUT, []string{"no answer to address resolution", "10.9.0.99"}},
	} {
		_, err := a.pd.CreateAH(tt.a)
		hinted(t, err, tt.errno, tt.words...)
		t.Log(err)
	}
	if _, err := a.pd.CreateAH(way(func(a *driver.AHAttr) { a.IsGlobal = false })); err != errNotGlobal {
		t.Error(err)
	}
}

func pairOne(t *testing.T) place {
	t.Helper()
	a, _ := pair(t, random(t), false)
	return a
}

// A datagram to a group reaches each QP that is attached, and no other.
func TestHWMulticast(t *testing.T) {
	for name, group := range map[string]driver.GID{
		"IPv4": {10: 0xff, 11: 0xff, 12: 239, 13: 1, 14: 2, 15: 3},
		"IPv6": {0xff, 0x0e, 15: 0x77},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, r *rand.Rand, at, there place) { multicast(t, group, at, there) })
		})
	}
}

func multicast(t *testing.T, group driver.GID, at, there place) {
	for _, p := range []*place{&at, &there} {
		for _, g := range places(t) {
			if g.dev.Info().Name == p.dev.Info().Name && g.gid.GID.Addr().Is4() == group.Addr().Is4() {
				*p = g
			}
		}
	}
	a, b, c, other := open(t, at, shape{}), open(t, there, shape{}), open(t, there, shape{}), open(t, there, shape{})
	for _, e := range []*end{a, b, c, other} {
		e.datagrams()
		e.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{e.sge(0, 512)}}, driver.RecvWR{ID: 2, SGL: []driver.SGE{e.sge(0, 512)}})
	}
	to := driver.Destination{AH: a.handle(a.wayTo(group)), QPN: 0xffffff, QKey: testQKey}
	send := func() {
		t.Helper()
		a.send(driver.SendWR{ID: 9, Op: driver.OpSend, Flags: driver.Signaled, Inline: []byte("to all"), UD: to})
		a.one(driver.Success)
	}
	send()
	b.none()
	for _, e := range []*end{b, c} {
		must(t, e.qp.Multicast(group, 0, true))
		must(t, e.qp.Multicast(group, 0, true)) // twice is once
	}
	send()
	for _, e := range []*end{b, c} {
		if wc := e.one(driver.Success); wc.SrcQP != a.qp.num || wc.ByteLen != grh+6 || string(e.mem.Bytes()[grh:][:6]) != "to all" {
			t.Errorf("%+v", wc)
		}
	}
	other.none()
	must(t, b.qp.Multicast(group, 0, false))
	hinted(t, b.qp.Multicast(group, 0, false), syscall.EINVAL, "not attached")
	send()
	c.one(driver.Success)
	b.none()
	// c is attached when it is closed.
}

// A CQ changes its size while completions arrive, and loses none.
func TestHWResizeCQ(t *testing.T) {
	a, b := local(t, shape{depth: 64, cq: 127})
	a.to(driver.StateRTS, b)
	b.to(driver.StateRTS, a)
	next, seen := uint64(0), uint64(0)
	poll := func() {
		t.Helper()
		var wcs [7]driver.WC
		n := get(a.cq.Poll(wcs[:]))(t)
		for _, wc := range wcs[:n] {
			if wc.ID != seen || wc.Status != driver.Success {
				t.Fatalf("completion %+v, want request %d", wc, seen)
			}
			seen++
		}
	}
	for i := range 40 {
		for range 9 {
			a.send(driver.SendWR{ID: next, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)})
			next++
		}
		poll()
		depth := []int{100, 400, 130, 64}[i%4]
		must(t, a.cq.Resize(depth))
		if a.cq.Depth() < depth {
			t.Errorf("depth %d after a resize to %d", a.cq.Depth(), depth)
		}
		for next-seen > 40 {
			poll()
			runtime.Gosched()
		}
	}
	for end := time.Now().Add(patience); seen < next; runtime.Gosched() {
		if poll(); time.Now().After(end) {
			t.Fatalf("%d completions of %d", seen, next)
		}
	}
	for range 8 {
		a.send(driver.SendWR{ID: next, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)})
		next++
	}
	a.filled(8)
	hinted(t, a.cq.Resize(3), syscall.EINVAL, "more than 3 completions are in the queue")
	hinted(t, a.cq.Resize(1<<20), syscall.EINVAL, "the depth is 1048576")
	for seen < next {
		poll()
	}
}

// windowed gives b memory with a window, and a QP pair.
func windowed(t *testing.T) (a, b *end, w *MW) {
	a, b = local(t, shape{})
	b.closeMR()
	b.mr = get(b.pd.RegMR(b.mem, b.mem.Addr(), driver.LocalWrite|driver.MWBind))(t)
	b.lkey, b.rkey = b.mr.Keys()
	a.to(driver.StateRTS, b)
	b.to(driver.StateRTS, a)
	w = get(b.pd.AllocMW())(t).(*MW)
	t.Cleanup(func() { must(t, w.Close()) })
	return a, b, w
}

func (e *end) closeMR() { e.t.Helper(); must(e.t, e.mr.Close()) }

// binding is a bind of the first 4 KiB with the next key.
func (e *end) binding(w *MW) *driver.BindMW {
	key := w.RKey()
	return &driver.BindMW{MW: w, MR: e.mr, Addr: e.mem.Addr(), Length: 4096, Access: driver.RemoteWrite | driver.RemoteRead, RKey: key&^0xff | (key+1)&0xff}
}

func (e *end) bound(w *MW) *driver.BindMW {
	e.t.Helper()
	b := e.binding(w)
	e.send(driver.SendWR{ID: 5, Op: driver.OpBindMW, Flags: driver.Signaled, Bind: b})
	if wc := e.one(driver.Success); wc.Op != driver.WCBindMW {
		e.t.Errorf("%+v", wc)
	}
	return b
}

func TestHWWindow(t *testing.T) {
	a, b, w := windowed(t)
	first := b.bound(w)
	binary.LittleEndian.PutUint64(a.mem.Bytes(), 0x1122334455667788)
	a.send(driver.SendWR{ID: 1, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: first.Remote()})
	a.one(driver.Success)
	if got := binary.LittleEndian.Uint64(b.mem.Bytes()); got != 0x1122334455667788 {
		t.Errorf("%#x", got)
	}
	// The MR cannot go, and says why.
	if err := b.mr.Close(); !errors.Is(err, driver.ErrBusy) {
		t.Errorf("MR with a window: %v", err)
	}
	// Taken back by us, bound again, taken back by the peer.
	b.send(driver.SendWR{ID: 6, Op: driver.OpLocalInv, Flags: driver.Signaled, Imm: first.RKey})
	if wc := b.one(driver.Success); wc.Op != driver.WCLocalInv {
		t.Errorf("%+v", wc)
	}
	second := b.bound(w)
	b.recv(driver.RecvWR{ID: 7, SGL: []driver.SGE{b.sge(0, 8)}})
	a.send(driver.SendWR{ID: 2, Op: driver.OpSendWithInv, Flags: driver.Signaled, Imm: second.RKey, SGL: []driver.SGE{a.sge(0, 8)}})
	a.one(driver.Success)
	if wc := b.one(driver.Success); wc.Flags != driver.WCWithInv || wc.Imm != second.RKey {
		t.Errorf("%+v", wc)
	}
	third := b.bound(w)
	a.send(driver.SendWR{ID: 3, Op: driver.OpRead, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: third.Remote()})
	a.one(driver.Success)
	// An old key fails.
	a.send(driver.SendWR{ID: 4, Op: driver.OpRead, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: first.Remote()})
	a.one(driver.RemAccessErr)
}

// The kernel would crash if it were told to invalidate a window that is not bound, and
// take away one that another process has bound.
func TestHWInvalidationOfNothing(t *testing.T) {
	for _, what := range []string{"never bound", "ours already", "the peer's already", "another QP's"} {
		t.Run(what, func(t *testing.T) {
			a, b, w := windowed(t)
			key := w.RKey()
			if what != "never bound" {
				key = b.bound(w).RKey
			}
			inv := driver.SendWR{ID: 8, Op: driver.OpLocalInv, Flags: driver.Signaled, Imm: key}
			switch what {
			case "ours already":
				b.send(inv)
				b.one(driver.Success)
			case "the peer's already":
				b.recv(driver.RecvWR{ID: 7})
				a.send(driver.SendWR{ID: 2, Op: driver.OpSendWithInv, Imm: key})
				b.one(driver.Success)
			case "another QP's":
				other := get(b.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: b.cq, RecvCQ: b.cq, Cap: driver.QPCap{SendWR: 4, RecvWR: 4, SendSGE: 1, RecvSGE: 1}}))(t).(*QP)
				defer func() { must(t, other.Close()) }()
				mine := b.qp
				b.qp = other
				defer func() { b.qp = mine }()
				b.to(driver.StateRTS, a)
			}
			b.send(inv)
			b.one(driver.LocQPOpErr)
		})
	}
}

// A QP with a window that is bound is closed at once, and the window is as new: the
// kernel would wait 50 seconds and then use memory that it has freed.
func TestHWWindowOutlivesQP(t *testing.T) {
	for _, how := range []string{"bound", "bind failed", "flushed", "invalidation flushed", "reset"} {
		t.Run(how, func(t *testing.T) {
			a, b, w := windowed(t)
			switch how {
			case "bound", "reset":
				b.bound(w)
			case "bind failed":
				bad := b.binding(w)
				bad.Length = 1 << 20
				b.send(driver.SendWR{ID: 5, Op: driver.OpBindMW, Bind: bad})
				b.one(driver.MWBindErr)
			case "flushed":
				must(t, b.qp.flush())
				b.send(driver.SendWR{ID: 5, Op: driver.OpBindMW, Bind: b.binding(w)})
				b.one(driver.WRFlushErr)
			case "invalidation flushed":
				bind := b.bound(w)
				must(t, b.qp.flush())
				b.send(driver.SendWR{ID: 5, Op: driver.OpLocalInv, Imm: bind.RKey})
				b.one(driver.WRFlushErr)
			}
			start := time.Now()
			if how == "reset" {
				must(t, b.qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask))
				b.qp.Purge()
				must(t, a.qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask))
			} else {
				b.turn(driver.QPConfig{Type: driver.RC})
				a.turn(driver.QPConfig{Type: driver.RC})
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
			a.to(driver.StateRTS, b)
			b.to(driver.StateRTS, a)
			again := b.bound(w)
			a.send(driver.SendWR{ID: 1, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: again.Remote()})
			a.one(driver.Success)
		})
	}
}

// What Probe says of Linux 6.1, the kernel of the lab.
func TestHWFeatures(t *testing.T) {
	a := open(t, pairOne(t), shape{})
	if r := release(a.dev.proc); !strings.HasPrefix(r, "6.1.") {
		t.Skipf("the kernel is %s", r)
	}
	for f, by := range map[driver.Feature]driver.Lacks{
		driver.FeatureSRQ: 0, driver.FeatureResizeSRQ: 0, driver.FeatureResizeCQ: 0, driver.FeatureUC: 0, driver.FeatureUD: 0,
		driver.FeatureAH: 0, driver.FeatureMW2: 0, driver.FeatureMulticast: 0, driver.FeatureAtomics: 0, driver.FeatureFlowLabelPort: 0,
		driver.FeatureMW1: driver.LacksDriver, driver.FeatureModerateCQ: driver.LacksDevice, driver.FeatureDMABuf: driver.LacksDevice,
		driver.FeatureOnDemand: driver.LacksDevice, driver.FeatureReregMR: driver.LacksDevice, driver.FeatureECE: driver.LacksDevice,
	} {
		err := a.dev.Probe(f)
		var lacks *driver.NotSupportedError
		if by == 0 && err != nil || by != 0 && (!errors.As(err, &lacks) || lacks.By != by) {
			t.Errorf("%s: %v, want %v", f, err, by)
		}
	}
}

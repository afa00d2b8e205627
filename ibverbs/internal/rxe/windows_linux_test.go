package rxe

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
)

// windowKit is a QP of type RC in RTS, an MR and a window.
type windowKit struct {
	k  *fakeRXE
	c  *Context
	pd *PD
	cq *CQ
	qp *QP
	mr *MR
	mw *MW
}

func newWindowKit(t *testing.T) *windowKit {
	w := &windowKit{k: newFakeRXE(t)}
	w.c = w.k.open(nil)
	w.pd, w.cq, w.qp = objects(t, w.c)
	w.qp.state.Store(uint32(driver.StateRTS))
	w.mr, w.mw = testMR(t, w.pd), must1(w.pd.AllocMW())(t).(*MW)
	return w
}

// bind is a request that binds with the next key.
func (w *windowKit) bind() driver.SendWR {
	key := w.mw.RKey()
	return driver.SendWR{Op: driver.OpBindMW, Bind: &driver.BindMW{MW: w.mw, MR: w.mr, Addr: addr, Length: 99, Access: driver.RemoteRead, RKey: key&^0xff | (key+1)&0xff}}
}

func inv(key uint32) driver.SendWR { return driver.SendWR{Op: driver.OpLocalInv, Imm: key} }

func TestBindElements(t *testing.T) {
	w := newWindowKit(t)
	defer closeAll(t, w.mw, w.mr, w.qp, w.cq, w.pd)
	first := w.bind()
	key, rkey := w.mw.RKey(), first.Bind.RKey
	next := *first.Bind
	next.RKey++
	first.Flags = driver.Signaled
	// In one list: each bind names the key that the one before it gave.
	posted(t, w.qp, first, inv(rkey), driver.SendWR{Op: driver.OpBindMW, Flags: driver.Fence, Bind: &next})
	base := func(op, flags, ssn uint32) image {
		return make(image, atSGL).u32(atOpcode, op).u32(atFlags, flags).u32(atSSN, ssn)
	}
	mw := func(m image, from, to uint32) image {
		return m.u64(24, addr).u64(32, 99).u32(40, w.mr.mr.LKey).u32(44, from).u32(48, to).u32(52, 4)
	}
	element(t, w.qp, 0, mw(base(8, 2, 0), key, rkey))
	element(t, w.qp, 1, base(7, 0, 1).u32(atImm, rkey))
	element(t, w.qp, 2, mw(base(8, 1, 2), rkey, rkey+1))
	w.qp.sq.head.ConsumerIndex = w.qp.sq.prod
	posted(t, w.qp, driver.SendWR{Op: driver.OpSendWithInv, Imm: 0x12345678})
	element(t, w.qp, 3, base(9, 0, 3).u32(atImm, 0x12345678))
}

func TestWindowRefusals(t *testing.T) {
	w := newWindowKit(t)
	defer closeAll(t, w.mr, w.qp, w.cq, w.pd)
	pd2 := must1(w.c.AllocPD())(t).(*PD)
	mr2, mw2 := testMR(t, pd2), must1(pd2.AllocMW())(t).(*MW)
	elsewhere := newWindowKit(t)
	bind := func(change func(*driver.BindMW)) driver.SendWR {
		wr := w.bind()
		change(wr.Bind)
		return wr
	}
	for name, tt := range map[string]struct {
		wr   driver.SendWR
		want error
	}{
		"no bind":                  {driver.SendWR{Op: driver.OpBindMW}, errNoBind},
		"no window":                {bind(func(b *driver.BindMW) { b.MW = nil }), errOtherMW},
		"no MR":                    {bind(func(b *driver.BindMW) { b.MR = nil }), errOtherMW},
		"window of another device": {bind(func(b *driver.BindMW) { b.MW = elsewhere.mw }), errOtherMW},
		"MR of another device":     {bind(func(b *driver.BindMW) { b.MR = elsewhere.mr }), errOtherMW},
		"another's key":            {bind(func(b *driver.BindMW) { b.RKey += 1 << 8 }), errMWKey},
	} {
		t.Run(name, func(t *testing.T) { refused(t, w.qp, tt.wr, tt.want) })
	}
	closeAll(t, elsewhere.mw, elsewhere.mr, elsewhere.qp, elsewhere.cq, elsewhere.pd)
	// empty is posted as a request that names nothing, which the kernel refuses.
	empty := func(qp *QP, wr driver.SendWR) {
		t.Helper()
		before, at := w.mw.state.Load(), qp.sq.prod
		posted(t, qp, wr)
		element(t, qp, at, make(image, atSGL).u32(atOpcode, uint32(wr.Op)).u32(atSSN, qp.sq.ssn-1))
		if w.mw.state.Load() != before {
			t.Errorf("%v changed the window", wr.Op)
		}
		qp.sq.head.ConsumerIndex = qp.sq.prod
	}
	empty(w.qp, bind(func(b *driver.BindMW) { b.MW = mw2 }))
	empty(w.qp, bind(func(b *driver.BindMW) { b.MR = mr2 }))
	for _, key := range []uint32{w.mw.RKey(), 0xffff00, mw2.RKey(), w.mr.mr.RKey} {
		empty(w.qp, inv(key))
	}
	first := w.bind()
	posted(t, w.qp, first)
	empty(w.qp, inv(first.Bind.RKey-1))
	qp2 := must1(w.pd.CreateQP(qpConfig(w.cq)))(t).(*QP)
	qp2.state.Store(uint32(driver.StateRTS))
	empty(qp2, inv(first.Bind.RKey)) // bound by another
	posted(t, w.qp, inv(first.Bind.RKey))
	empty(w.qp, inv(first.Bind.RKey)) // twice

	// The peer takes it back: known once the completion is polled.
	second := w.bind()
	posted(t, w.qp, second)
	e := cqe(1, w.qp.num)
	e.Opcode, e.WCFlags = 128, wcWithInvalidate
	binary.NativeEndian.PutUint32(e.Ex[:], second.Bind.RKey)
	*w.cq.q.cqe(0) = e
	w.cq.q.head.ProducerIndex = 1
	if n, err := w.cq.Poll(make([]driver.WC, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	empty(w.qp, inv(second.Bind.RKey))
	posted(t, qp2, w.bind()) // by another, as it is free

	// In ERR all is taken, and flushed: the window stays what it was.
	before := w.mw.state.Load()
	qp2.state.Store(uint32(driver.StateErr))
	posted(t, qp2, w.bind(), inv(0x1234))
	if w.mw.state.Load() != before {
		t.Error("a bind that is flushed changed the key")
	}
	// What became of the window is not known until the QP goes.
	refused(t, w.qp, w.bind(), errMWOfFailedQP)
	refused(t, w.qp, w.bind(), syscall.EBUSY)
	closeAll(t, qp2)
	w.qp.sq.head.ConsumerIndex = w.qp.sq.prod
	posted(t, w.qp, w.bind())

	w.k.Methods[uverbstest.MRDestroy] = func(*uverbstest.Call) error { return syscall.EINVAL }
	if err := mr2.Close(); !errors.Is(err, driver.ErrBusy) || !strings.Contains(err.Error(), "a memory window is bound to it") {
		t.Error(err)
	}
	if mr2.mem.Retain() != nil {
		t.Error("the memory of an MR that is in use was given back")
	}
	_ = mr2.mem.Release()
	w.k.Methods[uverbstest.MRDestroy] = newFakeRXE(t).Methods[uverbstest.MRDestroy]
	closeAll(t, w.mw)
	refused(t, w.qp, driver.SendWR{Op: driver.OpBindMW, Bind: &driver.BindMW{MW: w.mw, MR: w.mr}}, driver.ErrClosed)
	w.k.Methods[uverbstest.MRDestroy] = func(*uverbstest.Call) error { return nil }
	closeAll(t, mw2, mr2, pd2)
}

// TestWindowsGoFirst sees that a window is made anew before the QP is destroyed that
// had requests on it, and after a reset, and that others are left alone.
func TestWindowsGoFirst(t *testing.T) {
	w := newWindowKit(t)
	defer closeAll(t, w.mr, w.cq, w.pd)
	other := must1(w.pd.AllocMW())(t).(*MW)
	defer closeAll(t, other)
	otherKey := other.RKey()
	first := w.bind()
	posted(t, w.qp, first)
	w.k.journal = nil
	if err := w.qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(w.k.journal, ", "); got != "modify to RESET, free MW" || w.mw.RKey()>>8 == first.Bind.RKey>>8 {
		t.Errorf("%s, key %#x", got, w.mw.RKey())
	}
	w.qp.state.Store(uint32(driver.StateRTS))
	refused(t, w.qp, first, errMWKey) // made before the reset
	posted(t, w.qp, w.bind())
	w.k.journal = nil
	closeAll(t, w.qp)
	if got := strings.Join(w.k.journal, ", "); got != "free MW, destroy QP, unmap SQ, unmap RQ" {
		t.Error(got)
	}
	if other.RKey() != otherKey {
		t.Error("a window without requests was made anew")
	}
	closeAll(t, w.mw)
}

// TestWindowLost is a window that could not be made anew.
func TestWindowLost(t *testing.T) {
	w := newWindowKit(t)
	posted(t, w.qp, w.bind())
	w.k.Commands[uapi.CmdAllocMW] = func(*uverbstest.Call) error { return syscall.EINVAL }
	if _, err := w.pd.AllocMW(); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "the device has 9 windows") {
		t.Error(err)
	}
	if err := w.qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask); err != nil {
		t.Error(err)
	}
	w.qp.state.Store(uint32(driver.StateRTS))
	n, err := w.qp.PostSend([]driver.SendWR{w.bind()})
	if n != 0 || !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "close it") {
		t.Error(n, err)
	}
	w.k.journal = nil
	closeAll(t, w.mw, w.mr, w.qp, w.cq, w.pd)
	if slices.Contains(w.k.journal, "free MW") {
		t.Error("a window that is gone was freed once more")
	}
}

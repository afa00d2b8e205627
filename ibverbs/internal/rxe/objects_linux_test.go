package rxe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
	"github.com/purerdma/purerdma/internal/offheap"
)

// must1 is a value that a call gave without an error.
func must1[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// typed makes a QP of another type beside those of objects, ready to post.
func typed(t *testing.T, pd *PD, cq *CQ, typ driver.QPType) *QP {
	t.Helper()
	config := qpConfig(cq)
	config.Type = typ
	qp := must1(pd.CreateQP(config))(t).(*QP)
	if typ == driver.UD {
		for _, a := range []driver.QPAttr{{State: driver.StateInit, QKey: 0x111}, {State: driver.StateRTR}, {State: driver.StateRTS}} {
			mask := driver.QPStateMask
			if a.QKey != 0 {
				mask |= driver.QPQKey
			}
			if err := qp.Modify(&a, mask); err != nil {
				t.Fatal(err)
			}
		}
	}
	qp.state.Store(uint32(driver.StateRTS))
	return qp
}

// testMR registers a page.
func testMR(t *testing.T, pd *PD) *MR {
	t.Helper()
	mem := must1(offheap.Map(4096, offheap.Options{}))(t)
	m := must1(pd.RegMR(mem, mem.Addr(), driver.LocalWrite|driver.MWBind))(t).(*MR)
	if err := mem.Release(); err != nil {
		t.Fatal(err)
	}
	return m
}

// refused posts one request that is not taken.
func refused(t *testing.T, qp *QP, wr driver.SendWR, want error) {
	t.Helper()
	if n, err := qp.PostSend([]driver.SendWR{wr}); n != 0 || !errors.Is(err, want) {
		t.Errorf("%v: posted %d, %v; want %v", wr.Op, n, err, want)
	}
}

func posted(t *testing.T, qp *QP, wrs ...driver.SendWR) {
	t.Helper()
	if n, err := qp.PostSend(wrs); n != len(wrs) || err != nil {
		t.Fatalf("posted %d of %d, %v", n, len(wrs), err)
	}
}

// element compares one of the send queue, which was full of rubbish.
func element(t *testing.T, qp *QP, i uint32, want image) {
	t.Helper()
	if got := elementBytes(&qp.sq.view, i)[:len(want)]; !bytes.Equal(got, want) {
		t.Errorf("element %d is\n%x, want\n%x", i, got, []byte(want))
	}
}

func TestOperationsOfTypes(t *testing.T) {
	c := newFakeRXE(t).open(nil)
	pd, cq, rc := objects(t, c)
	defer closeAll(t, pd)
	defer closeAll(t, rc, cq)
	m, w := testMR(t, pd), must1(pd.AllocMW())(t).(*MW)
	defer closeAll(t, w, m)
	ah := must1(pd.CreateAH(driver.AHAttr{Port: 1, IsGlobal: true}))(t)
	defer closeAll(t, ah)
	all := []driver.Opcode{driver.OpWrite, driver.OpWriteWithImm, driver.OpSend, driver.OpSendWithImm, driver.OpRead, driver.OpCmpSwap,
		driver.OpFetchAdd, driver.OpBindMW, driver.OpLocalInv, driver.OpSendWithInv, 10, 16, 255}
	for typ, has := range map[driver.QPType][]driver.Opcode{
		driver.RC: all[:10],
		driver.UC: {driver.OpWrite, driver.OpWriteWithImm, driver.OpSend, driver.OpSendWithImm, driver.OpBindMW},
		driver.UD: {driver.OpSend, driver.OpSendWithImm},
	} {
		qp := typed(t, pd, cq, typ)
		for _, op := range all {
			wr := driver.SendWR{Op: op, UD: driver.Destination{AH: ah}}
			switch op {
			case driver.OpBindMW:
				wr.Bind = &driver.BindMW{MW: w, MR: m, RKey: w.RKey(), Length: 1}
			case driver.OpLocalInv:
				wr.Imm = w.RKey()
			case driver.OpCmpSwap, driver.OpFetchAdd:
				wr.SGL = []driver.SGE{{Length: 8}}
			}
			n, err := qp.PostSend([]driver.SendWR{wr})
			if want := slices.Contains(has, op); (n == 1) != want || !want && err != driver.ErrBadOpcode {
				t.Errorf("%v %v: posted %d, %v", typ, op, n, err)
			}
			qp.sq.head.ConsumerIndex = qp.sq.prod
		}
		closeAll(t, qp)
	}
	if _, err := pd.CreateQP(driver.QPConfig{Type: 9, SendCQ: cq, RecvCQ: cq}); !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
}

func TestDatagramElements(t *testing.T) {
	pd, cq, rc := objects(t, newFakeRXE(t).open(nil))
	defer closeAll(t, rc, cq, pd)
	qp := typed(t, pd, cq, driver.UD)
	ah := must1(pd.CreateAH(driver.AHAttr{Port: 1, IsGlobal: true}))(t)
	to := driver.Destination{AH: ah, QPN: 0xabcdef, QKey: 0x7fffffff}
	own := to
	own.QKey = 1 << 31
	posted(t, qp,
		driver.SendWR{ID: 77, Op: driver.OpSend, UD: to, Inline: []byte("data")},
		driver.SendWR{ID: 78, Op: driver.OpSendWithImm, Imm: 0xdeadbeef, UD: own})
	base := func(id uint64, op, flags, ssn uint32) image {
		return make(image, atSGL).u64(atID, id).u32(atOpcode, op).u32(atFlags, flags).u32(24, 0xabcdef).u32(36, fakeAHNum).u32(atSSN, ssn)
	}
	element(t, qp, 0, append(base(77, 2, flagInline, 0).u32(28, 0x7fffffff).u32(atLength, 4).u32(atResid, 4), "data"...))
	second := base(78, 3, 0, 1).u32(28, 0x111)
	copy(second[atImm:], []byte{0xde, 0xad, 0xbe, 0xef})
	element(t, qp, 1, second)

	// What is refused is not seen by the kernel.
	pd2 := must1(qp.dev.AllocPD())(t).(*PD)
	other := must1(pd2.CreateAH(driver.AHAttr{Port: 1, IsGlobal: true}))(t)
	sgl := []driver.SGE{{Length: 1000}, {Length: 25}} // the port has 1024
	refused(t, qp, driver.SendWR{Op: driver.OpSend}, errNoAH)
	refused(t, qp, driver.SendWR{Op: driver.OpSend, UD: driver.Destination{AH: foreignAH{}}}, errNoAH)
	refused(t, qp, driver.SendWR{Op: driver.OpSend, UD: driver.Destination{AH: other}}, errOtherAH)
	refused(t, qp, driver.SendWR{Op: driver.OpSend, UD: to, SGL: sgl}, errDatagram)
	sgl[1].Length--
	posted(t, qp, driver.SendWR{Op: driver.OpSend, UD: to, SGL: sgl})
	closeAll(t, ah)
	refused(t, qp, driver.SendWR{Op: driver.OpSend, UD: to}, driver.ErrClosed)
	if got := qp.sq.head.ProducerIndex; got != 3 {
		t.Errorf("the kernel sees %d entries", got)
	}
	closeAll(t, other, pd2, qp)
}

type foreignAH struct{ driver.AH }

// TestReceivesOfDatagrams have the header, others have not, whatever the kernel
// says.
func TestReceivesOfDatagrams(t *testing.T) {
	cq := fakeCQ(t, 4)
	for i, e := range []uapi.WC{{Opcode: 128, WCFlags: 1}, {Opcode: 128, WCFlags: 1, SrcQP: 9}, {Opcode: 128, WCFlags: 3, SrcQP: 9, Ex: [4]byte{3: 5}}} {
		*cq.q.cqe(uint32(i)) = e
	}
	cq.q.head.ProducerIndex = 3
	wcs := make([]driver.WC, 3)
	if n, err := cq.Poll(wcs); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for i, want := range []driver.WCFlags{0, driver.WCGRH, driver.WCGRH | driver.WCWithImm} {
		if wcs[i].Flags != want {
			t.Errorf("%+v, want flags %v", wcs[i], want)
		}
	}
	if wcs[2].Imm != 5 || wcs[1].SrcQP != 9 {
		t.Errorf("%+v", wcs)
	}
}

func TestAddressHandle(t *testing.T) {
	k := newFakeRXE(t)
	c := k.open(nil)
	pd := must1(c.AllocPD())(t).(*PD)
	defer closeAll(t, pd)
	six := driver.AHAttr{DGID: driver.GID{0xfe, 0x80, 15: 9}, Port: 1, IsGlobal: true}
	ask := func(f func(*driver.AHAttr)) error {
		a := six
		f(&a)
		_, err := pd.CreateAH(a)
		return err
	}
	same := func(*driver.AHAttr) {}
	for _, tt := range []struct {
		name   string
		a      func(*driver.AHAttr)
		kernel error
		want   error
		words  string
	}{
		{"not global", func(a *driver.AHAttr) { a.IsGlobal = false }, nil, syscall.EINVAL, "without a GID"},
		{"port", func(a *driver.AHAttr) { a.Port = 2 }, nil, syscall.EINVAL, "the port is 2, the device has 1 to 1"},
		{"label", func(a *driver.AHAttr) { a.FlowLabel = 1 << 20 }, nil, syscall.EINVAL, "the flow label is 1048576"},
		{"GID index", func(a *driver.AHAttr) { a.SGIDIndex = 16 }, syscall.EINVAL, syscall.EINVAL, "the GID index is 16, the device takes 0 to 15"},
		{"family", func(a *driver.AHAttr) { a.SGIDIndex = 1 }, syscall.EINVAL, syscall.EINVAL, "fe80::9 and GID index 1 (10.0.0.1) are of two families: choose the index of an IPv6 address"},
		{"other family", func(a *driver.AHAttr) { a.DGID = driver.GID{10: 0xff, 11: 0xff, 12: 10} }, syscall.EINVAL, syscall.EINVAL, "choose the index of an IPv4 address"},
		{"empty", same, syscall.ENODATA, syscall.ENODATA, "GID index 0 is empty"},
		{"no answer", same, syscall.ETIMEDOUT, syscall.ETIMEDOUT, "no answer to address resolution"},
		{"no route", same, syscall.ENETUNREACH, syscall.ENETUNREACH, "no route to fe80::9 from GID index 0"},
		{"else", same, syscall.EINVAL, syscall.EINVAL, ""},
		{"device", same, syscall.EOPNOTSUPP, driver.ErrNotSupported, "by the device"},
	} {
		k.Commands[uapi.CmdCreateAH] = func(*uverbstest.Call) error { return tt.kernel }
		if err := ask(tt.a); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	// A kernel from before there were numbers: made, and not usable.
	k = newFakeRXE(t)
	c = k.open(nil)
	pd2 := must1(c.AllocPD())(t)
	defer closeAll(t, pd2)
	create := k.Commands[uapi.CmdCreateAH]
	k.Commands[uapi.CmdCreateAH] = func(c *uverbstest.Call) error {
		err := create(c)
		c.SetOut(uapi.AttrUHWOut, make([]byte, 8))
		return err
	}
	var lacks *driver.NotSupportedError
	k.journal = nil
	if _, err := pd2.CreateAH(six); !errors.As(err, &lacks) || lacks.By != driver.LacksKernel || lacks.Since != "Linux 5.17" {
		t.Error(err)
	}
	if got := strings.Join(k.journal, ", "); got != "destroy AH" {
		t.Errorf("the handle is left: %s", got)
	}
	for _, f := range []driver.Feature{driver.FeatureAH, driver.FeatureUD, driver.FeatureMulticast} {
		if err := c.Probe(f); !errors.As(err, &lacks) || lacks.By != driver.LacksKernel || lacks.Feature != f {
			t.Errorf("%s: %v", f, err)
		}
	}
}

func TestDeviceWithoutThem(t *testing.T) {
	c := newFakeRXE(t).open(nil)
	c.attr = driver.DeviceAttr{}
	for _, f := range []driver.Feature{driver.FeatureSRQ, driver.FeatureResizeSRQ, driver.FeatureMW1, driver.FeatureMW2, driver.FeatureAH,
		driver.FeatureUD, driver.FeatureMulticast} {
		var lacks *driver.NotSupportedError
		if err := c.Probe(f); !errors.As(err, &lacks) || lacks.By != driver.LacksDevice || lacks.Feature != f {
			t.Errorf("%s: %v", f, err)
		}
	}
}

func TestSRQ(t *testing.T) {
	k := newFakeRXE(t)
	c := k.open(nil)
	pd, cq, rc := objects(t, c)
	defer closeAll(t, rc, cq, pd)
	s := must1(pd.CreateSRQ(driver.SRQConfig{WR: 5, SGE: 2, Limit: 3, Cookie: 9}))(t).(*SRQ)
	if s.Cap() != (driver.SRQAttr{WR: 5, SGE: 2}) {
		t.Errorf("%+v", s.Cap())
	}
	if n, err := s.PostRecv([]driver.RecvWR{{ID: 1}, {ID: 2, SGL: make([]driver.SGE, 3)}}); n != 1 || err != driver.ErrTooManySGE {
		t.Error(n, err)
	}
	if got := s.q.head.ProducerIndex; got != 1 {
		t.Errorf("the kernel sees %d", got)
	}
	if n, err := s.PostRecv(make([]driver.RecvWR, 9)); n != 4 || err != driver.ErrQueueFull || s.q.head.ProducerIndex != 5 {
		t.Error(n, err, s.q.head.ProducerIndex)
	}
	s.q.head.ConsumerIndex = 2 // a message took two
	if n, err := s.PostRecv(make([]driver.RecvWR, 9)); n != 2 || err != driver.ErrQueueFull {
		t.Error(n, err)
	}
	if a, err := s.Query(); err != nil || a != (driver.SRQAttr{WR: 5, SGE: 2}) {
		t.Errorf("%+v, %v", a, err)
	}

	for _, tt := range []struct {
		err   error
		words string
	}{
		{s.Resize(501), "the number of receives is 501, the device takes 0 to 500"},
		{s.Resize(-1), "is -1"},
		{s.Resize(4), "4 receives are asked for, 5 are posted"},
		{s.SetLimit(6), "the limit is 6, the device takes 0 to 5"},
		{s.SetLimit(-1), "the limit is -1"},
		{second1(pd.CreateSRQ(driver.SRQConfig{WR: 4, SGE: 1, Limit: 5})), "the limit is 5, the queue has room for 4 receives"},
	} {
		if !errors.Is(tt.err, syscall.EINVAL) || !strings.Contains(tt.err.Error(), tt.words) {
			t.Errorf("%v, want %q", tt.err, tt.words)
		}
	}
	k.Methods[uverbstest.SRQCreate] = func(*uverbstest.Call) error { return syscall.EINVAL }
	for words, config := range map[string]driver.SRQConfig{
		"the number of receives is 501, the device takes 0 to 500":      {WR: 501, SGE: 1},
		"the number of scatter entries is 28, the device takes 0 to 27": {WR: 1, SGE: 28},
	} {
		if _, err := pd.CreateSRQ(config); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
	modify := k.Commands[uapi.CmdModifySRQ]
	k.Commands[uapi.CmdModifySRQ] = func(*uverbstest.Call) error { return syscall.EINVAL }
	if err := s.Resize(8); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "a limit above 8 is armed") {
		t.Error(err)
	}
	k.Commands[uapi.CmdModifySRQ] = modify

	// A QP that shares it has no queue of its own.
	config := qpConfig(cq)
	config.SRQ = s
	k.mapped = 0
	qp := must1(pd.CreateQP(config))(t).(*QP)
	if k.mapped != 1 || qp.Cap().RecvWR != 0 {
		t.Errorf("%d rings, %+v", k.mapped, qp.Cap())
	}
	if n, err := qp.PostRecv(make([]driver.RecvWR, 1)); n != 0 || err != errHasSRQ {
		t.Error(n, err)
	}
	if err := qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask); err != nil {
		t.Error(err)
	}
	k.mapped = 5
	pd2 := must1(c.AllocPD())(t)
	for _, other := range []driver.SRQ{foreignSRQ{}, s} {
		config.SRQ = other
		if _, err := pd2.CreateQP(config); err != errOtherSRQ {
			t.Errorf("%T: %v", other, err)
		}
	}
	closeAll(t, pd2, qp)

	// Where a resize ends in a ring that cannot be reached, nothing more is taken.
	k.mapErr = 1
	for _, err := range []error{s.Resize(8), s.Resize(8), second1(s.PostRecv(make([]driver.RecvWR, 1)))} {
		if !errors.Is(err, syscall.EAGAIN) || !strings.Contains(err.Error(), "close it") {
			t.Error(err)
		}
	}
	destroy := k.Methods[uverbstest.SRQDestroy]
	k.Methods[uverbstest.SRQDestroy] = func(*uverbstest.Call) error { return syscall.EBUSY }
	if err := s.Close(); err != driver.ErrBusy {
		t.Error(err)
	}
	k.Methods[uverbstest.SRQDestroy] = destroy
	k.journal = nil
	closeAll(t, s)
	if got := strings.Join(k.journal, ", "); got != "destroy SRQ, unmap SRQ" {
		t.Error(got)
	}
}

type foreignSRQ struct{ driver.SRQ }

func second1[T any](_ T, err error) error { return err }

// TestSRQResized takes over what the kernel has put into the new ring.
func TestSRQResized(t *testing.T) {
	k := newFakeRXE(t)
	pd := must1(k.open(nil).AllocPD())(t).(*PD)
	defer closeAll(t, pd)
	s := must1(pd.CreateSRQ(driver.SRQConfig{WR: 5, SGE: 1}))(t).(*SRQ)
	defer closeAll(t, s)
	if n, err := s.PostRecv(make([]driver.RecvWR, 3)); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	s.q.head.ConsumerIndex = 1
	k.shape = func(head *uapi.RxeQueueBuf) { head.ProducerIndex = 2 }
	k.journal = nil
	if err := s.Resize(12); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(k.journal, ", "); got != "unmap SRQ" || s.Cap().WR != 12 {
		t.Errorf("%s, %+v", got, s.Cap())
	}
	if n, err := s.PostRecv(make([]driver.RecvWR, 20)); n != 10 || err != driver.ErrQueueFull || s.q.head.ProducerIndex != 12 {
		t.Error(n, err, s.q.head.ProducerIndex)
	}
}

func TestSRQCreateFails(t *testing.T) {
	for name, f := range map[string]func(*fakeRXE){
		"not mapped":        func(k *fakeRXE) { k.mapErr = 1 },
		"shorter than said": func(k *fakeRXE) { k.shape = func(head *uapi.RxeQueueBuf) { head.IndexMask = 1 } },
		"small elements":    func(k *fakeRXE) { k.shape = func(head *uapi.RxeQueueBuf) { head.Log2ElemSize = 5 } },
		"truncated":         func(k *fakeRXE) { k.Methods[uverbstest.SRQCreate] = func(*uverbstest.Call) error { return nil } },
	} {
		k := newFakeRXE(t)
		pd := must1(k.open(nil).AllocPD())(t)
		f(k)
		if _, err := pd.CreateSRQ(driver.SRQConfig{WR: 5, SGE: 1}); err == nil {
			t.Errorf("%s: no error", name)
		}
		closeAll(t, pd)
	}
}

func TestResizeCQ(t *testing.T) {
	k := newFakeRXE(t)
	c := k.open(nil)
	cq := must1(c.CreateCQ(driver.CQConfig{Depth: 8, Cookie: 3}))(t).(*CQ)
	for i := range uint32(3) {
		*cq.q.cqe(i) = cqe(uint64(i), 1)
	}
	cq.q.head.ProducerIndex = 3
	wcs := make([]driver.WC, 8)
	if n, err := cq.Poll(wcs[:1]); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	// As Linux does it: what was not polled is at the front of the new ring.
	ring := k.Ring
	k.Ring = func(off int64, size int) (offheap.Span, error) {
		mem, err := ring(off, size)
		if err == nil {
			v, _ := viewOf(mem, cqeSize)
			*v.cqe(0), *v.cqe(1) = cqe(1, 1), cqe(2, 1)
			v.head.ProducerIndex = 2
		}
		return mem, err
	}
	k.journal = nil
	if err := cq.Resize(14); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(k.journal, ", "); got != "unmap CQ" {
		t.Error(got)
	}
	if n, err := cq.Poll(wcs); n != 2 || err != nil || wcs[0].ID != 1 || wcs[1].ID != 2 || cq.q.head.ConsumerIndex != 2 {
		t.Error(n, err, wcs[:2])
	}

	k.Commands[uapi.CmdResizeCQ] = func(*uverbstest.Call) error { return syscall.EINVAL }
	for depth, words := range map[int]string{0: "the depth is 0", 40000: "the depth is 40000, the device takes 0 to 32767", 3: "more than 3 completions are in the queue"} {
		if err := cq.Resize(depth); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), words) {
			t.Errorf("%d: %v", depth, err)
		}
	}
	k.Commands[uapi.CmdResizeCQ] = func(*uverbstest.Call) error { return syscall.EOPNOTSUPP }
	if err := cq.Resize(3); !errors.Is(err, driver.ErrNotSupported) {
		t.Error(err)
	}
	if n, err := cq.Poll(wcs); n != 0 || err != nil {
		t.Errorf("a resize that was refused: %d, %v", n, err)
	}
	closeAll(t, cq)
}

// TestResizeCQLoses is a resize that the kernel did and that cannot be followed:
// what is in the old ring is delivered before the error.
func TestResizeCQLoses(t *testing.T) {
	for name, f := range map[string]func(*fakeRXE){
		"not mapped": func(k *fakeRXE) { k.mapErr = 1 },
		"truncated":  func(k *fakeRXE) { k.Commands[uapi.CmdResizeCQ] = func(*uverbstest.Call) error { return nil } },
		"too small":  func(k *fakeRXE) { k.shape = func(head *uapi.RxeQueueBuf) { head.IndexMask = 7 } },
	} {
		k := newFakeRXE(t)
		cq := must1(k.open(nil).CreateCQ(driver.CQConfig{Depth: 8}))(t).(*CQ)
		*cq.q.cqe(0) = cqe(5, 1)
		cq.q.head.ProducerIndex = 1
		f(k)
		if err := cq.Resize(10); err == nil || !strings.Contains(err.Error(), "lost") {
			t.Errorf("%s: %v", name, err)
		}
		wcs := make([]driver.WC, 2)
		if n, err := cq.Poll(wcs); n != 1 || err != nil || wcs[0].ID != 5 {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		if n, err := cq.Poll(wcs); n != 0 || err != driver.ErrCQOverrun {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		closeAll(t, cq)
	}
}

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

func TestMulticast(t *testing.T) {
	k := newFakeRXE(t)
	pd, cq, rc := objects(t, k.open(nil))
	qp := typed(t, pd, cq, driver.UD)
	group := driver.GID{0xff, 0x0e, 15: 1}
	said := func(want string) {
		t.Helper()
		if got := strings.Join(k.journal, ", "); got != want {
			t.Errorf("%s; want %s", got, want)
		}
		k.journal = nil
	}
	for cmd, name := range map[uint32]string{uapi.CmdAttachMcast: "attach", uapi.CmdDetachMcast: "detach"} {
		k.Commands[cmd] = func(c *uverbstest.Call) error {
			k.note(fmt.Sprintf("%s %x", name, c.In(uapi.AttrCoreIn)[15]))
			return nil
		}
	}
	for words, err := range map[string]error{
		"only UD queue pairs":         rc.Multicast(group, 0, true),
		"fe80::1 is no multicast":     qp.Multicast(driver.GID{0xfe, 0x80, 15: 1}, 0, true),
		"10.0.0.1 is no multicast":    qp.Multicast(driver.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}, 0, true),
		"is not attached to it":       qp.Multicast(group, 0, false),
		"the queue pair is not attac": qp.Multicast(driver.GID{10: 0xff, 11: 0xff, 12: 224, 15: 1}, 0, false),
	} {
		if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
	k.journal = nil
	for range 2 {
		if err := qp.Multicast(group, 0, true); err != nil {
			t.Error(err)
		}
	}
	said("join ff0e::1 on [7], attach 1")
	if err := qp.Multicast(group, 0, false); err != nil {
		t.Error(err)
	}
	said("detach 1, leave ff0e::1")

	k.joinErr = syscall.ENODEV
	if err := qp.Multicast(group, 0, true); !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "another network namespace") {
		t.Error(err)
	}
	said("join ff0e::1 on [7]")
	k.joinErr = nil
	attach := k.Commands[uapi.CmdAttachMcast]
	k.Commands[uapi.CmdAttachMcast] = func(*uverbstest.Call) error { return syscall.ENOMEM }
	if err := qp.Multicast(group, 0, true); !errors.Is(err, syscall.ENOMEM) {
		t.Error(err)
	}
	said("join ff0e::1 on [7], leave ff0e::1")
	k.Commands[uapi.CmdAttachMcast] = attach

	// What is attached at the end is detached: the kernel would not destroy the QP.
	group[15] = 2
	if err := qp.Multicast(group, 0, true); err != nil {
		t.Error(err)
	}
	k.journal = nil
	closeAll(t, qp)
	said("detach 2, leave ff0e::2, destroy QP, unmap SQ, unmap RQ")
	closeAll(t, rc, cq, pd)
}

// TestDatagramsOfTheOldMTU: what the port had at RTS counts.
func TestMTUIsReadAtRTS(t *testing.T) {
	k := newFakeRXE(t)
	pd, cq, rc := objects(t, k.open(nil))
	defer closeAll(t, rc, cq, pd)
	qp := typed(t, pd, cq, driver.UD)
	defer closeAll(t, qp)
	if got := qp.ud.mtu.Load(); got != 1024 {
		t.Errorf("MTU %d", got)
	}
	k.Methods[uverbstest.QueryPort] = func(*uverbstest.Call) error { return syscall.EIO }
	if err := qp.Modify(&driver.QPAttr{State: driver.StateRTS}, driver.QPStateMask); !errors.Is(err, driver.ErrDeviceGone) {
		t.Error(err)
	}
}

func TestNoAllocationsOfObjects(t *testing.T) {
	w := newWindowKit(t)
	s := must1(w.pd.CreateSRQ(driver.SRQConfig{WR: 8, SGE: 2}))(t).(*SRQ)
	ud := typed(t, w.pd, w.cq, driver.UD)
	ah := must1(w.pd.CreateAH(driver.AHAttr{Port: 1, IsGlobal: true}))(t)
	w.qp.bell, ud.bell = silentBell{}, silentBell{}
	recv := []driver.RecvWR{{SGL: make([]driver.SGE, 2)}}
	bind := w.bind()
	both := []driver.SendWR{bind, inv(0), {Op: driver.OpSendWithInv, Imm: 7}}
	to := []driver.SendWR{{Op: driver.OpSend, UD: driver.Destination{AH: ah, QKey: 1 << 31}, SGL: make([]driver.SGE, 2)}}
	wcs := make([]driver.WC, 2)
	for name, f := range map[string]func(){
		"SRQ.PostRecv": func() {
			if n, err := s.PostRecv(recv); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			s.q.head.ConsumerIndex = s.q.prod
		},
		"bind and invalidate": func() {
			bind.Bind.RKey = w.mw.RKey()&^0xff | (w.mw.RKey()+1)&0xff
			both[1].Imm = bind.Bind.RKey
			if n, err := w.qp.PostSend(both); n != 3 || err != nil {
				t.Fatal(n, err)
			}
			w.qp.sq.head.ConsumerIndex = w.qp.sq.prod
		},
		"datagram": func() {
			if n, err := ud.PostSend(to); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			ud.sq.head.ConsumerIndex = ud.sq.prod
		},
		"poll of what the peer took back": func() {
			e := cqe(1, w.qp.num)
			e.Opcode, e.WCFlags = 128, wcWithInvalidate
			*w.cq.q.cqe(w.cq.q.cons) = e
			w.cq.q.head.ProducerIndex = w.cq.q.next(w.cq.q.cons)
			if n, err := w.cq.Poll(wcs); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	closeAll(t, ah, ud, s, w.mw, w.mr, w.qp, w.cq, w.pd)
}

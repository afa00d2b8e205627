package rxe

import (
	"bytes"
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

func second1[T any](_ T, err error) error { return err }

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

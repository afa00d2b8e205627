package rxe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
	"github.com/purerdma/purerdma/internal/offheap"
)

func qpConfig(cq driver.CQ) driver.QPConfig {
	return driver.QPConfig{Type: driver.RC, SendCQ: cq, RecvCQ: cq, Cap: driver.QPCap{SendWR: 4, RecvWR: 5, SendSGE: 2, RecvSGE: 3, Inline: 32}}
}

func closeAll(t *testing.T, cs ...interface{ Close() error }) {
	t.Helper()
	for _, c := range cs {
		if err := c.Close(); err != nil {
			t.Errorf("%T: %v", c, err)
		}
	}
}

func TestLimitsAreThoseAskedFor(t *testing.T) {
	pd, cq, qp := objects(t, newFakeRXE(t).open(nil))
	defer closeAll(t, qp, cq, pd)
	if cq.Depth() != fakeSlots-1 {
		t.Errorf("depth %d", cq.Depth())
	}
	if got := qp.Cap(); got != qpConfig(nil).Cap {
		t.Errorf("cap %+v", got)
	}
	qp.state.Store(uint32(driver.StateRTS))
	if n, err := qp.PostSend(sends(10)); n != 4 || err != driver.ErrQueueFull {
		t.Errorf("posted %d, %v", n, err)
	}
	if n, err := qp.PostRecv(make([]driver.RecvWR, 10)); n != 5 || err != driver.ErrQueueFull {
		t.Errorf("posted %d receives, %v", n, err)
	}
}

// sends is n sends.
func sends(n int) []driver.SendWR {
	return slices.Repeat([]driver.SendWR{{Op: driver.OpSend}}, n)
}

// TestTearDownOrder sees that objects are destroyed before their rings are
// unmapped, and that a destroy that is refused leaves the rings.
func TestTearDownOrder(t *testing.T) {
	k := newFakeRXE(t)
	pd, cq, qp := objects(t, k.open(nil))
	k.journal = nil
	destroy := k.Methods[uverbstest.CQDestroy]
	k.Methods[uverbstest.CQDestroy] = func(*uverbstest.Call) error { return syscall.EBUSY }
	if err := cq.Close(); err != driver.ErrBusy {
		t.Errorf("CQ in use: %v", err)
	}
	if _, err := cq.Poll(make([]driver.WC, 1)); err != nil || k.mapped != 3 {
		t.Errorf("after it: %v, %d rings", err, k.mapped)
	}
	k.Methods[uverbstest.CQDestroy] = destroy
	closeAll(t, qp, cq, pd)
	if want := "destroy QP, unmap SQ, unmap RQ, destroy CQ, unmap CQ"; strings.Join(k.journal, ", ") != want {
		t.Errorf("%v, want %s", k.journal, want)
	}
}

// TestDeviceGone gives the rings back though the kernel destroys nothing more.
func TestDeviceGone(t *testing.T) {
	k := newFakeRXE(t)
	pd, cq, qp := objects(t, k.open(nil))
	for _, m := range []uverbstest.Method{uverbstest.QPDestroy, uverbstest.CQDestroy, uverbstest.PDDestroy} {
		h := k.Methods[m]
		k.Methods[m] = func(c *uverbstest.Call) error { _ = h(c); return syscall.EIO }
	}
	for _, o := range []interface{ Close() error }{qp, cq, pd} {
		if err := o.Close(); !errors.Is(err, driver.ErrDeviceGone) {
			t.Errorf("%T: %v", o, err)
		}
	}
	if k.mapped != 0 {
		t.Errorf("%d rings are mapped", k.mapped)
	}
}

// TestCreateFails lets every step of a creation fail: nothing may be left.
func TestCreateFails(t *testing.T) {
	small := func(head *uapi.RxeQueueBuf) { head.IndexMask = 1 }
	thin := func(head *uapi.RxeQueueBuf) { head.Log2ElemSize = 5 }
	for _, tt := range []struct {
		name   string
		mapErr int
		shape  func(*uapi.RxeQueueBuf)
		cq     bool
	}{
		{"CQ not mapped", 1, nil, true},
		{"CQ shorter than said", 0, small, true},
		{"CQ with small elements", 0, thin, true},
		{"first queue not mapped", 1, nil, false},
		{"second queue not mapped", 2, nil, false},
		{"queues shorter than said", 0, small, false},
		{"queues with small elements", 0, thin, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newFakeRXE(t)
			c := k.open(nil)
			pd, err := c.AllocPD()
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll(t, pd)
			var cq driver.CQ
			if !tt.cq {
				if cq, err = c.CreateCQ(driver.CQConfig{Depth: 8}); err != nil {
					t.Fatal(err)
				}
				defer closeAll(t, cq)
			}
			k.mapErr, k.shape = tt.mapErr, tt.shape
			if tt.cq {
				_, err = c.CreateCQ(driver.CQConfig{Depth: 8})
			} else {
				_, err = pd.CreateQP(qpConfig(cq))
			}
			if err == nil {
				t.Fatal("no error")
			}
			t.Log(err)
		})
	}
}

type foreignCQ struct{ driver.CQ }

func TestOthersObjects(t *testing.T) {
	c := newFakeRXE(t).open(nil)
	pd, cq, qp := objects(t, c)
	defer closeAll(t, qp, cq, pd)
	pd2, cq2, qp2 := objects(t, newFakeRXE(t).open(nil))
	defer closeAll(t, qp2, cq2, pd2)
	for _, other := range []driver.CQ{nil, foreignCQ{}, cq2} {
		config := qpConfig(cq)
		config.RecvCQ = other
		if _, err := pd.CreateQP(config); err != errOtherCQ {
			t.Errorf("%T: %v", other, err)
		}
	}
	if _, err := c.CreateCQ(driver.CQConfig{Depth: 1, Channel: foreignChannel{}}); err != errOtherChannel {
		t.Errorf("channel: %v", err)
	}
}

type foreignChannel struct{ driver.CompChannel }

// TestDoorbell covers what a failed doorbell leads to.
func TestDoorbell(t *testing.T) {
	for _, tt := range []struct {
		name   string
		modify error
		n      int
		sees   uint32 // entries that the kernel can run later
		state  driver.QPState
	}{
		{"the QP can be moved to ERR", nil, 2, 2, driver.StateErr},
		{"nothing works", syscall.ENODEV, 0, 0, driver.StateRTS},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newFakeRXE(t)
			pd, cq, qp := objects(t, k.open(nil))
			defer closeAll(t, qp, cq, pd)
			qp.state.Store(uint32(driver.StateRTS))
			k.Commands[uapi.CmdPostSend] = func(*uverbstest.Call) error { return syscall.ENOBUFS }
			k.Commands[uapi.CmdModifyQP] = func(*uverbstest.Call) error { return tt.modify }
			n, err := qp.PostSend(sends(2))
			if n != tt.n || !errors.Is(err, syscall.ENOBUFS) {
				t.Errorf("posted %d, %v", n, err)
			}
			if got := qp.sq.head.ProducerIndex; got != tt.sees || qp.sq.prod != got || qp.sq.ssn != got {
				t.Errorf("the kernel sees %d entries, want %d (own index %d, number %d)", got, tt.sees, qp.sq.prod, qp.sq.ssn)
			}
			if got := driver.QPState(qp.state.Load()); got != tt.state {
				t.Errorf("state %v", got)
			}
			if n, _ := qp.PostSend(nil); n != 0 {
				t.Error("an empty list rang")
			}
		})
	}
}

// TestERRIsKnown sees how often the driver moves a QP to ERR by itself.
func TestERRIsKnown(t *testing.T) {
	k := newFakeRXE(t)
	pd, cq, qp := objects(t, k.open(nil))
	defer closeAll(t, qp, cq, pd)
	qp.state.Store(uint32(driver.StateRTS))
	complete := func(status driver.Status) {
		e := cqe(1, qp.num)
		e.Status = uint32(status)
		*cq.q.cqe(cq.q.head.ProducerIndex) = e
		cq.q.head.ProducerIndex = cq.q.next(cq.q.head.ProducerIndex)
	}
	poll := func(want int, why string) {
		t.Helper()
		k.journal = nil
		if _, err := cq.Poll(make([]driver.WC, 4)); err != nil {
			t.Error(err)
		}
		if len(k.journal) != want {
			t.Errorf("%s: %v", why, k.journal)
		}
	}
	recv := func(want int, why string) {
		t.Helper()
		k.journal = nil
		if n, err := qp.PostRecv(make([]driver.RecvWR, 1)); n != 1 || err != nil {
			t.Error(n, err)
		}
		if len(k.journal) != want {
			t.Errorf("%s: %v", why, k.journal)
		}
	}
	complete(driver.Success)
	poll(0, "success")
	recv(0, "a receive in RTS")
	complete(driver.RetryExcErr)
	complete(driver.WRFlushErr)
	poll(1, "the first failures")
	complete(driver.WRFlushErr)
	poll(0, "a later one")
	recv(1, "a receive in ERR")
	e := cqe(1, 0xfffff)
	e.Status = 5
	*cq.q.cqe(cq.q.head.ProducerIndex) = e
	cq.q.head.ProducerIndex = cq.q.next(cq.q.head.ProducerIndex)
	poll(0, "a QP that is unknown")

	// A state that is set while a failure is noted does not undo it.
	k.Commands[uapi.CmdModifyQP] = func(*uverbstest.Call) error { qp.state.Store(uint32(driver.StateErr)); return nil }
	qp.state.Store(uint32(driver.StateRTR))
	if err := qp.Modify(&driver.QPAttr{State: driver.StateRTS}, driver.QPStateMask); err != nil || driver.QPState(qp.state.Load()) != driver.StateErr {
		t.Error(err, driver.QPState(qp.state.Load()))
	}
}

func TestResetRestarts(t *testing.T) {
	k := newFakeRXE(t)
	pd, cq, qp := objects(t, k.open(nil))
	defer closeAll(t, qp, cq, pd)
	qp.state.Store(uint32(driver.StateRTS))
	if n, err := qp.PostSend(sends(3)); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := qp.PostRecv(make([]driver.RecvWR, 2)); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	*cq.q.cqe(0), *cq.q.cqe(1) = cqe(1, qp.num), cqe(2, 99)
	cq.q.head.ProducerIndex = 2
	k.Commands[uapi.CmdModifyQP] = func(*uverbstest.Call) error { // as Linux does it
		qp.sq.head.ConsumerIndex, qp.rq.head.ConsumerIndex = 3, 2
		return nil
	}
	if err := qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask); err != nil {
		t.Fatal(err)
	}
	qp.Purge()
	wcs := make([]driver.WC, 4)
	if n, err := cq.Poll(wcs); n != 1 || wcs[0].ID != 2 || err != nil {
		t.Errorf("completions %+v, %v", wcs[:n], err)
	}
	if n, err := qp.PostSend(sends(1)); n != 0 || err != driver.ErrBadState {
		t.Errorf("send in RESET: %d, %v", n, err)
	}
	qp.state.Store(uint32(driver.StateRTS))
	if n, err := qp.PostSend(sends(5)); n != 4 || err != driver.ErrQueueFull || qp.sq.sendWQE(3).SSN != 0 {
		t.Errorf("posted %d, %v, first number %d", n, err, qp.sq.sendWQE(3).SSN)
	}
	if n, err := qp.PostRecv(make([]driver.RecvWR, 6)); n != 5 || err != driver.ErrQueueFull {
		t.Errorf("posted %d receives, %v", n, err)
	}
}

// TestOverrun marks the CQ of the event. What it holds is delivered first.
func TestOverrun(t *testing.T) {
	k := newFakeRXE(t)
	c := k.open(nil)
	pd, cq, qp := objects(t, c)
	other, err := c.CreateCQ(driver.CQConfig{Depth: 1, Cookie: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, qp, cq, other, pd)
	*cq.q.cqe(0) = cqe(1, qp.num)
	cq.q.head.ProducerIndex = 1
	event := binary.NativeEndian.AppendUint64(nil, 7)
	event = append(event, make([]byte, 8)...) // IB_EVENT_CQ_ERR is 0
	if err := k.Post(event); err != nil {
		t.Fatal(err)
	}
	if e, err := c.NextEvent(context.Background()); err != nil || e != (driver.Event{Type: driver.EventCQErr, Cookie: 7}) {
		t.Errorf("%+v, %v", e, err)
	}
	wcs := make([]driver.WC, 2)
	if n, err := cq.Poll(wcs); n != 1 || err != nil {
		t.Errorf("what is left: %d, %v", n, err)
	}
	for range 2 {
		if n, err := cq.Poll(wcs); n != 0 || err != driver.ErrCQOverrun {
			t.Errorf("%d, %v", n, err)
		}
	}
	if n, err := other.Poll(wcs); n != 0 || err != nil {
		t.Errorf("the other CQ: %d, %v", n, err)
	}
}

func TestModifyRefuses(t *testing.T) {
	k := newFakeRXE(t)
	pd, cq, qp := objects(t, k.open(nil))
	defer closeAll(t, qp, cq, pd)
	global := driver.AHAttr{IsGlobal: true, Port: 1}
	label := global
	label.FlowLabel = 1 << 20
	for _, tt := range []struct {
		name string
		a    driver.QPAttr
		mask driver.QPMask
		hint string // "" = is allowed
	}{
		{"MTU of the port", driver.QPAttr{PathMTU: driver.MTU1024}, driver.QPPathMTU, ""},
		{"MTU above", driver.QPAttr{PathMTU: driver.MTU2048, AH: global}, driver.QPPathMTU | driver.QPAV, "the path MTU is 2048, port 1 has 1024"},
		{"no MTU", driver.QPAttr{}, driver.QPPathMTU, "none of the five"},
		{"MTU not set", driver.QPAttr{PathMTU: 77}, driver.QPTimeout, ""},
		{"receive PSN", driver.QPAttr{RQPSN: 1 << 24}, driver.QPRQPSN, "receive PSN is 16777216, the device takes 0 to 16777215"},
		{"send PSN", driver.QPAttr{SQPSN: 1 << 24}, driver.QPSQPSN, "send PSN"},
		{"highest PSN", driver.QPAttr{SQPSN: 1<<24 - 1}, driver.QPSQPSN, ""},
		{"QP number", driver.QPAttr{DestQPN: 1 << 24}, driver.QPDestQPN, "QP number"},
		{"timeout", driver.QPAttr{Timeout: 32}, driver.QPTimeout, "timeout"},
		{"retries", driver.QPAttr{RetryCnt: 8}, driver.QPRetryCnt, "retry"},
		{"RNR retries", driver.QPAttr{RNRRetry: 8}, driver.QPRNRRetry, "RNR retry"},
		{"RNR timer", driver.QPAttr{MinRNRTimer: 32}, driver.QPMinRNRTimer, "RNR timer"},
		{"reads to start", driver.QPAttr{MaxRdAtomic: 129}, driver.QPMaxQPRdAtomic, "start is 129, the device takes 0 to 128"},
		{"reads to take", driver.QPAttr{MaxDestRdAtomic: 129}, driver.QPMaxDestRdAtomic, "take is 129"},
		{"flow label", driver.QPAttr{AH: label}, driver.QPAV, "flow label"},
		{"not global", driver.QPAttr{AH: driver.AHAttr{Port: 1}}, driver.QPAV, "without a GID"},
		{"no such port", driver.QPAttr{AH: driver.AHAttr{IsGlobal: true}}, driver.QPAV, "the port is 0, the device has 1 to 1"},
	} {
		k.journal = nil
		err := qp.Modify(&tt.a, tt.mask)
		if tt.hint == "" {
			if err != nil || len(k.journal) != 1 {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), tt.hint) || len(k.journal) != 0 {
			t.Errorf("%s: %v, kernel was asked %v", tt.name, err, k.journal)
		}
	}
}

func TestExplained(t *testing.T) {
	k := newFakeRXE(t)
	pd, cq, qp := objects(t, k.open(nil))
	defer closeAll(t, qp, cq, pd)
	peer := driver.GID{15: 9, 10: 0xff, 11: 0xff, 12: 10}
	av := driver.QPAttr{AH: driver.AHAttr{DGID: peer, SGIDIndex: 3, IsGlobal: true, Port: 1}}
	for errno, words := range map[syscall.Errno]string{
		syscall.ETIMEDOUT: "10.0.0.9 from GID index 3", syscall.ENETUNREACH: "no route to 10.0.0.9", syscall.ENODATA: "GID index 3 is empty",
	} {
		k.Commands[uapi.CmdModifyQP] = func(*uverbstest.Call) error { return errno }
		if err := qp.Modify(&av, driver.QPAV); !errors.Is(err, errno) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v", err)
		}
		if err := qp.Modify(&av, driver.QPAccessFlags); err != errno {
			t.Errorf("without an address: %v", err)
		}
	}
}

func TestLockedMemoryIsExplained(t *testing.T) {
	for name, tt := range map[string]struct {
		proc fstest.MapFS
		want string // "" = no hint
	}{
		"limit": {fstest.MapFS{
			"self/limits": {Data: []byte("Limit    Soft Limit   Hard Limit  Units\nMax locked memory         8388608              8388608              bytes     \n")},
			"self/status": {Data: []byte("Name:\tx\nVmPin:\t    4096 kB\n")},
		}, "4096 bytes do not fit beside the 4194304 that are registered already: the process may lock 8388608"},
		"unlimited": {fstest.MapFS{"self/limits": {Data: []byte("Max locked memory         unlimited            unlimited            bytes     \n")}}, ""},
		"no proc":   {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFakeRXE(t)
			k.Commands[uapi.CmdRegMR] = func(*uverbstest.Call) error { return syscall.ENOMEM }
			pd, err := k.open(tt.proc).AllocPD()
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll(t, pd)
			mem, err := offheap.Map(4096, offheap.Options{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = pd.RegMR(mem, mem.Addr(), driver.LocalWrite)
			if !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("%v", err)
			}
			var e *driver.Error
			if errors.As(err, &e) != (tt.want != "") || (e != nil && !strings.Contains(e.Hint, tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if err := mem.Release(); err != nil || mem.Retain() == nil {
				t.Error("a reference to the memory was kept", err)
			}
		})
	}
}

func TestProbe(t *testing.T) {
	osrelease := func(s string) fstest.MapFS { return fstest.MapFS{"sys/kernel/osrelease": {Data: []byte(s + "\n")}} }
	by := func(c *Context, f driver.Feature) string {
		err := c.Probe(f)
		var e *driver.NotSupportedError
		if errors.As(err, &e) {
			return fmt.Sprint("lacks ", e.By)
		}
		return fmt.Sprint(err)
	}
	for release, want := range map[string]string{
		"6.1.0-57-amd64": "<nil>", "5.18.0": "<nil>", "10.0": "<nil>", "5.17.3": "lacks this kernel", "4.19.0": "lacks this kernel", "x": "lacks this kernel",
	} {
		if got := by(newFakeRXE(t).open(osrelease(release)), driver.FeatureFlowLabelPort); got != want {
			t.Errorf("%s: %s, want %s", release, got, want)
		}
	}
	c := newFakeRXE(t).open(nil)
	for f, want := range map[driver.Feature]string{
		driver.FeatureAtomics: "lacks the device", driver.FeatureOnDemand: "lacks the device", driver.FeatureECE: "lacks the device",
		driver.FeatureMW1: "lacks this driver of purerdma", driver.FeatureModerateCQ: "<nil>", driver.FeatureReregMR: "<nil>", driver.FeatureDMABuf: "<nil>",
		driver.FeatureSRQ: "<nil>", driver.FeatureResizeSRQ: "<nil>", driver.FeatureResizeCQ: "<nil>", driver.FeatureUC: "<nil>",
		driver.FeatureUD: "<nil>", driver.FeatureAH: "<nil>", driver.FeatureMulticast: "<nil>", driver.FeatureMW2: "<nil>",
	} {
		if got := by(c, f); got != want {
			t.Errorf("%s: %s, want %s", f, got, want)
		}
	}
	c.attr.AtomicCap = 1
	if got := by(c, driver.FeatureAtomics); got != "<nil>" {
		t.Error(got)
	}
}

package rxe

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
)

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

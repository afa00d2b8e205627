package mlx5

import (
	"context"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

func TestCompletions(t *testing.T) {
	sendOp := func(op uint8) func(*mlx5prm.CQE) {
		return func(e *mlx5prm.CQE) { e.SOpDropQPN[0] = op; e.ByteCnt.Set(77) }
	}
	received := func(e *mlx5prm.CQE) { e.ByteCnt.Set(77); e.ImmInvalPKey.Set(0xdeadbeef) }
	for _, c := range []struct {
		name   string
		opcode uint8
		post   driver.SendWR
		set    func(*mlx5prm.CQE)
		want   driver.WC
	}{
		{"send", mlx5prm.CQEReq, driver.SendWR{Op: driver.OpSend}, sendOp(mlx5prm.OpSend), driver.WC{ID: 1, Op: driver.WCSend}},
		{"write", mlx5prm.CQEReq, driver.SendWR{Op: driver.OpWrite}, sendOp(mlx5prm.OpWrite), driver.WC{ID: 1, Op: driver.WCWrite}},
		{"read", mlx5prm.CQEReq, driver.SendWR{Op: driver.OpRead}, sendOp(mlx5prm.OpRead), driver.WC{ID: 1, Op: driver.WCRead, ByteLen: 77}},
		{"atomic", mlx5prm.CQEReq, driver.SendWR{Op: driver.OpFetchAdd, SGL: []driver.SGE{{Length: 8}}}, sendOp(mlx5prm.OpAtomicFA), driver.WC{ID: 1, Op: driver.WCFetchAdd, ByteLen: 8}},
		{"receive", mlx5prm.CQERespSend, driver.SendWR{}, received, driver.WC{ID: 2, Op: driver.WCRecv, ByteLen: 77}},
		{"immediate", mlx5prm.CQERespSendImm, driver.SendWR{}, received, driver.WC{ID: 2, Op: driver.WCRecv, ByteLen: 77, Flags: driver.WCWithImm, Imm: 0xdeadbeef}},
		{"invalidate", mlx5prm.CQERespSendInv, driver.SendWR{}, received, driver.WC{ID: 2, Op: driver.WCRecv, ByteLen: 77, Flags: driver.WCWithInv, Imm: 0xdeadbeef}},
		{"write with immediate", mlx5prm.CQERespWrImm, driver.SendWR{}, received, driver.WC{ID: 2, Op: driver.WCRecvWriteWithImm, ByteLen: 77, Flags: driver.WCWithImm, Imm: 0xdeadbeef}},
	} {
		for _, version := range []uint8{0, 1} {
			k := newFake()
			k.resp.CQEVersion = version
			r := newRig(t, k, 128, driver.QPConfig{Cap: small})
			c.post.ID = 1
			r.post(c.post)
			if n, err := r.qp.PostRecv([]driver.RecvWR{{ID: 2}}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			r.complete(c.opcode, 0, func(e *mlx5prm.CQE) { c.set(e) })
			c.want.QPN = r.qp.num
			if wcs := r.poll(2); len(wcs) != 1 || wcs[0] != c.want {
				t.Errorf("%s, version %d: %+v, want %+v", c.name, version, wcs, c.want)
			}
		}
	}
}

func TestErrorCompletions(t *testing.T) {
	for syndrome, want := range map[uint8]driver.Status{
		mlx5prm.SyndromeLocalLengthErr: driver.LocLenErr, mlx5prm.SyndromeLocalQPOpErr: driver.LocQPOpErr,
		mlx5prm.SyndromeLocalProtErr: driver.LocProtErr, mlx5prm.SyndromeWRFlushErr: driver.WRFlushErr,
		mlx5prm.SyndromeMWBindErr: driver.MWBindErr, mlx5prm.SyndromeBadRespErr: driver.BadRespErr,
		mlx5prm.SyndromeLocalAccessErr: driver.LocAccessErr, mlx5prm.SyndromeRemoteInvalReqErr: driver.RemInvReqErr,
		mlx5prm.SyndromeRemoteAccessErr: driver.RemAccessErr, mlx5prm.SyndromeRemoteOpErr: driver.RemOpErr,
		mlx5prm.SyndromeTransportRetryExcErr: driver.RetryExcErr, mlx5prm.SyndromeRNRRetryExcErr: driver.RNRRetryExcErr,
		mlx5prm.SyndromeRemoteAbortedErr: driver.RemAbortErr, 0x99: driver.GeneralErr,
	} {
		for _, opcode := range []uint8{mlx5prm.CQEReqErr, mlx5prm.CQERespErr} {
			r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
			r.post(driver.SendWR{ID: 1, Op: driver.OpWrite})
			if n, err := r.qp.PostRecv([]driver.RecvWR{{ID: 2}}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			r.complete(opcode, 0, nil)
			e := r.cq.errCQE(r.cq.where(0))
			e.Syndrome, e.VendorErrSynd = syndrome, 0x42
			wc := driver.WC{ID: 1, Op: driver.WCWrite, QPN: r.qp.num, Status: want, VendorErr: 0x42}
			if opcode == mlx5prm.CQERespErr {
				wc.ID, wc.Op = 2, driver.WCRecv
			}
			if wcs := r.poll(2); len(wcs) != 1 || wcs[0] != wc {
				t.Errorf("syndrome %#x of %d: %+v, want %+v", syndrome, opcode, wcs, wc)
			}
			if s := driver.QPState(r.qp.state.Load()); s != driver.StateErr {
				t.Errorf("state %v", s)
			}
		}
	}
}

func TestReceivesCompleteOutOfOrder(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	if n, err := r.qp.PostRecv([]driver.RecvWR{{ID: 10}, {ID: 11}, {ID: 12}}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for _, i := range []uint32{2, 0, 1} {
		r.complete(mlx5prm.CQERespSend, i, nil)
	}
	wcs := r.poll(4)
	if len(wcs) != 3 || wcs[0].ID != 12 || wcs[1].ID != 10 || wcs[2].ID != 11 {
		t.Errorf("%+v", wcs)
	}
}

// TestPurgeKeepsOthers takes the completions of one QP out from between those of
// another, at each place where the owner bit turns.
func TestPurgeKeepsOthers(t *testing.T) {
	for before := range uint32(20) {
		r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
		for range before {
			r.complete(mlx5prm.CQEReq, 0, nil)
			r.poll(1)
		}
		other := func(n uint32) func(*mlx5prm.CQE) {
			return func(e *mlx5prm.CQE) { e.SRQNUIdx.Set(0x123456); e.ByteCnt.Set(n) }
		}
		r.complete(mlx5prm.CQEReq, 0, other(1))
		r.complete(mlx5prm.CQEReq, 0, nil)
		r.complete(mlx5prm.CQEReq, 0, other(2))
		r.complete(mlx5prm.CQEReq, 0, nil)
		r.qp.Purge()
		var left []uint32
		for i := r.cq.ci; r.cq.ready(i); i++ {
			left = append(left, r.cq.cqe(r.cq.where(i)).ByteCnt.Get())
		}
		if len(left) != 2 || left[0] != 1 || left[1] != 2 || r.cq.ci != before+2 {
			t.Errorf("after %d: %v from %d", before, left, r.cq.ci)
		}
		if got := r.poll(4); len(got) != 0 {
			t.Errorf("completions of a QP that does not exist: %+v", got)
		}
	}
}

// TestQueueIsWholeAfterReset polls completions of before between the reset and the
// purge: what they count must not stay.
func TestQueueIsWholeAfterReset(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	r.post(make4(driver.OpWrite)...)
	r.complete(mlx5prm.CQEReq, 3, nil)
	r.complete(mlx5prm.CQEReq, 3, nil)
	if err := r.qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask); err != nil {
		t.Fatal(err)
	}
	r.poll(1)
	r.qp.Purge()
	if wcs := r.poll(4); len(wcs) != 0 {
		t.Errorf("after the purge: %+v", wcs)
	}
	for s := driver.StateInit; s <= driver.StateRTS; s++ {
		if err := r.qp.Modify(&driver.QPAttr{State: s}, driver.QPStateMask); err != nil {
			t.Fatal(err)
		}
	}
	if _, send := r.records(); send != 0 {
		t.Errorf("the record says %d", send)
	}
	r.post(make4(driver.OpWrite)...)
	if _, err := r.qp.PostSend(make([]driver.SendWR, 1)); err != driver.ErrQueueFull {
		t.Error(err)
	}
}

func make4(op driver.Opcode) []driver.SendWR {
	return []driver.SendWR{{Op: op}, {Op: op}, {Op: op}, {Op: op}}
}

// TestMemoryOfADestroyedQPStaysUntilPurge polls a completion of a QP that is gone.
func TestMemoryOfADestroyedQPStaysUntilPurge(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	config := driver.QPConfig{Type: driver.UC, SendCQ: r.cq, RecvCQ: r.cq, Cap: small}
	pd, err := r.c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	other, err := pd.CreateQP(config)
	if err != nil {
		t.Fatal(err)
	}
	qp := other.(*QP)
	r.complete(mlx5prm.CQEReq, 0, func(e *mlx5prm.CQE) { e.SRQNUIdx.Set(qp.key) })
	if err := errors.Join(qp.Close(), pd.Close()); err != nil {
		t.Fatal(err)
	}
	if wcs := r.poll(1); len(wcs) != 0 {
		t.Errorf("%+v", wcs)
	}
	if err := errors.Join(qp.mem.Retain(), qp.mem.Release()); err != nil {
		t.Errorf("the memory went before Purge: %v", err)
	}
	qp.Purge()
	if err := qp.mem.Retain(); err == nil {
		t.Error("the memory is still there after Purge")
	}
}

func TestArmNumbersEvents(t *testing.T) {
	k := newFake()
	c := k.open(t, 64)
	ch, err := c.CreateCompChannel()
	if err != nil {
		t.Fatal(err)
	}
	cqs, err := c.CreateCQ(driver.CQConfig{Depth: 1, Cookie: 5, Channel: ch})
	if err != nil {
		t.Fatal(err)
	}
	cq := cqs.(*CQ)
	page := k.uars[int64(c.armUAR.PageID)<<12]
	for i := range uint32(6) {
		solicited := i%2 == 1
		if err := cq.Arm(solicited); err != nil {
			t.Fatal(err)
		}
		want := i & 3 << 28
		if solicited {
			want |= mlx5prm.ArmSolicited
		}
		record := binary.BigEndian.Uint32(cq.records.Bytes()[4:])
		if reg := binary.BigEndian.Uint64(page[mlx5prm.UARArm:]); record != want || reg != uint64(want)<<32|fakeCQN {
			t.Errorf("arm %d: record %#x, register %#x, want %#x", i, record, reg, want)
		}
		if err := k.Post(order.AppendUint64(nil, 5)); err != nil {
			t.Fatal(err)
		}
		if cookie, err := ch.Wait(context.Background()); cookie != 5 || err != nil {
			t.Fatal(cookie, err)
		}
	}
	for _, o := range []interface{ Close() error }{cq, ch} {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestUnprovenAndBrokenDevicesAreRefused(t *testing.T) {
	k := newFake()
	if _, err := (Provider{}).Open(k.world(), node); !errors.Is(err, driver.ErrNotSupported) {
		t.Errorf("without leave: %v", err)
	}
	if files, objects := k.Left(); files != 0 || objects != 0 {
		t.Errorf("the refusal left %d files, %d objects", files, objects)
	}
	for name, spoil := range map[string]func(*uapi.MLX5AllocUContextResp){
		"CQE version":   func(r *uapi.MLX5AllocUContextResp) { r.CQEVersion = 2 },
		"doorbell size": func(r *uapi.MLX5AllocUContextResp) { r.BFRegSize = 4096 },
		"odd doorbell":  func(r *uapi.MLX5AllocUContextResp) { r.BFRegSize = 192 },
		"entry size":    func(r *uapi.MLX5AllocUContextResp) { r.MaxSQDescSz = 64 },
	} {
		k := newFake()
		spoil(&k.resp)
		if _, err := (Provider{Allowed: true}).Open(k.world(), node); !errors.Is(err, syscall.EPROTO) {
			t.Errorf("%s: %v", name, err)
		}
		if files, objects := k.Left(); files != 0 || objects != 0 {
			t.Errorf("%s left %d files, %d objects", name, files, objects)
		}
	}
}

package mlx5

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// owner is the QP of a completion, nil for one that was purged.
func (c *Context) owner(e *mlx5prm.CQE) *QP {
	if c.uidx {
		return c.qps.find(e.SRQNUIdx.Get() & 0xffffff)
	}
	return c.qps.find(e.QPN())
}

// take turns the completion at off into wc, frees its request, and says whether
// there is something to report.
func (c *Context) take(wc *driver.WC, v *view, off uint32) bool {
	e := v.cqe(off)
	q := c.owner(e)
	if q == nil {
		return false
	}
	if q.gone.Load() {
		q.giveBack(e)
		return false
	}
	*wc = driver.WC{QPN: q.num}
	switch e.Opcode() {
	case mlx5prm.CQEReq:
		wc.Op = q.sq.complete(wc, e.WQECounter.Get())
		switch e.SendOpcode() {
		case mlx5prm.OpRead:
			wc.ByteLen = e.ByteCnt.Get()
		case mlx5prm.OpAtomicCS, mlx5prm.OpAtomicFA:
			wc.ByteLen = 8
		}
	case mlx5prm.CQEReqErr:
		wc.Op = q.sq.complete(wc, e.WQECounter.Get())
		q.fail(wc, v.errCQE(off), q.sqFails)
	case mlx5prm.CQERespErr:
		wc.Op = driver.WCRecv
		q.took(wc, e)
		q.fail(wc, v.errCQE(off), driver.StateErr)
	case mlx5prm.CQERespSend, mlx5prm.CQERespSendImm, mlx5prm.CQERespSendInv, mlx5prm.CQERespWrImm:
		q.received(wc, e)
	default:
		return false
	}
	return true
}

// took frees the receive that a completion names, of the SRQ where the QP has one.
func (q *QP) took(wc *driver.WC, e *mlx5prm.CQE) {
	if q.srq != nil {
		q.srq.q.complete(wc, e.WQECounter.Get())
	} else {
		q.rq.complete(wc, e.WQECounter.Get())
	}
}

func (q *QP) received(wc *driver.WC, e *mlx5prm.CQE) {
	q.took(wc, e)
	wc.Op = driver.WCRecv
	wc.ByteLen = e.ByteCnt.Get()
	switch e.Opcode() {
	case mlx5prm.CQERespWrImm:
		wc.Op, wc.Flags, wc.Imm = driver.WCRecvWriteWithImm, driver.WCWithImm, e.ImmInvalPKey.Get()
	case mlx5prm.CQERespSendImm:
		wc.Flags, wc.Imm = driver.WCWithImm, e.ImmInvalPKey.Get()
	case mlx5prm.CQERespSendInv:
		wc.Flags, wc.Imm = driver.WCWithInv, e.ImmInvalPKey.Get()
		q.dev.invalidated(wc.Imm)
	}
	if q.sq.datagram != nil {
		came(wc, e)
	}
}

// came says where a datagram came from. The index of its P_Key is told only where no
// immediate data takes the place.
func came(wc *driver.WC, e *mlx5prm.CQE) {
	wc.SrcQP, wc.SL, wc.SLID, wc.PathBits = e.SrcQP(), e.SL(), e.SLID.Get(), e.MLPath&0x7f
	if e.GRH() != 0 {
		wc.Flags |= driver.WCGRH
	}
	if e.Opcode() == mlx5prm.CQERespSend {
		wc.PKeyIndex = uint16(e.ImmInvalPKey.Get())
	}
}

// fail is for a completion in error. It moves an RC QP to ERR; of the others a request
// that fails stops the send queue alone (IBTA 10.3.1, SQE).
func (q *QP) fail(wc *driver.WC, e *mlx5prm.ErrCQE, to driver.QPState) {
	wc.Status = status(e.Syndrome)
	wc.VendorErr = uint32(e.VendorErrSynd)
	if to == driver.StateErr {
		q.state.Store(uint32(to))
	} else {
		q.state.CompareAndSwap(uint32(driver.StateRTS), uint32(to))
	}
}

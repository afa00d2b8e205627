package mlx5

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// owner is the QP of a completion, nil for one that is closed.
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
		q.fail(wc, v.errCQE(off))
	case mlx5prm.CQERespErr:
		wc.Op = driver.WCRecv
		q.rq.complete(wc, e.WQECounter.Get())
		q.fail(wc, v.errCQE(off))
	case mlx5prm.CQERespSend, mlx5prm.CQERespSendImm, mlx5prm.CQERespSendInv, mlx5prm.CQERespWrImm:
		q.received(wc, e)
	default:
		return false
	}
	return true
}

func (q *QP) received(wc *driver.WC, e *mlx5prm.CQE) {
	q.rq.complete(wc, e.WQECounter.Get())
	wc.Op = driver.WCRecv
	wc.ByteLen = e.ByteCnt.Get()
	switch e.Opcode() {
	case mlx5prm.CQERespWrImm:
		wc.Op, wc.Flags, wc.Imm = driver.WCRecvWriteWithImm, driver.WCWithImm, e.ImmInvalPKey.Get()
	case mlx5prm.CQERespSendImm:
		wc.Flags, wc.Imm = driver.WCWithImm, e.ImmInvalPKey.Get()
	case mlx5prm.CQERespSendInv:
		wc.Flags, wc.Imm = driver.WCWithInv, e.ImmInvalPKey.Get()
	}
}

// fail is for a completion in error, after which the QP is in ERR.
func (q *QP) fail(wc *driver.WC, e *mlx5prm.ErrCQE) {
	wc.Status = status(e.Syndrome)
	wc.VendorErr = uint32(e.VendorErrSynd)
	q.state.Store(uint32(driver.StateErr))
}

package mlx5model

import "github.com/purerdma/purerdma/internal/mlx5prm"

// sent completes a request of the send queue. data is what a request brought that is
// delivered with the completion.
func (q *qp) sent(e *entry, bytes uint64, data []byte) {
	if e.FmCeSe&mlx5prm.CtrlCQUpdate == 0 {
		return
	}
	c := mlx5prm.CQE{}
	c.SRQNUIdx.Set(q.key)
	c.SOpDropQPN.Set(uint32(e.Opcode())<<24 | q.num)
	c.WQECounter.Set(e.index)
	c.ByteCnt.Set(uint32(bytes))
	q.send.add(&c, mlx5prm.CQEReq, data)
}

// received completes a receive. opcode is CQEResp….
func (q *qp) received(r *receive, c *mlx5prm.CQE, opcode uint8, data []byte) {
	r.traced(q)
	c.SRQNUIdx.Set(q.key)
	if q.srq != nil && q.c.version == 0 {
		c.SRQNUIdx.Set(q.srq.num)
	}
	c.SOpDropQPN.Set(q.num)
	c.WQECounter.Set(r.index)
	q.recv.add(c, opcode, data)
}

// failed completes a request or a receive in error. The vendor's syndrome is the
// complement of the other: what an adapter says there is not published.
func (q *qp) failed(to *cq, opcode, syndrome uint8, request uint8, index uint16) {
	c := mlx5prm.ErrCQE{VendorErrSynd: ^syndrome, Syndrome: syndrome}
	c.SRQN.Set(q.key)
	if opcode == mlx5prm.CQERespErr && q.srq != nil && q.c.version == 0 {
		c.SRQN.Set(q.srq.num)
	}
	c.SWQEOpcodeQPN.Set(uint32(request)<<24 | q.num)
	c.WQECounter.Set(index)
	e := structOf[mlx5prm.CQE](bytesOf(&c))
	to.add(&e, opcode, nil)
}

func (q *qp) sendFailed(e *entry, syndrome uint8) {
	q.failed(q.send, mlx5prm.CQEReqErr, syndrome, e.Opcode(), e.index)
	q.sqCI += e.blocks
}

func (q *qp) receiveFailed(r *receive, syndrome uint8) {
	r.traced(q)
	q.failed(q.recv, mlx5prm.CQERespErr, syndrome, 0, r.index)
	q.took()
}

// flushSend ends what is in the send queue, flushReceive what is in the receive queue.
// They say whether there was anything.
func (q *qp) flushSend() (busy bool) {
	posted, ok := counter(q.c.mem, q.db+4)
	for ok && q.sqN != 0 && q.sqCI != posted {
		e, err := q.next(posted - q.sqCI)
		if err != nil {
			e.blocks = min(e.blocks, posted-q.sqCI)
		}
		q.sendFailed(e, mlx5prm.SyndromeWRFlushErr)
		busy = true
	}
	return busy
}

func (q *qp) flushReceive() (busy bool) {
	if q.srq != nil {
		return false
	}
	for r := q.nextReceive(); r != nil; r = q.nextReceive() {
		q.receiveFailed(r, mlx5prm.SyndromeWRFlushErr)
		busy = true
	}
	return busy
}

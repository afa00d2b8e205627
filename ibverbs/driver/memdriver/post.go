package memdriver

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// maxMessage is the longest message of the IBTA, in bytes.
const maxMessage = 1 << 31

const knownFlags = driver.Fence | driver.Signaled | driver.Solicited

func (q *qp) PostSend(wrs []driver.SendWR) (n int, err error) {
	q.sending.take("PostSend")
	defer q.sending.give()
	d := q.dev().d
	d.mu.Lock()
	defer d.mu.Unlock()
	for n < len(wrs) && err == nil {
		if err = q.checkSend(&wrs[n]); err == nil {
			q.queueSend(&wrs[n])
			n++
		}
	}
	switch q.attr.State {
	case driver.StateRTS:
		q.run()
	case driver.StateErr:
		q.flush()
	}
	return n, err
}

func (q *qp) checkSend(wr *driver.SendWR) error {
	if err := q.dev().control(OpPostSend); err != nil {
		return err
	}
	if q.attr.State < driver.StateRTS || q.attr.State == driver.StateSQE {
		return driver.ErrBadState
	}
	switch wr.Op {
	case driver.OpWrite, driver.OpWriteWithImm, driver.OpSend, driver.OpSendWithImm:
	case driver.OpRead, driver.OpCmpSwap, driver.OpFetchAdd:
		if wr.Inline != nil {
			return syscall.EINVAL
		}
	default:
		return driver.ErrBadOpcode
	}
	if len(wr.SGL) > q.attr.Cap.SendSGE || wr.Op == driver.OpRead && len(wr.SGL) > q.dev().attr.MaxSGERead {
		return driver.ErrTooManySGE
	}
	if wr.Inline != nil && wr.SGL != nil || wr.Flags&^knownFlags != 0 {
		return syscall.EINVAL
	}
	if len(wr.Inline) > q.attr.Cap.Inline {
		return driver.ErrInlineTooBig
	}
	if total(wr.SGL) > maxMessage {
		return driver.ErrTooLong
	}
	if q.sqPosted-q.sqFreed >= uint64(len(q.sq)) {
		return driver.ErrQueueFull
	}
	return nil
}

// queueSend copies wr into the queue.
func (q *qp) queueSend(wr *driver.SendWR) {
	d := q.dev().d
	d.posted++
	e := &q.sq[q.sqPosted%uint64(len(q.sq))]
	data, sgl := append(e.data[:0], wr.Inline...), append(e.sgl[:0], wr.SGL...)
	*e = sendEntry{
		order: d.posted, id: wr.ID, op: wr.Op, flags: wr.Flags, imm: wr.Imm, remote: wr.Remote,
		compare: wr.CompareAdd, add: wr.CompareAdd, inline: wr.Inline != nil, data: data, sgl: sgl,
	}
	if wr.Op == driver.OpCmpSwap {
		e.add = wr.Swap
	}
	q.sqPosted++
}

func (q *qp) PostRecv(wrs []driver.RecvWR) (n int, err error) {
	q.receiving.take("PostRecv")
	defer q.receiving.give()
	d := q.dev().d
	d.mu.Lock()
	defer d.mu.Unlock()
	for n < len(wrs) && err == nil {
		if err = q.checkRecv(&wrs[n]); err == nil {
			e := &q.rq[q.rqPosted%uint64(len(q.rq))]
			e.id, e.sgl = wrs[n].ID, append(e.sgl[:0], wrs[n].SGL...)
			q.rqPosted++
			n++
		}
	}
	if q.attr.State == driver.StateErr {
		q.flush()
	} else {
		d.kick()
	}
	return n, err
}

func (q *qp) checkRecv(wr *driver.RecvWR) error {
	if err := q.dev().control(OpPostRecv); err != nil {
		return err
	}
	if q.attr.State == driver.StateReset {
		return driver.ErrBadState
	}
	if len(wr.SGL) > q.attr.Cap.RecvSGE {
		return driver.ErrTooManySGE
	}
	if q.rqPosted-q.rqFreed >= uint64(len(q.rq)) {
		return driver.ErrQueueFull
	}
	return nil
}

// total is the bytes of a list.
func total(sgl []driver.SGE) uint64 {
	var n uint64
	for i := range sgl {
		n += uint64(sgl[i].Length)
	}
	return n
}

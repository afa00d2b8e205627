package rxe

import (
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/mmio"
)

// recvQueue is the receive queue of a QP, or an SRQ.
type recvQueue struct {
	ring
	prod  uint32 // the next element to write; published after each list
	free  int    // elements known to be free
	limit int    // receives that may be in the queue at once
	sge   int    // scatter entries of a receive
}

// write puts wrs into the queue without telling the kernel and returns how many
// it took.
func (q *recvQueue) write(wrs []driver.RecvWR) (int, error) {
	for i := range wrs {
		if q.free == 0 && !q.reclaim() {
			return i, driver.ErrQueueFull
		}
		if err := q.put(&wrs[i]); err != nil {
			return i, err
		}
		q.prod = q.next(q.prod)
		q.free--
	}
	return len(wrs), nil
}

// publish lets the kernel see what was written. The store is ordered before
// loads that follow, so that either the caller sees that the QP failed, or
// whoever notes the failure and then flushes finds the receives.
func (q *recvQueue) publish() { atomic.StoreUint32(&q.head.ProducerIndex, q.prod) }

func (q *recvQueue) reclaim() bool {
	q.free = q.limit - q.used(q.prod, q.consumed())
	return q.free > 0
}

// restart follows the kernel through RESET.
func (q *recvQueue) restart() {
	q.prod = q.consumed()
	q.publish()
	q.reclaim()
}

// resume takes over a ring in which the kernel has put what another held.
func (q *recvQueue) resume() {
	q.prod = mmio.LoadAcquire32(&q.head.ProducerIndex) & q.mask
	q.reclaim()
}

// put writes the next element whole.
func (q *recvQueue) put(wr *driver.RecvWR) error {
	n := len(wr.SGL)
	if n > q.sge {
		return driver.ErrTooManySGE
	}
	w := q.recvWQE(q.prod)
	*w = uapi.RxeRecvWQE{WRID: wr.ID}
	to := recvSGL(w, n)
	var length uint64
	for i := range wr.SGL {
		s := &wr.SGL[i]
		to[i] = *s
		length += uint64(s.Length)
	}
	if length > maxMessage {
		return driver.ErrTooLong
	}
	w.DMA.Length = uint32(length)
	w.DMA.Resid = uint32(length)
	w.DMA.NumSGE = uint32(n)
	return nil
}

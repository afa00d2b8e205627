package mlx5

import (
	"math/bits"
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	"github.com/purerdma/purerdma/internal/mmio"
)

// maxMessage is the longest message of the IBTA.
const maxMessage = 1 << 31

// recvQueue is the receive queue of a QP.
type recvQueue struct {
	view
	shift  uint32   // entries are of 1<<shift bytes
	ids    []uint64 // by entry; the length is a power of two
	held   []uint32 // 1 for an entry that is the device's
	head   uint32   // receives posted
	tail   atomic.Uint32
	seen   uint32 // of tail
	sge    int
	limit  uint32
	record *uint32
}

// recvShape is the size of a queue for wr receives of sge entries: a power of two
// of both, and a basic block at least.
func recvShape(wr, sge int) (count int, shift uint32) {
	if wr == 0 {
		return 0, 0
	}
	shift = uint32(bits.Len(uint(max(sge, 1)*mlx5prm.DSUnit - 1)))
	count = 1 << bits.Len(uint(wr-1))
	return max(count, mlx5prm.SendBB>>shift), shift
}

// write puts wrs into the queue without telling the device and returns how many
// it took.
func (q *recvQueue) write(wrs []driver.RecvWR) (int, error) {
	for i := range wrs {
		if q.head-q.seen >= q.limit {
			if q.seen = q.tail.Load(); q.head-q.seen >= q.limit {
				return i, driver.ErrQueueFull
			}
		}
		if err := q.put(&wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// put writes the next entry. Where entries complete out of order, the one before the
// queue's last turn may still be the device's though others are free.
func (q *recvQueue) put(wr *driver.RecvWR) error {
	i := q.head & uint32(len(q.ids)-1)
	if mmio.LoadAcquire32(&q.held[i]) != 0 {
		return driver.ErrQueueFull
	}
	off := q.head << q.shift
	if err := q.scatter(off, off+1<<q.shift, wr.SGL, q.sge); err != nil {
		return err
	}
	q.ids[i], q.held[i] = wr.ID, 1
	q.head++
	return nil
}

// scatter writes the list of an entry from off to end. Entries without bytes are left
// out; a list that does not fill the entry is ended by one of an invalid key.
func (v *view) scatter(off, end uint32, sgl []driver.SGE, most int) error {
	if len(sgl) > most {
		return driver.ErrTooManySGE
	}
	var length uint64
	for i := range sgl {
		s := &sgl[i]
		if s.Length == 0 {
			continue
		}
		length += uint64(s.Length)
		v.data(off).Set(s.Addr, s.Length, s.LKey)
		off += mlx5prm.DSUnit
	}
	if length > maxMessage {
		return driver.ErrTooLong
	}
	if off != end {
		d := v.data(off)
		*d = mlx5prm.Data{}
		d.LKey.Set(mlx5prm.InvalidLKey)
	}
	return nil
}

// publish hands the entries to the device, which has no register for receives.
func (q *recvQueue) publish() {
	mmio.StoreFence()
	mmio.Store32(q.record, mlx5prm.Word(q.head&mlx5prm.CounterMask))
}

// complete frees the entry that a completion names. Entries may complete out of
// order.
func (q *recvQueue) complete(wc *driver.WC, counter uint16) {
	if len(q.ids) == 0 {
		return
	}
	i := uint32(counter) & uint32(len(q.ids)-1)
	wc.ID = q.ids[i]
	if mmio.LoadAcquire32(&q.held[i]) != 0 {
		mmio.StoreRelease32(&q.held[i], 0)
		q.tail.Add(1)
	}
}

// restart follows the device through RESET.
func (q *recvQueue) restart() {
	q.head, q.seen = 0, 0
	q.tail.Store(0)
	clear(q.held)
	mmio.Store32(q.record, 0)
}

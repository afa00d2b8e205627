package softroce

import (
	"sync"
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// recvQueue is a ring of receives. Its lock is held for a post and for taking one
// out, never while packets are sent, so that a post waits for nothing.
type recvQueue struct {
	mu     sync.Mutex
	blocks [][]receive
	mask   uint64
	sge    int

	posted uint64
	done   uint64
	freed  atomic.Uint64
}

// receive is a copy of a RecvWR.
type receive struct {
	id  uint64
	sgl []driver.SGE
}

func newRecvQueue(wr, sge int) *recvQueue {
	n := ringSize(wr)
	return &recvQueue{mask: uint64(n - 1), sge: sge}
}

func (r *recvQueue) post(wrs []driver.RecvWR) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.push(wrs)
}

func (r *recvQueue) push(wrs []driver.RecvWR) (n int, err error) {
	for ; n < len(wrs); n++ {
		wr := &wrs[n]
		if len(wr.SGL) > r.sge {
			return n, driver.ErrTooManySGE
		}
		if r.posted-r.freed.Load() > r.mask {
			return n, driver.ErrQueueFull
		}
		e := r.slot()
		e.id, e.sgl = wr.ID, append(e.sgl[:0], wr.SGL...)
		r.posted++
	}
	return n, nil
}

func (r *recvQueue) slot() *receive {
	if r.blocks == nil {
		r.blocks = make([][]receive, r.mask/blockSize+1)
	}
	i := r.posted & r.mask
	block := &r.blocks[i/blockSize]
	if *block == nil {
		n := min(blockSize, int(r.mask)+1)
		*block = make([]receive, n)
		sges := make([]driver.SGE, n*r.sge)
		for k := range *block {
			(*block)[k].sgl = sges[k*r.sge : k*r.sge : (k+1)*r.sge]
		}
	}
	return &(*block)[i%blockSize]
}

// take copies the oldest receive into to, which has room for its SGL, and says at
// which position polling its completion frees the queue.
func (r *recvQueue) take(to *receive) (upTo uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ok = r.pop(to)
	return r.done, ok
}

func (r *recvQueue) pop(to *receive) bool {
	if r.done == r.posted {
		return false
	}
	i := r.done & r.mask
	e := &r.blocks[i/blockSize][i%blockSize]
	to.id, to.sgl = e.id, append(to.sgl[:0], e.sgl...)
	r.done++
	return true
}

func (r *recvQueue) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.posted, r.done = 0, 0
	r.freed.Store(0)
}

package mlx5

import (
	"sync"
	"sync/atomic"
)

// table finds a QP by the number that its completions carry, which has 24 bits.
// Polls look without a lock.
type table struct {
	mu  sync.Mutex
	top [1 << tableBits]atomic.Pointer[tablePage]
	// next is where to look for a free user index.
	next uint32
}

const tableBits = 12

type tablePage struct {
	qps  [1 << tableBits]atomic.Pointer[QP]
	used int
}

// defaultUIdx is the user index of a QP in a context without them
// (MLX5_IB_DEFAULT_UIDX).
const defaultUIdx = 1<<24 - 1

// find is the QP, nil if there is none.
func (t *table) find(n uint32) *QP {
	p := t.top[n>>tableBits&(1<<tableBits-1)].Load()
	if p == nil {
		return nil
	}
	return p.qps[n&(1<<tableBits-1)].Load()
}

// put makes q known by n.
func (t *table) put(n uint32, q *QP) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(n, q)
}

func (t *table) set(n uint32, q *QP) {
	slot := &t.top[n>>tableBits&(1<<tableBits-1)]
	p := slot.Load()
	if p == nil {
		p = &tablePage{}
		slot.Store(p)
	}
	if p.qps[n&(1<<tableBits-1)].Swap(q) == nil {
		p.used++
	}
}

// add makes q known by a number that is free.
func (t *table) add(q *QP) (uint32, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range defaultUIdx {
		n := t.next
		if t.next++; t.next == defaultUIdx {
			t.next = 0
		}
		if t.find(n) == nil {
			t.set(n, q)
			return n, true
		}
	}
	return 0, false
}

// complete hands out q, which has been filled since add, to polls that come later.
func (t *table) complete(n uint32, q *QP) {
	t.top[n>>tableBits&(1<<tableBits-1)].Load().qps[n&(1<<tableBits-1)].Store(q)
}

// drop forgets q, unless n is of another by now: the kernel gives the numbers of
// destroyed QPs again at once.
func (t *table) drop(n uint32, q *QP) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := &t.top[n>>tableBits&(1<<tableBits-1)]
	p := slot.Load()
	if p == nil || !p.qps[n&(1<<tableBits-1)].CompareAndSwap(q, nil) {
		return
	}
	if p.used--; p.used == 0 {
		slot.Store(nil)
	}
}

package softroce

import (
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// mw is a memory window of type 2B: a key that one queue pair's peer may use for a
// part of an MR. It is free, or bound to a queue pair. What it is bound to is
// written and read under the lock of that queue pair, as each access through it is:
// an access that is on has ended when a window is free again.
type mw struct {
	pd     *pd
	number uint32             // the upper 24 bits of its keys
	shut   atomic.Bool        // Close has begun: nothing binds it any more
	owner  atomic.Pointer[qp] // nil if it is free

	key          uint32
	mr           *mr
	addr, length uint64
	access       driver.Access
	prev, next   *mw // others of the owner
}

// windowBit marks the keys of windows. Those of MRs have it clear.
const windowBit = 1 << 31

// windowRights is what a window can grant.
const windowRights = driver.RemoteWrite | driver.RemoteRead | driver.RemoteAtomic

func (p *pd) AllocMW() (driver.MW, error) {
	if p.e.mws.len() >= maxMW {
		return nil, syscall.ENOMEM
	}
	w := &mw{pd: p}
	_, err := p.e.mws.add(w, p.e.random, 1<<24-1, func(n uint32) bool { w.number = n; return n&(windowBit>>8) != 0 })
	if err != nil {
		return nil, err
	}
	p.users.Add(1)
	return w, nil
}

// RKey ends in zero. A bind replaces these bits.
func (w *mw) RKey() uint32 { return w.number << 8 }

// Close frees a window that is bound first.
func (w *mw) Close() error {
	w.shut.Store(true)
	w.pd.e.mws.remove(w.number)
	for q := w.owner.Load(); q != nil; q = w.owner.Load() {
		q.mu.Lock()
		if w.owner.Load() == q {
			q.unbind(w)
		}
		q.mu.Unlock()
	}
	w.pd.users.Add(-1)
	return nil
}

// binding is what an OpBindMW says beside the address and key.
type binding struct {
	mw     *mw
	mr     *mr
	length uint64
	access driver.Access
}

// checkBind refuses at the post what never could be bound.
func (q *qp) checkBind(b *driver.BindMW) error {
	if b == nil {
		return syscall.EINVAL
	}
	w, ok1 := b.MW.(*mw)
	m, ok2 := b.MR.(*mr)
	if !ok1 || !ok2 || w.pd.ctx != q.pd.ctx || m.pd.ctx != q.pd.ctx || b.RKey>>8 != w.number || b.Access&^windowRights != 0 {
		return syscall.EINVAL
	}
	return nil
}

// bind binds a free window: it, the MR and the queue pair are of one domain, the MR
// allows windows, those that change memory only if it allows that itself, and covers
// the range (IBTA volume 1, C10-72 to C10-75). A window that is bound is not bound
// again (o10-37.2.30), nor unbound by a length of zero (o10-37.2.40); both are for
// windows of type 1. OpLocalInv, or a message of the peer that invalidates, frees it
// first.
func (q *qp) bind(b *binding, addr uint64, key uint32) bool {
	w, m := b.mw, b.mr
	need := driver.MWBind
	if b.access&remoteChange != 0 {
		need |= driver.LocalWrite
	}
	if b.length == 0 || w.pd != q.pd || !m.covers(q.pd, addr, b.length, need) || !w.owner.CompareAndSwap(nil, q) {
		return false
	}
	if w.shut.Load() || !m.hold() {
		w.owner.Store(nil)
		return false
	}
	w.key, w.mr, w.addr, w.length, w.access = key, m, addr, b.length, b.access
	w.prev, w.next = nil, q.windows
	if w.next != nil {
		w.next.prev = w
	}
	q.windows = w
	return true
}

// unbind frees a window of q.
func (q *qp) unbind(w *mw) {
	if w.prev == nil {
		q.windows = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.mr.release()
	w.mr, w.prev, w.next = nil, nil, nil
	w.owner.Store(nil)
}

// dropWindows frees all that are bound to q, which is reset or closed.
func (q *qp) dropWindows() {
	for q.windows != nil {
		q.unbind(q.windows)
	}
}

// window is the window of q with this key, or nil.
func (q *qp) window(key uint32) *mw {
	if w := q.e.mws.get(key >> 8); w != nil && w.owner.Load() == q && w.key == key {
		return w
	}
	return nil
}

// covers says whether the window gives what need says to n bytes from addr on.
func (w *mw) covers(addr, n uint64, need driver.Access) bool {
	return w != nil && w.access&need == need && addr >= w.addr && addr-w.addr <= w.length && n <= w.length-(addr-w.addr)
}

// grantsMemory says whether the peer may do with n bytes from addr on what need says.
func (q *qp) grantsMemory(key uint32, addr, n uint64, need driver.Access) bool {
	if key&windowBit != 0 {
		return q.window(key).covers(addr, n, need)
	}
	return q.e.mrs.get(key).covers(q.pd, addr, n, need)
}

// remoteMemory is n bytes from addr on with a key of the peer's, for a copy; nil if
// the peer may not do that. The caller calls end on the registration.
func (q *qp) remoteMemory(key uint32, addr, n uint64, need driver.Access) (*mr, []byte) {
	if key&windowBit == 0 {
		return q.e.memory(q.pd, key, addr, n, need)
	}
	w := q.window(key)
	if !w.covers(addr, n, need) || !w.mr.begin() {
		return nil, nil
	}
	return w.mr, w.mr.bytes(addr, n)
}

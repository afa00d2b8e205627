//go:build !race

package spin

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/purerdma/purerdma/internal/mmio"
)

// Mutex is a sync.Locker. The zero value is not locked. It must not be copied.
type Mutex struct {
	_    noCopy
	held uint32
}

// Lock takes the lock, waiting for it if need be.
func (m *Mutex) Lock() {
	if !atomic.CompareAndSwapUint32(&m.held, 0, 1) {
		m.wait()
	}
}

// TryLock takes the lock if nobody holds it, and says whether it did.
func (m *Mutex) TryLock() bool { return atomic.CompareAndSwapUint32(&m.held, 0, 1) }

// Unlock gives the lock back. It must be held. What the holder wrote is seen by
// whoever takes it next: the store is a releasing one.
func (m *Mutex) Unlock() { mmio.StoreRelease32(&m.held, 0) }

// wait yields a while, for holders that run, then sleeps, for one that was
// preempted or does something slow for once.
func (m *Mutex) wait() {
	const yields, first, most = 64, 10 * time.Microsecond, time.Millisecond
	for i, step := 0, first; ; i++ {
		if atomic.LoadUint32(&m.held) == 0 && atomic.CompareAndSwapUint32(&m.held, 0, 1) {
			return
		}
		if i < yields {
			runtime.Gosched()
			continue
		}
		time.Sleep(step)
		step = min(2*step, most)
	}
}

// noCopy makes go vet complain about copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

package ibverbs

import (
	"sync"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/spin"
)

// postLock is the lock of a queue's posts: of a device whose posts are stores to memory a
// spin.Mutex, since the second half of a sync.Mutex costs a fifth of such a post; else a
// sync.Mutex, whose waiters are woken.
type postLock struct {
	brief bool // set by suit, before the first use
	spin  spin.Mutex
	mu    sync.Mutex
}

// suit chooses the lock for a driver's QP or SRQ.
func (l *postLock) suit(d any) { _, l.brief = d.(driver.MemoryPoster) }

func (l *postLock) Lock() {
	if l.brief {
		l.spin.Lock()
		return
	}
	l.mu.Lock()
}

func (l *postLock) Unlock() {
	if l.brief {
		l.spin.Unlock()
		return
	}
	l.mu.Unlock()
}

func (l *postLock) TryLock() bool {
	if l.brief {
		return l.spin.TryLock()
	}
	return l.mu.TryLock()
}

package memdriver

import (
	"context"
	"sync"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// mailbox is a queue without bound that one goroutine waits on. mu, the lock of
// the fabric, is held around all but wait.
type mailbox[T any] struct {
	mu     *sync.Mutex
	q      []T
	wake   chan struct{} // holds a token while q may be other than empty
	closed chan struct{}
}

func newMailbox[T any](mu *sync.Mutex) *mailbox[T] {
	return &mailbox[T]{mu: mu, wake: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (m *mailbox[T]) put(v T) {
	m.q = append(m.q, v)
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mailbox[T]) close() { close(m.closed) }

// take gives the oldest and moves the rest up, so that the array is reused.
func (m *mailbox[T]) take() (v T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.q) == 0 {
		return v, false
	}
	v = m.q[0]
	m.q = m.q[:copy(m.q, m.q[1:])]
	return v, true
}

// wait prefers what is there to ctx being done, and being closed to both.
func (m *mailbox[T]) wait(ctx context.Context) (v T, err error) {
	for {
		select {
		case <-m.closed:
			return v, driver.ErrClosed
		default:
		}
		if v, ok := m.take(); ok {
			return v, nil
		}
		select {
		case <-m.closed:
		case <-m.wake:
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

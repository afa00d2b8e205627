package softroce

import (
	"context"
	"slices"
	"sync"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// mailbox is a queue without bound that one goroutine waits on.
type mailbox[T any] struct {
	mu     sync.Mutex
	q      []T
	head   int           // of q, up to which all is taken
	wake   chan struct{} // holds a token while q may be other than empty
	closed chan struct{}
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{wake: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (m *mailbox[T]) put(v T) {
	m.mu.Lock()
	m.q = append(m.q, v)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// drop takes out what is not to be delivered any more.
func (m *mailbox[T]) drop(which func(T) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.q, m.head = slices.DeleteFunc(m.q[m.head:], which), 0
}

func (m *mailbox[T]) close() { close(m.closed) }

// take gives the oldest. The array is used again once it is empty.
func (m *mailbox[T]) take() (v T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.head == len(m.q) {
		return v, false
	}
	v = m.q[m.head]
	if m.head++; m.head == len(m.q) {
		m.q, m.head = m.q[:0], 0
	}
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

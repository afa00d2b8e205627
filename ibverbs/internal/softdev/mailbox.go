package softdev

import (
	"context"
	"slices"
	"sync"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/cause"
)

// Mailbox is a queue without bound that one goroutine waits on; any may put. Its
// calls but Wait block for nothing, so they may be made under a lock.
type Mailbox[T any] struct {
	under  sync.Locker // nil for none
	mu     sync.Mutex
	q      []T
	head   int           // of q, up to which all is taken
	wake   chan struct{} // holds a token while q may be other than empty
	closed chan struct{}
}

// NewMailbox makes an empty one. What is put while a lock is held may not be wanted
// to be seen before that is free again: Take and Wait take it too, unless it is nil,
// and the others are then called under it.
func NewMailbox[T any](under sync.Locker) *Mailbox[T] {
	return &Mailbox[T]{under: under, wake: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Put adds v at the end.
func (m *Mailbox[T]) Put(v T) {
	m.mu.Lock()
	m.q = append(m.q, v)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Drop takes out what is not to be delivered any more.
func (m *Mailbox[T]) Drop(which func(T) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.q, m.head = slices.DeleteFunc(m.q[m.head:], which), 0
}

// Close ends all waiting. It is called once.
func (m *Mailbox[T]) Close() { close(m.closed) }

// Take gives the oldest, if there is one. The array is used again once it is empty.
func (m *Mailbox[T]) Take() (v T, ok bool) {
	if m.under != nil {
		m.under.Lock()
		defer m.under.Unlock()
	}
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

// Wait gives the oldest, why ctx has ended or ErrClosed. It prefers what is there to ctx
// being done, and being closed to both.
func (m *Mailbox[T]) Wait(ctx context.Context) (v T, err error) {
	for {
		select {
		case <-m.closed:
			return v, driver.ErrClosed
		default:
		}
		if v, ok := m.Take(); ok {
			return v, nil
		}
		select {
		case <-m.closed:
		case <-m.wake:
		case <-ctx.Done():
			return v, cause.Of(ctx)
		}
	}
}

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/purerdma/purerdma/socketboot/internal/cause"
)

// Memory is one rank's end of a job whose ranks are goroutines of this process, for tests: a [Job] without TCP.
type Memory struct {
	*state
	hub   *hub
	begun uint64 // all-gathers; under the hub's lock
}

var _ Job = (*Memory)(nil)

// hub is what the ranks share.
type hub struct {
	members []*Memory
	pause   func(rank int)

	mu      sync.Mutex
	gathers map[uint64]*common
}

// common is one all-gather.
type common struct {
	all [][]byte
	n   int
}

// InMemory makes the ends of a job of n ranks. pause, which may be nil, is called at the begin of each call of a rank, outside
// of locks: a test that sleeps there for a random time in a bubble of testing/synctest makes the ranks run in another order.
func InMemory(n int, pause func(rank int)) []*Memory {
	h := &hub{members: make([]*Memory, max(n, 0)), pause: pause, gathers: map[uint64]*common{}}
	if h.pause == nil {
		h.pause = func(int) {}
	}
	for rank := range h.members {
		h.members[rank] = &Memory{state: newState(rank, n, Limits{}, func(rank int) string { return fmt.Sprintf("memory:%d", rank) }), hub: h}
	}
	return h.members
}

// Send is [Job.Send].
func (m *Memory) Send(ctx context.Context, to int, tag uint32, b []byte) error {
	if err := m.checkRank("send to", to); err != nil {
		return err
	}
	m.hub.pause(m.rank)
	err := m.usable(ctx, to)
	if err == nil {
		err = m.hub.members[to].put(m.rank, tag, append([]byte{}, b...))
		if errors.Is(err, net.ErrClosed) {
			err = ErrLeft
		}
	}
	if err != nil {
		return m.blame(to, fmt.Sprintf("send with tag %#x", tag), err)
	}
	return nil
}

func (m *Memory) usable(ctx context.Context, to int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if _, gone := m.left[to]; gone {
		return ErrLeft
	}
	return cause.Of(ctx)
}

// Recv is [Job.Recv].
func (m *Memory) Recv(ctx context.Context, from int, tag uint32) ([]byte, error) {
	m.hub.pause(m.rank)
	return m.state.Recv(ctx, from, tag)
}

// AllGather is [Job.AllGather].
func (m *Memory) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	if ctx == nil {
		return nil, fmt.Errorf("bootstrap: all-gather: %w", cause.ErrNoContext)
	}
	m.hub.pause(m.rank)
	if len(mine) > m.limits.Slice {
		return nil, fmt.Errorf("bootstrap: all-gather of %d bytes from rank %d: %w of %d", len(mine), m.rank, ErrTooLong, m.limits.Slice)
	}
	if err := m.Err(); err != nil {
		return nil, err
	}
	seq, c, last := m.hub.give(m, mine)
	if last {
		for _, other := range m.hub.members {
			other.mu.Lock()
			other.notify()
			other.mu.Unlock()
		}
	}
	err := m.await(ctx, func() (bool, error) {
		if m.hub.complete(c) {
			return true, nil
		}
		if m.err != nil {
			return false, m.err
		}
		return false, m.missing(seq)
	})
	if err != nil {
		return nil, m.blame(m.hub.absent(c), "all-gather", err)
	}
	all := make([][]byte, len(c.all))
	for i, b := range c.all {
		all[i] = append([]byte{}, b...)
	}
	return all, nil
}

func (h *hub) give(m *Memory, mine []byte) (seq uint64, c *common, last bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seq = m.begun
	m.begun++
	c = h.gathers[seq]
	if c == nil {
		c = &common{all: make([][]byte, len(h.members))}
		h.gathers[seq] = c
	}
	c.all[m.rank] = append([]byte{}, mine...)
	if c.n++; c.n == len(h.members) {
		delete(h.gathers, seq)
		last = true
	}
	return seq, c, last
}

func (h *hub) complete(c *common) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return c.n == len(h.members)
}

func (h *hub) absent(c *common) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	for rank, b := range c.all {
		if b == nil {
			return rank
		}
	}
	return 0
}

// Barrier is [Job.Barrier].
func (m *Memory) Barrier(ctx context.Context) error {
	_, err := m.AllGather(ctx, nil)
	return err
}

// Abort is [Job.Abort].
func (m *Memory) Abort(reason error) { m.endFor(fmt.Errorf("%w: %w", ErrAborted, orNoReason(reason))) }

// Kill is the death of this rank's process.
func (m *Memory) Kill() { m.endFor(ErrDied) }

func (m *Memory) endFor(why error) {
	if m.fail(m.about(m.rank, "", why)) {
		for _, other := range m.hub.members {
			other.fail(m.about(m.rank, "", why))
		}
	}
}

// Close is [Job.Close].
func (m *Memory) Close() error {
	if m.fail(fmt.Errorf("bootstrap: rank %d: %w", m.rank, net.ErrClosed)) {
		m.hub.mu.Lock()
		took := m.begun
		m.hub.mu.Unlock()
		for _, other := range m.hub.members {
			if other != m {
				other.leave(m.rank, took)
			}
		}
	}
	return nil
}

package bootstrap

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/purerdma/purerdma/socketboot/internal/cause"
)

// maxGathers bounds the all-gathers of a rank whose wait has ended before them.
const maxGathers = 64

// ring is the state of the all-gathers, under the lock of the state.
type ring struct {
	queue     []*gathering // begun here, not ended; the first is under way
	begun     uint64
	completed uint64
	slices    [][]byte // from the rank before, in order
}

// gathering is one all-gather.
type gathering struct {
	seq  uint64
	all  [][]byte
	have int // slices that have come, mine included
	err  error
	done bool
}

// AllGather is [Job.AllGather].
func (m *Member) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	if ctx == nil {
		return nil, fmt.Errorf("bootstrap: all-gather: %w", cause.ErrNoContext)
	}
	if len(mine) > m.limits.Slice {
		return nil, fmt.Errorf("bootstrap: all-gather of %d bytes from rank %d: %w of %d", len(mine), m.rank, ErrTooLong, m.limits.Slice)
	}
	g := &gathering{all: make([][]byte, m.size), have: 1}
	g.all[m.rank] = append([]byte{}, mine...)
	if err := m.begin(g); err != nil {
		return nil, err
	}
	err := m.await(ctx, func() (bool, error) {
		if !g.done && m.err != nil {
			return false, m.err
		}
		return g.done, g.err
	})
	if err != nil {
		m.mu.Lock()
		waitedFor := (m.rank - g.have + m.size) % m.size
		m.mu.Unlock()
		return nil, m.blame(waitedFor, "all-gather", err)
	}
	return g.all, nil
}

// Barrier is [Job.Barrier].
func (m *Member) Barrier(ctx context.Context) error {
	_, err := m.AllGather(ctx, nil)
	return err
}

func (m *Member) begin(g *gathering) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch r := &m.ring; {
	case m.err != nil:
		return m.err
	case len(r.queue) >= maxGathers:
		return fmt.Errorf("bootstrap: all-gather: %w: %d are under way", ErrTooMany, len(r.queue))
	case m.size == 1:
		g.done = true
		return nil
	default:
		g.seq = r.begun
		r.begun++
		r.queue = append(r.queue, g)
		m.notify()
		return nil
	}
}

// addSlice takes a slice from the ring, ahead of the all-gather it belongs to if need be. The rank before can be ahead by all slices of
// two: a third does not begin before this rank has given to the second.
func (m *Member) addSlice(b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.ring.slices) >= 2*m.size {
		return fmt.Errorf("%w: %d slices wait", ErrTooMany, len(m.ring.slices))
	}
	m.ring.slices = append(m.ring.slices, b)
	m.notify()
	return nil
}

// gather carries out the all-gathers, one after the other, for as long as the ring holds.
func (m *Member) gather() {
	for {
		var g *gathering
		err := m.await(m.ctx, func() (bool, error) {
			if len(m.ring.queue) > 0 {
				g = m.ring.queue[0]
			}
			return g != nil, m.err
		})
		if err != nil {
			return
		}
		err = m.goRound(g)
		m.mu.Lock()
		g.done, g.err = true, err
		if err == nil {
			m.ring.completed++
		}
		m.ring.queue = m.ring.queue[1:]
		m.notify()
		m.mu.Unlock()
	}
}

// goRound sends the slice of rank − i to the next rank and takes that of rank − i − 1 from the one before, for each i.
func (m *Member) goRound(g *gathering) error {
	for i := range m.size - 1 {
		if err := m.next.send(frame(g.all[(m.rank-i+m.size)%m.size])); err != nil {
			m.lost(m.next, err)
		}
		err := m.await(m.ctx, func() (bool, error) {
			if len(m.ring.slices) == 0 {
				if m.err != nil {
					return false, m.err
				}
				return false, m.missing(g.seq)
			}
			g.all[(m.rank-i-1+m.size)%m.size] = m.ring.slices[0]
			m.ring.slices = m.ring.slices[1:]
			g.have++
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func pair(rank int, tag uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(rank))
	return binary.LittleEndian.AppendUint32(b, tag)
}

func parsePair(b []byte, size int) (rank int, tag uint32, err error) {
	if len(b) != 8 {
		return 0, 0, fmt.Errorf("%w: a message's sender of %d bytes, want 8", ErrProtocol, len(b))
	}
	r := binary.LittleEndian.Uint32(b)
	if r >= uint32(size) {
		return 0, 0, fmt.Errorf("%w: a message from rank %d of %d", ErrProtocol, r, size)
	}
	return int(r), binary.LittleEndian.Uint32(b[4:]), nil
}

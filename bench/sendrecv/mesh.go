package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// meshed is what random messages between all came to.
type meshed struct {
	Messages int64   `json:"messages"`
	Bytes    int64   `json:"bytes"`
	Smallest int     `json:"smallest_bytes"`
	Largest  int     `json:"largest_bytes"`
	Time     float64 `json:"time"`  // under way, in seconds: the slowest rank's
	Wrong    int64   `json:"wrong"` // bytes
}

// mesh has all send to all, messages of random sizes.
func (m *member) mesh(ctx context.Context) error {
	mine := meshed{Smallest: int(m.t.max)}
	out, in := map[uint64][]byte{}, map[uint64][]byte{} // kept for the next round
	scratch := make([]byte, m.t.max)
	for round := range m.t.rounds {
		if err := m.job.Barrier(ctx); err != nil {
			return err
		}
		if err := m.everybody(ctx, round, out, in, scratch, &mine); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	all, err := gather(ctx, m.job, mine)
	if err != nil {
		return err
	}
	sum := meshed{Smallest: int(m.t.max)}
	for _, one := range all {
		sum.Messages += one.Messages
		sum.Bytes += one.Bytes
		sum.Wrong += one.Wrong
		sum.Smallest, sum.Largest, sum.Time = min(sum.Smallest, one.Smallest), max(sum.Largest, one.Largest), max(sum.Time, one.Time)
	}
	m.t.results.Mesh, m.t.results.Wrong = &sum, sum.Wrong
	return nil
}

// everybody is a round: all messages of this rank with all others are under way at once.
func (m *member) everybody(ctx context.Context, round int, out, in map[uint64][]byte, scratch []byte, sum *meshed) error {
	type due struct{ at, from, which, size int }
	var coming []due
	var begun time.Time
	for peer := range m.size {
		if peer == m.rank {
			continue
		}
		for i := range m.t.messages {
			which := round*m.t.messages + i
			b := room(out, numberOf(m.rank, peer, i), m.sizeOf(m.rank, peer, which))
			fill(b, m.t.seed, numberOf(m.rank, peer, which))
			m.group.Send(peer, b)
			n := m.sizeOf(peer, m.rank, which)
			b = room(in, numberOf(peer, m.rank, i), n)
			clear(b)
			coming = append(coming, due{m.group.Recv(peer, b), peer, which, n})
		}
	}
	begun = time.Now()
	if err := m.together(ctx); err != nil {
		return err
	}
	sum.Time += time.Since(begun).Seconds()
	for _, d := range coming {
		if n := m.group.Received(d.at); n != d.size {
			return fmt.Errorf("message %d of rank %d has %d bytes, want %d", d.which, d.from, n, d.size)
		}
		sum.Messages++
		sum.Bytes += int64(d.size)
		sum.Smallest, sum.Largest = min(sum.Smallest, d.size), max(sum.Largest, d.size)
		if m.t.check {
			b := in[numberOf(d.from, m.rank, d.which%m.t.messages)][:d.size]
			sum.Wrong += int64(wrong(b, scratch, m.t.seed, numberOf(d.from, m.rank, d.which)))
		}
	}
	return nil
}

// room is n bytes of the memory kept under a key.
func room(kept map[uint64][]byte, key uint64, n int) []byte {
	if cap(kept[key]) < n {
		kept[key] = make([]byte, n)
	}
	kept[key] = kept[key][:n]
	return kept[key]
}

// sizeOf is that of a message, which both ends work out: its magnitude by chance, then its size. One pair has the largest in the
// first round, and nothing the other way.
func (m *member) sizeOf(from, to, which int) int {
	switch most := int(m.t.max); {
	case which == 0 && from == 0 && to == m.size-1:
		return most
	case which == 0 && from == m.size-1 && to == 0:
		return 0
	default:
		r := rand.New(rand.NewPCG(m.t.seed, ^numberOf(from, to, which)))
		bits := 1
		for most>>bits > 0 {
			bits++
		}
		return r.IntN(most>>r.IntN(bits) + 1)
	}
}

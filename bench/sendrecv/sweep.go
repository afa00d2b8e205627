package main

import (
	"context"
	"fmt"
	"time"

	"github.com/purerdma/purerdma/bench/stats"
)

// row is what was measured for a size.
type row struct {
	Size   int       // of the table: bytes that a rank sends in an iteration
	Iters  int       // of a round
	Times  []float64 // of an iteration in each round, in seconds: the mean of the ranks'
	Wrong  int64     // bytes, of all ranks
	busier float64   // bus bandwidth to algorithm bandwidth
}

func (r row) time() float64 { return stats.Median(r.Times) }

// algbw is in GB/s, as busbw is.
func (r row) algbw() float64 { return float64(r.Size) / r.time() / 1e9 }
func (r row) busbw() float64 { return r.algbw() * r.busier }

// way is a message of an iteration: at bytes from to to of its buffer.
type way struct{ peer, from, to int }

// ways is what this rank sends and receives in an iteration of a size, and the bytes that it sends.
func (m *member) ways(size int) (out, in []way, total int) {
	if m.t.pattern == ring {
		return []way{{(m.rank + 1) % m.size, 0, size}}, []way{{(m.rank + m.size - 1) % m.size, 0, size}}, size
	}
	part := size / m.size
	for peer := range m.size {
		w := way{peer, peer * part, (peer + 1) * part}
		out, in = append(out, w), append(in, w)
	}
	return out, in, part * m.size
}

// sweep measures each size.
func (m *member) sweep(ctx context.Context) error {
	out, in, scratch := make([]byte, m.t.max), make([]byte, m.t.max), make([]byte, m.t.max)
	for _, size := range m.sizes() {
		r, err := m.measure(ctx, size, out, in, scratch)
		if err != nil {
			return fmt.Errorf("messages of %d bytes: %w", size, err)
		}
		m.t.results.Rows = append(m.t.results.Rows, r)
		m.t.results.Wrong += r.Wrong
		if m.rank == 0 && m.t.out.Terminal {
			fmt.Fprintf(m.t.out.Err, "\r%d bytes \033[K\r", size)
		}
	}
	return nil
}

// sizes are from the smallest on, each a factor larger, and the largest.
func (m *member) sizes() (all []int) {
	for n := int(m.t.min); n < int(m.t.max); n = max(n*m.t.factor, 1) {
		all = append(all, n)
	}
	return append(all, int(m.t.max))
}

func (m *member) measure(ctx context.Context, size int, out, in, scratch []byte) (row, error) {
	sends, receives, total := m.ways(size)
	r := row{Size: total, Iters: m.t.iters, busier: 1}
	if m.t.pattern == allToAll {
		r.busier = float64(m.size-1) / float64(m.size)
	}
	iterate := func(n int) error {
		for range n {
			for _, w := range sends {
				m.group.Send(w.peer, out[w.from:w.to])
			}
			for _, w := range receives {
				m.group.Recv(w.peer, in[w.from:w.to])
			}
			if err := m.together(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	if r.Iters == 0 {
		n, err := m.fit(ctx, iterate)
		if err != nil {
			return r, err
		}
		r.Iters = n
	}
	for round := range m.t.rounds {
		if err := m.job.Barrier(ctx); err != nil {
			return r, err
		}
		if err := iterate(m.t.warmup); err != nil {
			return r, err
		}
		begun := time.Now()
		if err := iterate(r.Iters); err != nil {
			return r, err
		}
		mine := lap{Time: time.Since(begun).Seconds() / float64(r.Iters)}
		if m.t.check {
			n, err := m.checked(round, sends, receives, out, in, scratch, func() error { return iterate(1) })
			if err != nil {
				return r, err
			}
			mine.Wrong = int64(n)
		}
		all, err := gather(ctx, m.job, mine)
		if err != nil {
			return r, err
		}
		sum := 0.0
		for _, l := range all {
			sum += l.Time
			r.Wrong += l.Wrong
		}
		r.Times = append(r.Times, sum/float64(m.size))
	}
	return r, nil
}

// lap is what a rank tells of a round.
type lap struct {
	Time  float64 `json:"time"`
	Wrong int64   `json:"wrong"`
}

// fit is how many iterations fit into the budget, for all ranks the same: a few, then as many as those say.
func (m *member) fit(ctx context.Context, iterate func(int) error) (int, error) {
	const least, most = 3, 100_000
	if err := iterate(1); err != nil { // the first is slow
		return 0, err
	}
	begun := time.Now()
	if err := iterate(least); err != nil {
		return 0, err
	}
	all, err := gather(ctx, m.job, lap{Time: time.Since(begun).Seconds() / least})
	if err != nil {
		return 0, err
	}
	slowest := 0.0
	for _, l := range all {
		slowest = max(slowest, l.Time)
	}
	return int(min(max(m.t.budget.Seconds()/slowest, least), most)), nil
}

// checked is an iteration whose data nobody has seen before, and how many bytes of it are wrong.
func (m *member) checked(round int, sends, receives []way, out, in, scratch []byte, iterate func() error) (bad int, err error) {
	for _, w := range sends {
		fill(out[w.from:w.to], m.t.seed, numberOf(m.rank, w.peer, round))
	}
	for _, w := range receives {
		clear(in[w.from:w.to])
	}
	if err := iterate(); err != nil {
		return 0, err
	}
	for i, w := range receives {
		if n := m.group.Received(len(sends) + i); n != w.to-w.from {
			return 0, fmt.Errorf("a message of rank %d has %d bytes, want %d", w.peer, n, w.to-w.from)
		}
		bad += wrong(in[w.from:w.to], scratch, m.t.seed, numberOf(w.peer, m.rank, round))
	}
	return bad, nil
}

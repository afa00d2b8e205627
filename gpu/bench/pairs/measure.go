//go:build linux

package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/bench/stats"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/kernels"
	"github.com/purerdma/purerdma/transport/driver"
)

func ptr(n int) gpu.Ptr { return gpu.Ptr(n) }

// row is one measurement: medians of the samples, ours and NCCL's, and the median of their ratios, above 1 where ours is better.
type row struct {
	Pair    string          `json:"pair"`
	Ranks   int             `json:"ranks"`
	Way     string          `json:"way"`
	Mode    string          `json:"mode"`
	What    string          `json:"what"`
	Bytes   int             `json:"bytes"`
	Unit    string          `json:"unit"`
	Value   report.Number   `json:"value"`
	NCCL    report.Number   `json:"nccl"`
	Ratio   report.Number   `json:"ratio"`
	Samples []report.Number `json:"samples"`
}

// trial is what the two ends of a pair do, after ready has returned, which is when the time begins.
type trial struct {
	send, recv func(ready func() error) error
	byNCCL     bool // which nothing interrupts
}

// sample gives the time in which the receiver had all.
func (r *rank) sample(from, to int, t trial) (time.Duration, error) {
	if t.byNCCL {
		return timedWithin(patience, r.job, "NCCL's send, receive and cuStreamSynchronize", func() (time.Duration, error) { return r.timed(from, to, t) })
	}
	return r.timed(from, to, t)
}

func (r *rank) timed(from, to int, t trial) (time.Duration, error) {
	var start time.Time
	ready := func() error {
		err := r.barrier()
		start = time.Now()
		return err
	}
	var err error
	switch r.me {
	case from:
		err = t.send(ready)
	case to:
		err = t.recv(ready)
	default:
		err = ready()
	}
	return time.Since(start), err
}

// measured takes samples of a trial and of NCCL's in turn, after one of each that does not count. The receiver keeps the row; per is what
// one sample's time is divided by.
func (r *rank) measured(from, to int, what, unit string, n, per int, ours, theirs *trial) error {
	var mine, nccl []float64
	for i := range r.Samples + 1 {
		for _, side := range []struct {
			t    *trial
			into *[]float64
		}{{ours, &mine}, {theirs, &nccl}} {
			if side.t == nil {
				continue
			}
			took, err := r.sample(from, to, *side.t)
			if err != nil {
				return fmt.Errorf("%s, %d bytes, from rank %d to %d: %w", what, n, from, to, err)
			}
			if i > 0 {
				*side.into = append(*side.into, value(unit, n*per, per, took))
			}
		}
	}
	if r.me == to {
		r.Rows = append(r.Rows, r.row(fmt.Sprintf("%d→%d", r.device(from), r.device(to)), what, unit, n, mine, nccl))
	}
	return nil
}

// value of a time in which so many bytes, or messages, were moved.
func value(unit string, bytes, count int, took time.Duration) float64 {
	switch unit {
	case "GB/s":
		return float64(bytes) / took.Seconds() / 1e9
	case "ns":
		return float64(took.Nanoseconds()) / float64(count)
	}
	return took.Seconds() * 1e6 / float64(count)
}

func (r *rank) row(pair, what, unit string, n int, ours, nccl []float64) row {
	w := row{Pair: pair, Ranks: r.n, Way: r.Scenario.Way.Name, Mode: r.Scenario.mode(), What: what, Bytes: n, Unit: unit,
		Value: report.Number(stats.Median(slices.Clone(ours))), Samples: report.Numbers(ours)}
	if len(nccl) > 0 {
		ratios := stats.Ratios(ours, nccl)
		if unit != "GB/s" {
			ratios = stats.Ratios(nccl, ours)
		}
		w.NCCL, w.Ratio = report.Number(stats.Median(slices.Clone(nccl))), report.Number(stats.Median(ratios))
	}
	return w
}

// streamSizes are those of the messages of streams.
func streamSizes(most int) []int {
	all := []int{1 << 20, 64 << 20, most}
	all = slices.DeleteFunc(all, func(n int) bool { return n > most })
	return slices.Compact(all)
}

// repeats is how many messages of n bytes make a sample.
func (p *plan) repeats(n int) int { return min(max(p.Bytes/max(n, 1), 2), 64) }

// play is all that a rank does.
func (r *rank) play() error {
	if err := r.check(); err != nil {
		return err
	}
	if err := r.openRival(); err != nil {
		return err
	}
	for from := range r.n {
		for to := range r.n {
			if from == to || !r.Scenario.Each {
				continue
			}
			if err := errors.Join(r.streams(from, to), r.latencies(from, to)); err != nil {
				return err
			}
		}
	}
	if err := r.together(); err != nil {
		return err
	}
	r.Sent = r.gone.Load()
	return r.closeRival()
}

func (r *rank) streams(from, to int) error {
	for _, n := range streamSizes(r.Most) {
		count := r.repeats(n)
		theirs := r.rival.trial(r, from, to, n, count)
		if r.kernels {
			t := r.byKernels(from, to, driver.Simple, n, count)
			if err := r.measured(from, to, "stream by kernels", "GB/s", n, count, &t, theirs); err != nil {
				return err
			}
		}
		t := trial{
			send: func(ready func() error) error {
				return r.carry(carry{peer: to, send: true, data: r.src, n: n, count: count, across: true}, ready)
			},
			recv: func(ready func() error) error {
				return r.carry(carry{peer: from, data: r.dst, n: n, count: count, across: true}, ready)
			},
		}
		if err := r.measured(from, to, "stream by copies", "GB/s", n, count, &t, theirs); err != nil {
			return err
		}
	}
	return nil
}

// byKernels is so many messages, each by a launch at either end.
func (r *rank) byKernels(from, to int, p driver.Protocol, n, count int) trial {
	run := func(stream gpu.Stream, launch func() error) func(func() error) error {
		return func(ready func() error) error {
			if err := ready(); err != nil {
				return err
			}
			for range count {
				if err := launch(); err != nil {
					return err
				}
			}
			return r.g.Synchronize(stream)
		}
	}
	return trial{send: run(r.a, func() error { return r.send(to, p, r.src, n) }), recv: run(r.b, func() error { return r.recv(from, p, r.dst, n) })}
}

const short = 8 // bytes

func (r *rank) latencies(from, to int) error {
	launches, copyRounds := max(r.Rounds/100, 1), max(r.Rounds/40, 1)
	if r.kernels {
		t := r.byKernels(from, to, driver.LL, short, launches)
		if err := r.measured(from, to, "8 B, a launch each", "µs", short, launches, &t, r.rival.trial(r, from, to, short, launches)); err != nil {
			return err
		}
		if !r.Scenario.Read { // what differs is SIMPLE's buffer only
			t := trial{send: func(ready func() error) error { return r.rounds(to, true, ready) },
				recv: func(ready func() error) error { return r.rounds(from, false, ready) }}
			if err := r.measured(from, to, "8 B by LL, half a round trip", "ns", short, 2*r.Rounds, &t, nil); err != nil {
				return err
			}
		}
	}
	t := trial{send: func(ready func() error) error { return r.bounce(to, true, short, copyRounds, ready) },
		recv: func(ready func() error) error { return r.bounce(from, false, short, copyRounds, ready) }}
	return r.measured(from, to, "8 B by copies, half a round trip", "µs", short, 2*copyRounds, &t, nil)
}

// rounds are lines of LL to and fro between two kernels that stay.
func (r *rank) rounds(peer int, first bool, ready func() error) error {
	out, in := r.conn(r.bulk, peer, 0, true).Buffers[driver.Simple], r.conn(r.bulk, peer, 0, false).Buffers[driver.Simple]
	if err := errors.Join(r.g.Fill(in, 0, line, r.a), r.g.Synchronize(r.a), ready()); err != nil {
		return err
	}
	return errors.Join(r.set.Rounds(r.a, r.abort, out, in, r.Rounds, first), r.g.Synchronize(r.a))
}

// together is all pairs at once: what a rank receives from all others.
func (r *rank) together() error {
	others := r.n - 1
	n := min(64<<20, r.Most/others&^15)
	if n == 0 {
		return nil
	}
	const count = 8
	for _, h := range hows {
		if h.protocol != driver.Simple || h.kernels && !r.kernels {
			continue
		}
		var ours, nccl []float64
		for i := range r.Samples + 1 {
			for _, side := range []struct {
				move func(n, count int) (time.Duration, error)
				into *[]float64
			}{{took(r.togetherBy(h)), &ours}, {r.rival.together(r), &nccl}} {
				if side.move == nil {
					continue
				}
				if err := r.barrier(); err != nil {
					return err
				}
				took, err := side.move(n, count)
				if err != nil {
					return fmt.Errorf("all pairs at once by %s: %w", h.name, err)
				}
				if i > 0 {
					*side.into = append(*side.into, value("GB/s", n*count*others, 1, took))
				}
			}
		}
		name := map[bool]string{true: "kernels", false: "copies"}[h.kernels]
		r.Rows = append(r.Rows, r.row(fmt.Sprintf("all→%d", r.device(r.me)), "all pairs at once by "+name, "GB/s", n, ours, nccl))
	}
	return nil
}

// took is move with the time that it takes.
func took(move func(n, count int) error) func(n, count int) (time.Duration, error) {
	return func(n, count int) (time.Duration, error) {
		start := time.Now()
		err := move(n, count)
		return time.Since(start), err
	}
}

func (r *rank) togetherBy(h how) func(n, count int) error {
	if h.kernels {
		return r.kernelsTogether
	}
	return r.copiesTogether
}

func (r *rank) kernelsTogether(n, count int) error {
	each := max(1, r.Channels/(r.n-1))
	for range count {
		var out, in []kernels.Channel
		for peer, i := range r.others() {
			r.sent(peer, n)
			out = append(out, r.channels(peer, true, driver.Simple, r.src, n, each)...)
			in = append(in, r.channels(peer, false, driver.Simple, r.dst+ptr(i*n), n, each)...)
		}
		if err := errors.Join(r.set.SendSimple(r.a, r.abort, out), r.set.RecvSimple(r.b, r.abort, in)); err != nil {
			return err
		}
	}
	return errors.Join(r.g.Synchronize(r.a), r.g.Synchronize(r.b))
}

func (r *rank) copiesTogether(n, count int) error {
	var all sync.WaitGroup
	var errs []error
	var mu sync.Mutex
	begin := func(k carry) {
		all.Go(func() {
			err := r.carry(k, func() error { return nil })
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	for peer, i := range r.others() {
		begin(carry{peer: peer, send: true, data: r.src, n: n, count: count, across: true})
		begin(carry{peer: peer, data: r.dst + ptr(i*n), n: n, count: count, across: true})
	}
	all.Wait()
	return errors.Join(errs...)
}

// others are the ranks but this one, each with its number among them.
func (r *rank) others() func(yield func(peer, i int) bool) {
	return func(yield func(peer, i int) bool) {
		i := 0
		for peer := range r.n {
			if peer == r.me {
				continue
			}
			if !yield(peer, i) {
				return
			}
			i++
		}
	}
}

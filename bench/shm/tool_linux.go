package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/bench/pin"
	"github.com/purerdma/purerdma/internal/cause"
	"github.com/purerdma/purerdma/internal/tempdir"
	"github.com/purerdma/purerdma/shmtransport"
)

// tool is one run of the command.
type tool struct {
	out         cli.IO
	rounds      int
	each        int
	rivals      []string
	dir         string // for programs that are compiled
	only        []string
	cells, data int
	cpus        [2]int
	results     []result
	late        map[string]int // runs of rivals that were given up
}

// result is what was measured for a row.
type result struct {
	Row     row
	Samples []sample
	Duels   map[string][]duel // by rival
}

// duel is a rival between two samples of ours.
type duel struct {
	Before sample
	Theirs float64 // seconds of a message
	After  sample
}

// regime is none unless the line took the same time before, between and after.
func (d duel) regime() regime {
	if g := d.Before.regime(); g == d.After.regime() && g == agreed(d.Before.Probes[1], d.After.Probes[0]) {
		return g
	}
	return none
}

// better is how many times faster ours is.
func (d duel) better() float64 { return 2 * d.Theirs / (d.Before.Each + d.After.Each) }

func (t *tool) command() cli.Command {
	return cli.Command{Schema: schemaName, Version: schemaVersion, Make: t.cobra, Document: t.document}
}

func (t *tool) cobra(out cli.IO) *cobra.Command {
	t.out = out
	c := &cobra.Command{
		Use:   "shm [flags]",
		Short: "Measures messages through shared memory against the machine's limits, UCX, Open MPI and libfabric",
		Args:  cli.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return t.run(c.Context()) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.IntVar(&t.rounds, "rounds", 20, "how often each row is measured, in an order that is shuffled each time")
	fs.IntVar(&t.each, "samples", 5, "samples of a row in a round")
	fs.StringSliceVar(&t.rivals, "rivals", installed(), "what to measure too, of ucx, openmpi and libfabric; none if empty (default: what is installed)")
	fs.Lookup("rivals").DefValue = "[]"
	fs.StringSliceVar(&t.only, "only", nil, "rows whose name begins so, such as \"8 B\" or \"4 KiB latency\" (default: all)")
	fs.IntVar(&t.cells, "cells", shmtransport.DefaultCells, "cells of a ring")
	fs.IntVar(&t.data, "data", shmtransport.DefaultData, "bytes of data of a ring")
	cli.JSONFlag(c)
	return c
}

func powerOfTwo(n, least, most int) bool { return n >= least && n <= most && n&(n-1) == 0 }

func (t *tool) run(ctx context.Context) (err error) {
	for _, r := range rows {
		if len(t.only) == 0 || slices.ContainsFunc(t.only, func(p string) bool { return strings.HasPrefix(r.name(), p) }) {
			t.results = append(t.results, result{Row: r})
		}
	}
	list, err := rivalsOf(t.rivals)
	switch {
	case err != nil:
		return &cli.UsageError{Err: err}
	case t.rounds < 1 || t.each < 1:
		return cli.Usagef("--rounds and --samples are at least 1")
	case !powerOfTwo(t.cells, 16, 1<<16):
		return cli.Usagef("--cells %d is no power of two from 16 to 65536", t.cells)
	case !powerOfTwo(t.data, 64<<10, 1<<30):
		return cli.Usagef("--data %d is no power of two from 65536 to 1073741824", t.data)
	case len(t.results) == 0:
		return cli.Usagef("--only: no row begins with %q", t.only)
	}
	a, b, ok := pin.Processors()
	if !ok {
		return errors.New("two processors are needed: each end spins on its own")
	}
	t.cpus = [2]int{a, b}
	unpin, err := pin.To(a)
	if err != nil {
		return err
	}
	before := runtime.GOMAXPROCS(1)
	defer func() { runtime.GOMAXPROCS(before); err = errors.Join(err, unpin()) }()
	e, err := start(ctx, b, t.out.Err, t.cells, t.data)
	if err != nil {
		return err
	}
	dir, err := tempdir.Make("purerdma-bench-shm-")
	if err == nil {
		t.dir = dir.Path()
		err = errors.Join(t.measure(ctx, e, list), dir.Remove())
	}
	if err = errors.Join(err, e.close()); err != nil {
		return err
	}
	return t.print()
}

// measure makes the rounds.
func (t *tool) measure(ctx context.Context, e *ends, list []rival) error {
	for round := range t.rounds {
		if t.out.Terminal {
			fmt.Fprintf(t.out.Err, "\rround %d of %d ", round+1, t.rounds)
		}
		for _, i := range rand.Perm(len(t.results)) {
			if err := cause.Of(ctx); err != nil {
				return err
			}
			if err := t.row(ctx, e, &t.results[i], list); err != nil {
				return fmt.Errorf("%s: %w", t.results[i].Row.name(), err)
			}
		}
	}
	if t.out.Terminal {
		fmt.Fprint(t.out.Err, "\r\033[K")
	}
	return nil
}

// row measures one row a few times, and then each rival, in an order that is shuffled.
func (t *tool) row(ctx context.Context, e *ends, r *result, list []rival) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c := newCopies(r.Row.Size)
	for range t.each {
		if err := t.sample(ctx, e, r, c); err != nil {
			return err
		}
	}
	for _, i := range rand.Perm(len(list)) {
		if list[i].covers(r.Row) {
			if err := t.duel(ctx, e, r, c, list[i]); err != nil {
				return fmt.Errorf("%s: %w", list[i].name, err)
			}
		}
	}
	return nil
}

// sample measures ours once, between probes.
func (t *tool) sample(ctx context.Context, e *ends, r *result, c copies) error {
	if err := e.settle(); err != nil {
		return err
	}
	if _, err := e.measure(ctx, r.Row); err != nil {
		return err
	}
	var s sample
	var err [3]error
	s.Copies[0] = c.time()
	s.Probes[0], err[0] = e.probe()
	s.Each, err[1] = e.measure(ctx, r.Row)
	s.Probes[1], err[2] = e.probe()
	s.Copies[1] = c.time()
	if err := errors.Join(err[:]...); err != nil {
		return err
	}
	r.Samples = append(r.Samples, s)
	return nil
}

// duel measures a rival between two samples of ours.
func (t *tool) duel(ctx context.Context, e *ends, r *result, c copies, v rival) error {
	if err := t.sample(ctx, e, r, c); err != nil {
		return err
	}
	before := r.Samples[len(r.Samples)-1]
	theirs, err := v.time(ctx, r.Row, t.cpus, t.dir)
	if errors.Is(err, errLate) {
		if t.late == nil {
			t.late = map[string]int{}
		}
		t.late[v.name]++
		return nil
	}
	if err != nil {
		return err
	}
	if err := t.sample(ctx, e, r, c); err != nil {
		return err
	}
	after := r.Samples[len(r.Samples)-1]
	if r.Duels == nil {
		r.Duels = map[string][]duel{}
	}
	r.Duels[v.name] = append(r.Duels[v.name], duel{before, theirs, after})
	return nil
}

// of is the samples of a regime in the row's unit, sorted; times are in seconds.
func (r result) of(g regime) (values, times []float64) {
	for _, s := range r.Samples {
		if s.regime() == g {
			values, times = append(values, s.in(r.Row)), append(times, s.Each)
		}
	}
	slices.Sort(values)
	slices.Sort(times)
	return values, times
}

// lines is the round trips of a line, in seconds, around the samples of a regime.
func (r result) lines(g regime) (lines []float64) {
	for _, s := range r.Samples {
		if s.regime() == g {
			lines = append(lines, s.Probes[:]...)
		}
	}
	return lines
}

// against is how many times faster than a rival ours is, in a regime, sorted.
func (r result) against(name string, g regime) (better []float64) {
	for _, d := range r.Duels[name] {
		if d.regime() == g {
			better = append(better, d.better())
		}
	}
	slices.Sort(better)
	return better
}

// result words for people and programs.
func verdict(known, met bool) string {
	switch {
	case !known:
		return "-"
	case met:
		return "met"
	}
	return "not met"
}

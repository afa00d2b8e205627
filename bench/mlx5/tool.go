package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/internal/tempdir"
)

// tool is one run of the command.
type tool struct {
	out    cli.IO
	rounds int
	slice  time.Duration
	cgo    bool
	cc     string

	figures map[row]map[side][]float64
}

// row is what is measured: a call, and how many requests or completions it is for.
type row struct {
	call string
	list int
}

// Calls.
const (
	post = "post"
	poll = "poll"
)

// lists are the lengths. bench/mlx5/c/peer.c and BenchmarkSpeed of the model have room for the longest.
var lists = []int{1, 16, 64}

// target is the most that ours may take, where libmlx5 takes 1.
const target = 1.2

func (t *tool) command() cli.Command {
	return cli.Command{Schema: schemaName, Version: schemaVersion, Make: t.cobra, Document: t.document}
}

func (t *tool) cobra(out cli.IO) *cobra.Command {
	t.out = out
	c := &cobra.Command{
		Use:   "mlx5 [flags]",
		Short: "compare posting and polling with libmlx5's, on a model of an adapter",
		Long: `Measures PostSend and Poll of our driver of ConnectX adapters, libmlx5's ibv_post_send and ibv_poll_cq, and these through cgo, by turns
on a model of an adapter that executes nothing, and tells the ratios of figures of one round.`,
		Args: cli.NoArgs,
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.IntVar(&t.rounds, "rounds", 9, "how often all is measured")
	fs.DurationVar(&t.slice, "slice", 100*time.Millisecond, "how long one side is measured at a time")
	fs.BoolVar(&t.cgo, "cgo", true, "measure libmlx5 through cgo, too")
	fs.StringVar(&t.cc, "cc", "cc", "C compiler")
	cli.JSONFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		return t.run(c.Context())
	}
	return c
}

func (t *tool) check() error {
	var errs []error
	if t.rounds < 1 || t.rounds > 100_000 {
		errs = append(errs, fmt.Errorf("--rounds %d is not within 1 and 100000", t.rounds))
	}
	if t.slice < time.Millisecond || t.slice > 10*time.Second {
		errs = append(errs, fmt.Errorf("--slice %v is not within 1ms and 10s", t.slice))
	}
	if err := errors.Join(errs...); err != nil {
		return &cli.UsageError{Err: err}
	}
	return nil
}

func (t *tool) run(ctx context.Context) error {
	dir, err := tempdir.Make("purerdma-mlx5-")
	if err != nil {
		return err
	}
	defer dir.Remove()
	p, err := build(ctx, dir.Path(), t.cc, t.cgo)
	if err != nil {
		return err
	}
	t.figures = map[row]map[side][]float64{}
	for range t.rounds {
		for _, list := range lists {
			for _, s := range p.sides() {
				if err := t.measure(ctx, p, s, list); err != nil {
					return err
				}
			}
		}
	}
	return t.print()
}

func (t *tool) measure(ctx context.Context, p *programs, s side, list int) error {
	posted, polled, err := p.measure(ctx, s, list, t.slice)
	if err != nil {
		return err
	}
	for call, ns := range map[string]float64{post: posted, poll: polled} {
		r := row{call, list}
		if t.figures[r] == nil {
			t.figures[r] = map[side][]float64{}
		}
		t.figures[r][s] = append(t.figures[r][s], ns)
	}
	return nil
}

// rows is all that was measured, in order.
func (t *tool) rows() (all []row) {
	for _, call := range []string{post, poll} {
		for _, list := range lists {
			if r := (row{call, list}); len(t.figures[r]) > 0 {
				all = append(all, r)
			}
		}
	}
	return all
}

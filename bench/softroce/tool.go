package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/bench/control"
	"github.com/purerdma/purerdma/bench/pair"
	"github.com/purerdma/purerdma/bench/pin"
)

// tool is one run of the command.
type tool struct {
	out    cli.IO
	group  string
	rounds int
	pin    bool
	orders orders

	processor string
	figures   map[mode][]float64
	verdicts  []verdict
}

func (t *tool) command() cli.Command {
	return cli.Command{Schema: schemaName, Version: schemaVersion, Make: t.cobra, Document: t.document}
}

func (t *tool) cobra(out cli.IO) *cobra.Command {
	t.out = out
	c := &cobra.Command{
		Use:   "softroce [flags]",
		Short: "compare the RoCE v2 device in user space with plain UDP sockets",
		Long: `Measures softroce and UDP sockets that move the same datagrams, by turns between two processes on this machine, and tells the
ratios of slices of one round.`,
		Args: cli.NoArgs,
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.StringVar(&t.group, "only", "", "bandwidth, latency or scale, or a part of a row's name, as in \"both poll\" (default: all)")
	fs.IntVar(&t.rounds, "rounds", 25, "how often all is measured")
	fs.DurationVar(&t.orders.Slice, "slice", 15*time.Millisecond, "how long a slice that streams takes")
	fs.IntVar(&t.orders.QPs, "qps", 1000, "queue pairs of the comparison of many with one")
	fs.BoolVar(&t.pin, "pin", true, "keep each end on a processor of its own, where there are two: the scheduler's moves are no program's merit")
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
	if t.orders.Slice < time.Millisecond || t.orders.Slice > 5*time.Second {
		errs = append(errs, fmt.Errorf("--slice %v is not within 1ms and 5s", t.orders.Slice))
	}
	if t.orders.QPs < 1 || t.orders.QPs > 30_000 {
		errs = append(errs, fmt.Errorf("--qps %d is not within 1 and 30000", t.orders.QPs))
	}
	if len(selected(t.group)) == 0 {
		errs = append(errs, fmt.Errorf("--only %q is none of %s, %s, %s, and in the name of no row", t.group, bandwidth, latency, scale))
	}
	if err := errors.Join(errs...); err != nil {
		return &cli.UsageError{Err: err}
	}
	return nil
}

func (t *tool) run(ctx context.Context) error {
	t.processor = processor()
	t.figures = map[mode][]float64{}
	t.orders.Modes = modesOf(selected(t.group))
	lead, follow := t.orders, t.orders
	lead.CPU, follow.CPU = noCPU, noCPU
	if a, b, ok := pin.Processors(); t.pin && ok {
		lead.CPU, follow.CPU = a, b
	}
	nc, wait, err := pair.Start(follow, t.out.Err)
	if err != nil {
		return err
	}
	err = lead.pinned(func() error {
		return session(ctx, nc, lead, where{}, true, func(ctx context.Context, e *end, ctl *control.Conn) error {
			return leading(ctx, e, ctl, t.rounds, func(round int, m mode, figure float64) {
				t.figures[m] = append(t.figures[m], figure)
				t.progress(round, m)
			})
		})
	})
	if ended := wait(); err == nil {
		err = ended
	}
	for _, r := range selected(t.group) {
		if len(t.figures[r.Ours]) > 0 && len(t.figures[r.Ref]) > 0 {
			t.verdicts = append(t.verdicts, judge(r, t.figures))
		}
	}
	if err != nil {
		return err
	}
	return t.print()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/bench/pin"
	"github.com/purerdma/purerdma/bench/tune"
	"github.com/purerdma/purerdma/ibverbs"
)

// tool is one run of the command.
type tool struct {
	out     cli.IO
	devices []string
	only    string
	pairs   int
	pin     bool

	bwSize, bwIters, depth, cqMod int
	latSize, latIters, timeout    int

	lead, follow orders // of the bandwidth test
	verdicts     []verdict
}

func (t *tool) command() cli.Command {
	return cli.Command{Schema: schemaName, Version: schemaVersion, Make: t.cobra, Document: t.document}
}

func (t *tool) cobra(out cli.IO) *cobra.Command {
	t.out = out
	c := &cobra.Command{
		Use:   "verbs [flags]",
		Short: "compare purerdma's verbs with perftest's programs",
		Long: `Runs purerdma and perftest (ib_write_bw, ib_write_lat) in turn between two processes on this machine, and tells the ratios of
neighbours.`,
		Args: cobra.ArbitraryArgs,
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.StringSliceVarP(&t.devices, "device", "d", nil, "device, or two for the two ends (default: the first two)")
	fs.StringVar(&t.only, "only", "", "bandwidth or latency (default: both)")
	fs.IntVar(&t.pairs, "pairs", 9, "how often both programs run")
	fs.BoolVar(&t.pin, "pin", true, "keep each end on a processor of its own, where there are two: the scheduler's moves are no program's merit")
	fs.IntVar(&t.bwSize, "bw-size", 64<<10, "bytes of a write of the bandwidth test")
	fs.IntVar(&t.bwIters, "bw-iters", 1000, "writes of the bandwidth test")
	fs.IntVarP(&t.depth, "tx-depth", "t", 128, "writes in flight of the bandwidth test")
	fs.IntVarP(&t.cqMod, "cq-mod", "Q", 1, "every how manieth write of the bandwidth test is signaled")
	fs.IntVar(&t.latSize, "lat-size", 8, "bytes of a write of the latency test")
	fs.IntVar(&t.latIters, "lat-iters", 1000, "round trips of the latency test")
	fs.IntVarP(&t.timeout, "qp-timeout", "u", 18, "ACK timeout of queue pairs: 4.096 µs times 2 to this; perftest's own 14 is so short that emulated devices time out now and then, and wait")
	cli.JSONFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := t.check(args); err != nil {
			return err
		}
		return t.run(c.Context())
	}
	return c
}

func (t *tool) check(args []string) error {
	var errs []error
	within := func(name string, v, low, high int) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("%s %d is not within %d and %d", name, v, low, high))
		}
	}
	within("--pairs", t.pairs, 1, 1000)
	within("--bw-size", t.bwSize, 1, 1<<30)
	within("--bw-iters", t.bwIters, 5, 100_000_000) // perftest's own least
	within("--tx-depth", t.depth, 1, 8192)
	within("--cq-mod", t.cqMod, 1, t.depth)
	within("--qp-timeout", t.timeout, 1, 31)
	within("--lat-size", t.latSize, 4, 1<<20)
	within("--lat-iters", t.latIters, 5, 100_000_000)
	if t.latSize%4 != 0 {
		errs = append(errs, fmt.Errorf("--lat-size %d is not a multiple of 4", t.latSize))
	}
	if t.only != "" && t.only != string(bandwidth) && t.only != string(latency) {
		errs = append(errs, fmt.Errorf("--only %q is neither bandwidth nor latency", t.only))
	}
	if len(t.devices) > 2 {
		errs = append(errs, fmt.Errorf("%d devices: one for each end", len(t.devices)))
	}
	if len(args) > 0 {
		errs = append(errs, fmt.Errorf("%q is not understood: both ends run on this machine", args[0]))
	}
	if err := errors.Join(errs...); err != nil {
		return &cli.UsageError{Err: err}
	}
	return nil
}

func (t *tool) tests() []test {
	if t.only != "" {
		return []test{test(t.only)}
	}
	return []test{bandwidth, latency}
}

func (t *tool) run(ctx context.Context) error {
	if err := t.prepare(); err != nil {
		return err
	}
	for _, x := range t.tests() {
		pairs, err := inTurn(ctx, x, t.pairs,
			func(ctx context.Context, x test) (figures, error) {
				ctx, cancel := context.WithTimeout(ctx, runLimit)
				defer cancel()
				lead, follow := t.orders(x)
				return ours(ctx, lead, follow, t.out.Err)
			},
			func(ctx context.Context, x test) (figures, error) {
				return theirs(ctx, t.lead.with(t.job(x)), t.follow.with(t.job(x)))
			},
			func(i int, p neighbours) { fmt.Fprintln(t.out.Err, pairText(x, i, t.pairs, p)) })
		if len(pairs) > 0 {
			t.verdicts = append(t.verdicts, judge(x, pairs))
		}
		if err != nil {
			return err
		}
	}
	return t.print()
}

// prepare finds the devices and the GIDs that both programs then use, and perftest.
func (t *tool) prepare() error {
	for _, x := range t.tests() {
		if _, err := exec.LookPath(t.job(x).program()); err != nil {
			return fmt.Errorf("%w (perftest is needed: apt-get install perftest)", err)
		}
	}
	if len(t.devices) == 0 {
		list, err := tune.Candidates(1)
		if err != nil {
			return err
		}
		a, b, why := tune.Pair(list)
		fmt.Fprintln(t.out.Err, why)
		t.devices = []string{a.Name, b.Name}
	}
	t.lead.Device, t.follow.Device = t.devices[0], t.devices[len(t.devices)-1]
	t.lead.CPU, t.follow.CPU = noCPU, noCPU
	if a, b, ok := pin.Processors(); t.pin && ok {
		t.lead.CPU, t.follow.CPU = a, b
	}
	for _, o := range []*orders{&t.lead, &t.follow} {
		var err error
		if o.Device, o.Job.GIDIndex, err = chosen(o.Device); err != nil {
			return err
		}
	}
	return nil
}

// chosen is a device's name, which perftest needs, and the GID that this library chooses on its first port.
func chosen(device string, find ...ibverbs.Option) (name string, gid int, err error) {
	e, err := tune.OpenEnd(tune.EndConfig{Device: device, Port: 1, GIDIndex: -1, Find: find})
	if err != nil {
		return "", 0, err
	}
	about := e.Description()
	return about.Device, about.GIDIndex, e.Close()
}

func (t *tool) job(x test) job {
	if x == latency {
		return job{Test: x, Size: t.latSize, Iters: t.latIters, Depth: 1, CQMod: 1, Timeout: t.timeout}
	}
	return job{Test: x, Size: t.bwSize, Iters: t.bwIters, Depth: t.depth, CQMod: t.cqMod, Timeout: t.timeout}
}

// with is the orders with another job, on the same GID.
func (o orders) with(j job) orders {
	j.GIDIndex = o.Job.GIDIndex
	return orders{Job: j, Device: o.Device, CPU: o.CPU}
}

func (t *tool) orders(x test) (lead, follow orders) {
	return t.lead.with(t.job(x)), t.follow.with(t.job(x))
}

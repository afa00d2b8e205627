package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/socketboot/launch"
	"github.com/purerdma/purerdma/transport"
)

// tool is one run of the command at one rank.
type tool struct {
	given    func(flag string) bool // on the command line
	launched *launch.Info           // nil: nobody has started this process as a rank
	args     []string               // the command line, with which this process starts other ranks
	out      cli.IO

	ranks     int
	pattern   string
	transport string
	channels  int
	hosts     int
	devices   []string
	min, max  size
	factor    int
	iters     int
	warmup    int
	rounds    int
	budget    time.Duration
	messages  int
	check     bool
	seed      uint64
	idle      time.Duration
	limit     time.Duration
	verbose   bool

	results results
}

// The values of --transport and --pattern.
const (
	automatic = "auto"
	overSHM   = "shm"
	overNet   = "net"

	ring     = "ring"
	allToAll = "alltoall"
	random   = "random"
)

func (t *tool) command() cli.Command {
	return cli.Command{Schema: schemaName, Version: schemaVersion, Make: t.cobra, Document: t.document}
}

func (t *tool) cobra(out cli.IO) *cobra.Command {
	t.out = out
	c := &cobra.Command{
		Use:   "sendrecv [flags]",
		Short: "Measures messages between the ranks of a job, and checks their data",
		Args:  cli.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return t.run(c.Context()) },
	}
	t.min, t.max = 8, 16<<20
	fs := c.Flags()
	t.given = fs.Changed
	fs.SortFlags = false
	fs.IntVarP(&t.ranks, "ranks", "n", 0, "ranks to start on this machine, where no launcher has started them (default 2)")
	fs.StringVarP(&t.pattern, "pattern", "p", ring, "who sends to whom: ring, alltoall or random")
	fs.StringVarP(&t.transport, "transport", "t", automatic, "auto, shm or net")
	fs.IntVarP(&t.channels, "channels", "c", 1, "channels between two ranks")
	fs.IntVar(&t.hosts, "hosts", 0, "tell the ranks, in blocks, to be on so many hosts (default: the hosts they are on)")
	fs.StringSliceVarP(&t.devices, "device", "d", nil, "RDMA devices that the ranks take in turn (default: NCCL_IB_HCA, else all)")
	fs.VarP(&t.min, "min", "b", "smallest message, in bytes, with K, M or G for powers of 1024")
	fs.VarP(&t.max, "max", "e", "largest message")
	fs.IntVarP(&t.factor, "factor", "f", 4, "by which sizes grow")
	fs.IntVar(&t.iters, "iters", 0, "iterations of a round (default: what --budget allows)")
	fs.IntVarP(&t.warmup, "warmup", "w", 5, "iterations before a round, not timed")
	fs.IntVar(&t.rounds, "rounds", 5, "how often each size is measured, or all send to all at random")
	fs.DurationVar(&t.budget, "budget", 100*time.Millisecond, "how long a round may take")
	fs.IntVar(&t.messages, "messages", 1, "messages from each rank to each other one in a round of random")
	fs.BoolVar(&t.check, "check", true, "check data")
	fs.Uint64Var(&t.seed, "seed", 0, "of data, and of sizes of random (default random)")
	fs.DurationVar(&t.idle, "idle", 0, "measure so long what connected ranks use while nobody sends or receives, and nothing else")
	fs.DurationVar(&t.limit, "timeout", 10*time.Minute, "after which the job is given up")
	fs.BoolVarP(&t.verbose, "verbose", "v", false, "tell what the library does, on standard error")
	cli.JSONFlag(c)
	return c
}

// refuse says what cannot be meant, before anything is done.
func (t *tool) refuse() error {
	for _, c := range []struct {
		bad  bool
		text string
	}{
		{!slices.Contains([]string{ring, allToAll, random}, t.pattern), "--pattern is ring, alltoall or random"},
		{!slices.Contains([]string{automatic, overSHM, overNet}, t.transport), "--transport is auto, shm or net"},
		{t.ranks < 0 || t.ranks > 1024 || t.ranks == 0 && t.given("ranks"), "--ranks is 1 to 1024"},
		{t.channels < 1 || t.channels > transport.MaxChannels, fmt.Sprintf("--channels is 1 to %d", transport.MaxChannels)},
		{t.hosts < 0 || t.hosts == 0 && t.given("hosts"), "--hosts is at least 1"},
		{t.max > 1<<30, "--max is at most 1 GiB"},
		{t.min > t.max, "--min is larger than --max"},
		{t.factor < 2, "--factor is at least 2"},
		{t.iters < 0 || t.warmup < 0, "--iters and --warmup are not negative"},
		{t.rounds < 1 || t.messages < 1, "--rounds and --messages are at least 1"},
		{t.budget <= 0 || t.limit <= 0 || t.idle < 0, "--budget and --timeout are more than nothing, --idle is not negative"},
	} {
		if c.bad {
			return cli.Usagef("%s", c.text)
		}
	}
	if t.launched == nil {
		t.ranks = max(t.ranks, 0)
		if t.ranks == 0 {
			t.ranks = 2
		}
		return nil
	}
	if t.ranks != 0 && t.ranks != t.launched.Size {
		return cli.Usagef("--ranks: %s has started %d ranks already", t.launched.Launcher, t.launched.Size)
	}
	t.ranks = t.launched.Size
	return nil
}

func (t *tool) run(ctx context.Context) error {
	if err := t.refuse(); err != nil {
		return err
	}
	if t.seed == 0 {
		t.seed = rand.Uint64() >> 11 // that JSON's numbers hold
	}
	late := fmt.Errorf("the job has taken longer than --timeout %v", t.limit)
	ctx, cancel := context.WithTimeoutCause(ctx, t.limit, late)
	defer cancel()
	if t.launched != nil {
		local := os.Getenv(aloneVariable) != ""
		if local {
			ctx = whileRankZeroLives(ctx, os.Stdin, t.launched.IDFile)
		}
		return t.rank(ctx, *t.launched, local)
	}
	whole, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	c, err := startCrew(ctx, t.ranks, t.args, lose)
	if err != nil {
		return err
	}
	err = t.rank(whole, c.info, true)
	return errors.Join(err, c.end(err))
}

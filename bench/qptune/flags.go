package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/bench/plan"
	"github.com/purerdma/purerdma/bench/tune"
)

// defaultPort is perftest's, beyond which nobody has to open another one in a firewall.
const defaultPort = 18515

// flags is the command line. Short names are perftest's.
type flags struct {
	devices  []string
	port     int
	gidIndex int
	verbose  bool

	server  bool
	connect string
	tcpPort int

	qps, sizes []string
	split      string
	depth      int
	rounds     int
	iters      int
	budget     time.Duration
	tolerance  float64
	seed       uint64
	attrs      tune.Attributes
}

// add registers the flags. Those of the sweep say where they come from if they are not set: what is best depends on the device.
func (f *flags) add(c *cobra.Command) {
	f.attrs = tune.DefaultAttributes()
	fs := c.Flags()
	fs.SortFlags = false
	fs.BoolVar(&f.server, "server", false, "wait for a qptune on another host, serve it and end")
	fs.StringVar(&f.connect, "connect", "", "the host[:port] where qptune --server waits; the host may also be an argument")
	fs.IntVarP(&f.tcpPort, "tcp-port", "p", defaultPort, "TCP port of --server, and of --connect without one")
	fs.StringSliceVarP(&f.devices, "device", "d", nil, "device by name, PCI address, net device or address; two for two ends on this machine (default: the first two)")
	fs.IntVarP(&f.port, "port", "i", 0, "port of the device, from 1 (default: the first active one)")
	fs.IntVarP(&f.gidIndex, "gid-index", "x", -1, "index of the GID, -1 chooses")
	fs.StringSliceVarP(&f.sizes, "sizes", "s", nil, "message sizes in bytes, with K, M or G for powers of 1024 (default 8,4K,16K,128K,1M,4M; Soft-RoCE 8,4K,64K,1M)")
	fs.StringSliceVarP(&f.qps, "qps", "q", nil, "queue pairs per connection (default 1,2,4,8,16)")
	fs.StringVar(&f.split, "split", string(plan.Both), "split each message over all queue pairs: on, off or both")
	fs.IntVarP(&f.depth, "tx-depth", "t", 0, "messages in flight (default 8; Soft-RoCE 4)")
	fs.IntVarP(&f.iters, "iters", "n", 0, "messages of each case and round (default: as many as the budget allows)")
	fs.IntVar(&f.rounds, "rounds", 0, "how often everything is measured (default 5, with which differences can be told from noise)")
	fs.DurationVar(&f.budget, "budget", 0, "how long all of it may take (default 1m; Soft-RoCE 2m30s)")
	fs.Float64Var(&f.tolerance, "tolerance", 3, "gain in percent that is not worth more queue pairs")
	fs.Uint64Var(&f.seed, "seed", 0, "of the order of measurements (default random)")
	fs.IntVarP(&f.attrs.ServiceLevel, "sl", "S", f.attrs.ServiceLevel, "service level")
	fs.IntVar(&f.attrs.TrafficClass, "tclass", f.attrs.TrafficClass, "traffic class")
	fs.IntVar(&f.attrs.Timeout, "timeout", f.attrs.Timeout, "ACK timeout of queue pairs: 4.096 µs times 2 to this, 0 for ever")
	fs.IntVar(&f.attrs.Retry, "retry", f.attrs.Retry, "retries after a timeout, 7 at most")
	fs.IntVarP(&f.attrs.MTU, "mtu", "m", f.attrs.MTU, "largest path MTU in bytes (default: the port's)")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "tell what the library does, on standard error")
	cli.JSONFlag(c)
}

// ofEnd is the flags that the serving end understands; the rest it is told by the other one.
var ofEnd = []string{"server", "tcp-port", "device", "port", "gid-index", "verbose", "json", "help"}

// check refuses what cannot be meant, before anything is done. args are the arguments beside flags.
func (f *flags) check(fs *pflag.FlagSet, args []string) error {
	switch {
	case len(args) > 1:
		return cli.Usagef("%d arguments, at most one host is understood: %s", len(args), strings.Join(args, " "))
	case len(args) == 1 && fs.Changed("connect"):
		return cli.Usagef("two hosts to connect to: %s and %s", f.connect, args[0])
	case len(args) == 1:
		f.connect = args[0]
	}
	if f.server {
		if f.connect != "" {
			return cli.Usagef("--server and a host to connect to exclude each other")
		}
		var others []string
		fs.Visit(func(fl *pflag.Flag) {
			if !slices.Contains(ofEnd, fl.Name) {
				others = append(others, "--"+fl.Name)
			}
		})
		if len(others) > 0 {
			return cli.Usagef("%s: set where qptune --connect runs; the server does what that end says", strings.Join(others, ", "))
		}
	}
	if (fs.Changed("connect") || len(args) == 1) && f.connect == "" {
		return cli.Usagef("the host to connect to is empty")
	}
	if most := 2; len(f.devices) > most || (f.server || f.connect != "") && len(f.devices) > 1 {
		return cli.Usagef("%d devices: one for each end on this machine", len(f.devices))
	}
	if f.port < 0 || f.port > 255 {
		return cli.Usagef("port %d of the device: ports are numbered from 1", f.port)
	}
	if f.tcpPort < 0 || f.tcpPort > 65535 || f.tcpPort == 0 && !f.server {
		return cli.Usagef("TCP port %d", f.tcpPort)
	}
	if f.gidIndex < -1 {
		return cli.Usagef("GID index %d", f.gidIndex)
	}
	if !(f.tolerance >= 0 && f.tolerance < 1000) {
		return cli.Usagef("tolerance of %v percent", f.tolerance)
	}
	if err := f.attrs.Check(); err != nil {
		return &cli.UsageError{Err: err}
	}
	if _, err := f.spec(false, fs); err != nil {
		return err
	}
	return nil
}

// spec is the sweep: the defaults for the kind of device, changed by what was set.
func (f *flags) spec(software bool, fs *pflag.FlagSet) (plan.Spec, error) {
	s := plan.Default(software)
	s.Modes = plan.Modes(f.split)
	s.Iters = f.iters
	var err error
	if fs.Changed("qps") {
		if s.QPs, err = numbers(f.qps); err != nil {
			return s, cli.Usagef("--qps: %w", err)
		}
	}
	if fs.Changed("sizes") {
		if s.Sizes, err = numbers(f.sizes); err != nil {
			return s, cli.Usagef("--sizes: %w", err)
		}
	}
	for _, v := range []struct {
		name string
		set  func()
	}{
		{"tx-depth", func() { s.Depth = f.depth }}, {"rounds", func() { s.Rounds = f.rounds }},
		{"budget", func() { s.Budget = f.budget }}, {"seed", func() { s.Seed = f.seed }},
	} {
		if fs.Changed(v.name) {
			v.set()
		} else if v.name == "seed" {
			s.Seed = rand.Uint64() >> 11 // programs that read JSON know integers of 53 bits
		}
	}
	if err := s.Check(); err != nil {
		return s, &cli.UsageError{Err: err}
	}
	return s, nil
}

// numbers reads a list of numbers with suffixes.
func numbers(words []string) ([]int, error) {
	list := make([]int, len(words))
	for i, w := range words {
		digits, unit := strings.TrimSpace(w), 1
		for suffix, u := range map[string]int{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30} {
			if d, ok := strings.CutSuffix(strings.ToUpper(digits), suffix); ok {
				digits, unit = d, u
			}
		}
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 || n > plan.MaxSize {
			return nil, fmt.Errorf("%q is no number from 1 to 1G", w)
		}
		list[i] = n * unit
	}
	return list, nil
}

// address completes a host with the port.
func address(host string, port int) string {
	if h, p, err := net.SplitHostPort(host); err == nil {
		return net.JoinHostPort(h, p)
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port))
}

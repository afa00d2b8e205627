package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/bench/plan"
	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/bench/tune"
	"github.com/purerdma/purerdma/ibverbs"
)

// tool is one run of the command. Its fields fill up as the run goes on.
type tool struct {
	find  []ibverbs.Option // where devices are looked for
	flags flags
	out   cli.IO

	mode    string // "pair", "connect" or "server", "" before that is known
	spec    *plan.Spec
	result  *tune.Result
	session *tune.Session
	advice  *advice
	notes   []string
}

func (t *tool) command() cli.Command {
	return cli.Command{Schema: schemaName, Version: schemaVersion, Make: t.cobra, Document: t.document}
}

func (t *tool) cobra(out cli.IO) *cobra.Command {
	t.out = out
	c := &cobra.Command{
		Use:   "qptune [flags] [HOST[:PORT]]",
		Short: "find how many queue pairs a connection should have",
		Long: `Connects two ends by 1, 2, 4, 8 and 16 queue pairs, measures messages of several sizes over them, and says which setting is
best and why. Without --server or a host both ends run on this machine.`,
		Args: cobra.ArbitraryArgs,
	}
	t.flags.add(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := t.flags.check(c.Flags(), args); err != nil {
			return err
		}
		switch {
		case t.flags.server:
			t.mode = "server"
			return t.serve(c.Context())
		case t.flags.connect != "":
			t.mode = "connect"
		default:
			t.mode = "pair"
		}
		return t.sweep(c.Context(), c)
	}
	return c
}

func (t *tool) log() *slog.Logger { return logger(t.out.Err, t.flags.verbose) }

// note tells people at once and programs at the end.
func (t *tool) note(format string, a ...any) {
	n := fmt.Sprintf(format, a...)
	t.notes = append(t.notes, n)
	fmt.Fprintln(t.out.Err, report.Wrap(n, 120, "  "))
}

func (t *tool) end(device string) tune.EndConfig {
	return tune.EndConfig{Device: device, Port: t.flags.port, GIDIndex: t.flags.gidIndex, Find: t.find, Log: t.log()}
}

// serve waits for another host.
func (t *tool) serve(ctx context.Context) error {
	device := strings.Join(t.flags.devices, "")
	about, err := t.look(device) // to say what is missing before anybody waits
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(t.flags.tcpPort)))
	if err != nil {
		return fmt.Errorf("%w (another qptune --server may be running; -p chooses a port)", err)
	}
	fmt.Fprintf(t.out.Err, "%s\nwaiting at %v for: qptune --connect THIS_HOST:%d\n", describeEnd(about), l.Addr(), l.Addr().(*net.TCPAddr).Port)
	s, err := tune.ServeOne(ctx, l, t.end(device), func(peer string, why error) {
		fmt.Fprintf(t.out.Err, "dropped %s: %v\n", peer, why)
	})
	t.session = &s
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out.Text, "served %s: %d connections, %d messages, %s, all as they were sent as far as they were checked\n",
		s.Peer, s.Connections, s.Messages, report.Bytes(int(s.Bytes)))
	return nil
}

// sweep measures with an end that it starts, or with one on another host.
func (t *tool) sweep(ctx context.Context, c *cobra.Command) error {
	here, there, software, err := t.choose()
	if err != nil {
		return err
	}
	spec, err := t.flags.spec(software, c.Flags())
	if err != nil {
		return err
	}
	t.spec = &spec
	if software {
		t.note("%s moves its packets with the processor, so the sweep is a smaller one unless flags say otherwise: %d sizes up to %s, %d messages in flight, within %v",
			here, len(spec.Sizes), report.Bytes(biggest(spec)), spec.Depth, spec.Budget)
	}
	nc, done, err := t.otherEnd(ctx, there)
	if err != nil {
		return err
	}
	bar := newProgress(t.out)
	r, err := tune.Sweep(ctx, nc, t.end(here), spec, t.flags.attrs, bar.update)
	bar.stop()
	t.result = &r
	if ended := done(); err == nil {
		err = ended
	}
	if err != nil {
		return err
	}
	if t.advice, err = recommend(r, t.flags.tolerance/100); err != nil {
		return err
	}
	return t.print()
}

// choose says which device this end uses and which the end that it starts, if it starts one. Devices that were named are tried, so
// that what is wrong with them is said before anything starts.
func (t *tool) choose() (here, there string, software bool, err error) {
	if len(t.flags.devices) > 0 {
		for _, name := range t.flags.devices {
			about, err := t.look(name)
			if err != nil {
				return "", "", false, err
			}
			software = software || about.Software
		}
		return t.flags.devices[0], t.flags.devices[len(t.flags.devices)-1], software, nil
	}
	list, err := tune.Candidates(t.flags.port, t.find...)
	if err != nil {
		return "", "", false, err
	}
	if t.mode != "pair" {
		return list[0].Name, "", list[0].Software, nil
	}
	a, b, why := tune.Pair(list)
	t.note("%s", why)
	return a.Name, b.Name, a.Software || b.Software, nil
}

// look describes a device as an end would use it.
func (t *tool) look(device string) (tune.Description, error) {
	e, err := tune.OpenEnd(t.end(device))
	if err != nil {
		return tune.Description{}, err
	}
	return e.Description(), e.Close()
}

// otherEnd is the control connection to the other end, and what to do after the sweep.
func (t *tool) otherEnd(ctx context.Context, device string) (net.Conn, func() error, error) {
	if t.mode == "pair" {
		return startPair(orders{Device: device, Port: t.flags.port, GIDIndex: t.flags.gidIndex, Verbose: t.flags.verbose}, t.out.Err)
	}
	to := address(t.flags.connect, t.flags.tcpPort)
	d := net.Dialer{Timeout: 10 * time.Second}
	nc, err := d.DialContext(ctx, "tcp", to)
	if err != nil {
		if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
			return nil, nil, fmt.Errorf("%w (no address is known for %s: is the name right?)", err, dns.Name)
		}
		return nil, nil, fmt.Errorf("%w (start qptune --server there first, and open TCP port %s in its firewall)", err, to[strings.LastIndexByte(to, ':')+1:])
	}
	return nc, func() error { return nil }, nil
}

func biggest(s plan.Spec) int {
	n := 0
	for _, x := range s.Sizes {
		n = max(n, x)
	}
	return n
}

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/cause"
)

// event is an asynchronous event of a device.
type event struct {
	Time   string `json:"time"` // RFC 3339
	Device string `json:"device"`
	Event  string `json:"event"`
	Port   int    `json:"port,omitempty"`
	Count  int    `json:"count"`
}

// rise is what the counters of a port have counted since they were shown last.
type rise struct {
	Time   string            `json:"time"`
	Device string            `json:"device"`
	Port   int               `json:"port"`
	Rise   map[string]uint64 `json:"rise"` // those that rose alone
}

func (t *tool) monitor() *cobra.Command {
	var length, interval time.Duration
	c := &cobra.Command{
		Use:   "monitor [NAME...]",
		Short: "Shows events of ports and devices, and counters that rise, as they come",
		Long: "Shows the asynchronous events of all devices, or of the named ones, and in each interval which counters of their ports have risen " +
			"by how much, until it is interrupted or --for is over.",
		Example: `  purerdma monitor
  purerdma monitor --interval 5s mlx5_0
  purerdma monitor --for 1m --json`,
		ValidArgsFunction: deviceNames,
		RunE: func(c *cobra.Command, names []string) error {
			if length < 0 {
				return cli.Usagef("--for is %v: a length of time is not negative", length)
			}
			if interval < 0 {
				return cli.Usagef("--interval is %v: a length of time is not negative", interval)
			}
			return t.watch(c.Context(), names, length, interval)
		},
	}
	c.Flags().DurationVar(&length, "for", 0, "how long; 0 is until it is interrupted")
	c.Flags().DurationVar(&interval, "interval", time.Second, "between two looks at the counters; 0 shows events alone")
	return c
}

func (t *tool) watch(ctx context.Context, names []string, length, interval time.Duration) error {
	devices, err := openAll(names)
	t.doc.Events, t.doc.Counters = &[]event{}, &[]rise{}
	defer func() {
		for _, d := range devices {
			_ = d.Close()
		}
	}()
	if err != nil {
		return err
	}
	for _, d := range devices {
		fmt.Fprintf(t.out.Err, "listening to %s\n", d.Info().Name)
	}
	end := ctx
	if length > 0 {
		var cancel context.CancelFunc
		end, cancel = context.WithTimeout(ctx, length)
		defer cancel()
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, d := range devices {
		s := d.Subscribe()
		all.Go(func() {
			defer s.Close()
			for {
				e, err := s.Next(end)
				if err != nil {
					return
				}
				mu.Lock()
				t.show(event{now(), d.Info().Name, e.Type.String(), e.Port, e.Count})
				mu.Unlock()
			}
		})
	}
	if interval > 0 {
		all.Go(func() { t.count(end, devices, interval, &mu) })
	}
	all.Wait()
	return cause.Of(ctx)
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// count shows what the counters count until ctx is done, and once more then. Ports without counters are silent.
func (t *tool) count(ctx context.Context, devices []*ibverbs.Context, interval time.Duration, mu *sync.Mutex) {
	before := map[string]map[string]uint64{}
	look := func() {
		for _, d := range devices {
			for port := 1; port <= d.Info().Ports; port++ {
				cs, _ := d.Counters(port) // what can be read, which may be none
				name := fmt.Sprintf("%s/%d", d.Info().Name, port)
				rose := risen(before[name], cs)
				if before[name] == nil {
					before[name] = map[string]uint64{}
				}
				for _, c := range cs {
					before[name][c.Name] = c.Value
				}
				if len(rose) > 0 {
					mu.Lock()
					t.showRise(rise{now(), d.Info().Name, port, rose})
					mu.Unlock()
				}
			}
		}
	}
	look()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			look()
			return
		case <-tick.C:
			look()
		}
	}
}

// risen is by how much counters are above what they were before; without a before, which is the first look, nothing is. One that
// fell was set back.
func risen(before map[string]uint64, cs []ibverbs.Counter) map[string]uint64 {
	rose := map[string]uint64{}
	for _, c := range cs {
		if was, known := before[c.Name]; known && c.Value > was {
			rose[c.Name] = c.Value - was
		}
	}
	return rose
}

func (t *tool) showRise(r rise) {
	*t.doc.Counters = append(*t.doc.Counters, r)
	fmt.Fprintf(t.out.Text, "%s  %-12s", r.Time, fmt.Sprintf("%s/%d", r.Device, r.Port))
	for _, name := range slices.Sorted(maps.Keys(r.Rise)) {
		fmt.Fprintf(t.out.Text, " %s +%d", name, r.Rise[name])
	}
	fmt.Fprintln(t.out.Text)
}

// show keeps an event for the document and prints it.
func (t *tool) show(e event) {
	*t.doc.Events = append(*t.doc.Events, e)
	where := e.Device
	if e.Port > 0 {
		where += fmt.Sprintf("/%d", e.Port)
	}
	fmt.Fprintf(t.out.Text, "%s  %-12s %s", e.Time, where, e.Event)
	if e.Count > 1 {
		fmt.Fprintf(t.out.Text, ", %d times", e.Count)
	}
	fmt.Fprintln(t.out.Text)
}

// openAll opens the named devices, or all that can be opened.
func openAll(names []string) (open []*ibverbs.Context, err error) {
	if len(names) > 0 {
		for _, n := range names {
			d, err := ibverbs.Open(n)
			if err != nil {
				return open, err
			}
			open = append(open, d)
		}
		return open, nil
	}
	found, err := ibverbs.Devices()
	errs := []error{err}
	for _, f := range found {
		d, err := f.Open()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		open = append(open, d)
	}
	if len(open) == 0 {
		return nil, errors.Join(append(errs, errors.New("there is no device to listen to; purerdma doctor says why"))...)
	}
	return open, nil
}

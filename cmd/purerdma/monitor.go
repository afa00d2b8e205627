package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/ibverbs"
)

// event is an asynchronous event of a device.
type event struct {
	Time   string `json:"time"` // RFC 3339
	Device string `json:"device"`
	Event  string `json:"event"`
	Port   int    `json:"port,omitempty"`
	Count  int    `json:"count"`
}

func (t *tool) monitor() *cobra.Command {
	var length time.Duration
	c := &cobra.Command{
		Use:   "monitor [NAME...]",
		Short: "Shows events of ports and devices as they come",
		Long:  "Shows the asynchronous events of all devices, or of the named ones, until it is interrupted or --for is over.",
		Example: `  purerdma monitor
  purerdma monitor --for 1m --json mlx5_0`,
		RunE: func(c *cobra.Command, names []string) error {
			if length < 0 {
				return cli.Usagef("--for is %v: a length of time is not negative", length)
			}
			return t.watch(c.Context(), names, length)
		},
	}
	c.Flags().DurationVar(&length, "for", 0, "how long; 0 is until it is interrupted")
	return c
}

func (t *tool) watch(ctx context.Context, names []string, length time.Duration) error {
	devices, err := openAll(names)
	t.doc.Events = &[]event{}
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
				t.show(event{time.Now().UTC().Format(time.RFC3339), d.Info().Name, e.Type.String(), e.Port, e.Count})
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return ctx.Err()
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

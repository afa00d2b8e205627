package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/bench/control"
	"github.com/purerdma/purerdma/bench/measure"
	"github.com/purerdma/purerdma/bench/pair"
	"github.com/purerdma/purerdma/bench/pin"
	"github.com/purerdma/purerdma/bench/stats"
	"github.com/purerdma/purerdma/ibverbs"
)

// figures is what one program measured.
type figures struct {
	MiBps              float64 // bandwidth: 2^20 bytes a second, as perftest prints it
	Typical, P99, Mean float64 // latency in µs
}

// orders is a job for one end.
type orders struct {
	Job    job
	Device string
	CPU    int // the processor that the end stays on, -1 for any
}

// noCPU leaves an end to the scheduler.
const noCPU = -1

// pinned runs f on the processor of the orders.
func (o orders) pinned(f func() error) error {
	if o.CPU == noCPU {
		return f()
	}
	unpin, err := pin.To(o.CPU)
	if err != nil {
		return err
	}
	return errors.Join(f(), unpin())
}

// seed is that of the data of the bandwidth test.
const seed = 0x76657262730a

// ours measures with purerdma: this process leads, the second one is the other end.
func ours(ctx context.Context, lead, follow orders, stderr io.Writer) (f figures, err error) {
	nc, wait, err := pair.Start(follow, stderr)
	if err != nil {
		return f, err
	}
	err = lead.pinned(func() (err error) {
		f, err = leading(ctx, nc, lead)
		return err
	})
	if ended := wait(); err == nil {
		err = ended
	}
	return f, err
}

// leading is the end that measures. It closes nc.
func leading(ctx context.Context, nc net.Conn, o orders, find ...ibverbs.Option) (f figures, err error) {
	err = session(ctx, nc, o, find, func(ctx context.Context, e *end, ctl *control.Conn) error {
		switch o.Job.Test {
		case bandwidth:
			measure.Fill(e.buf.Bytes()[:o.Job.Size], seed)
			took, err := e.stream(ctx)
			if err != nil {
				return err
			}
			f.MiBps = float64(o.Job.Iters) * float64(o.Job.Size) / took.Seconds() / (1 << 20)
		case latency:
			samples, err := e.pingPong(ctx, true, make([]float64, 0, o.Job.Iters))
			if err != nil {
				return err
			}
			f.summarize(samples)
		}
		if err := ctl.Send(sayDone, nil); err != nil {
			return err
		}
		return ctl.Recv(ctx, sayChecked, nil)
	})
	return f, err
}

// summarize takes halves of round trips in nanoseconds.
func (f *figures) summarize(samples []float64) {
	slices.Sort(samples)
	f.Typical = stats.Quantile(samples, 0.5) / 1e3
	f.P99 = stats.Quantile(samples, 0.99) / 1e3
	sum := 0.0
	for _, s := range samples {
		sum += s
	}
	f.Mean = sum / float64(len(samples)) / 1e3
}

// following is the other end. It closes nc.
func following(ctx context.Context, nc net.Conn, o orders, find ...ibverbs.Option) error {
	return session(ctx, nc, o, find, func(ctx context.Context, e *end, ctl *control.Conn) error {
		if o.Job.Test == latency {
			if _, err := e.pingPong(ctx, false, nil); err != nil {
				return err
			}
		}
		if err := ctl.Recv(ctx, sayDone, nil); err != nil {
			return err
		}
		if o.Job.Test == bandwidth {
			if err := measure.Check(e.buf.Bytes()[e.half:e.half+o.Job.Size], seed); err != nil {
				return err
			}
		}
		return ctl.Send(sayChecked, nil)
	})
}

// session opens this end, connects it, does its part and closes it again.
func session(ctx context.Context, nc net.Conn, o orders, find []ibverbs.Option, part func(context.Context, *end, *control.Conn) error) (err error) {
	greeting, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	ctl, err := control.New(greeting, nc, "the other process", hello())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ctl.Close()) }()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(ctl.Context(), func() { stop(context.Cause(ctl.Context())) })()
	e, err := newEnd(o.Job, o.Device, find...)
	if err == nil {
		if err = e.connect(ctx, ctl); err == nil {
			err = part(ctx, e, ctl)
		}
		err = errors.Join(err, e.Close())
	}
	if err != nil {
		ctl.Fail(err)
		return fmt.Errorf("%s on %s: %w", o.Job.Test, o.Device, err)
	}
	return nil
}

// second is the second process. What goes wrong it tells on the control connection, so that it is reported once.
func second() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, runLimit+time.Minute)
	defer cancel()
	var o orders
	nc, err := pair.Join(&o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	if err := o.pinned(func() error { return following(ctx, nc, o) }); err != nil {
		return 1
	}
	return 0
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/bench/control"
	"github.com/purerdma/purerdma/bench/measure"
	"github.com/purerdma/purerdma/bench/pair"
	"github.com/purerdma/purerdma/bench/pin"
	"github.com/purerdma/purerdma/ibverbs/softroce"
)

// handshake is how long the two ends may take to find each other.
const handshake = 30 * time.Second

// sliceLimit is when a slice has failed.
const sliceLimit = 20 * time.Second

// pinned runs f on the processor of the orders, and there as if the machine had no other.
func (o orders) pinned(f func() error) error {
	if o.CPU == noCPU {
		return f()
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	unpin, err := pin.To(o.CPU)
	if err != nil {
		return err
	}
	return errors.Join(f(), unpin())
}

// where is a network with an address for each end.
type where struct {
	network      softroce.Network
	lead, follow netip.Addr
}

// session opens this end, connects it, does its part and closes it again.
func session(ctx context.Context, nc net.Conn, o orders, w where, leads bool, part func(context.Context, *end, *control.Conn) error) error {
	greeting, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	ctl, err := control.New(greeting, nc, "the other process", hello())
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(ctl.Context(), func() { stop(context.Cause(ctl.Context())) })()
	addr := w.follow
	if leads {
		addr = w.lead
	}
	e, err := newEnd(o, leads, w.network, addr)
	if err == nil {
		if err = e.connect(greeting, ctl); err == nil {
			err = part(ctx, e, ctl)
		}
		err = errors.Join(err, e.Close())
	}
	if err != nil {
		ctl.Fail(err)
	}
	return errors.Join(err, ctl.Close())
}

// leading measures all modes by turns, rounds times, and hands on each figure. Every other round goes backwards.
func leading(ctx context.Context, e *end, ctl *control.Conn, rounds int, each func(round int, m mode, figure float64)) error {
	measure.Fill(e.buf.Bytes()[fromAt:fromAt+message], seed)
	for round := range rounds {
		for i := range e.Modes {
			m := e.Modes[i]
			if round%2 == 1 {
				m = e.Modes[len(e.Modes)-1-i]
			}
			figure, err := e.slice(ctx, ctl, m)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", m, round+1, err)
			}
			each(round, m, figure)
		}
	}
	return ctl.Send(saySlice, mode(""))
}

// slice measures once.
func (e *end) slice(ctx context.Context, ctl *control.Conn, m mode) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, sliceLimit)
	defer cancel()
	if err := ctl.Send(saySlice, m); err != nil {
		return 0, err
	}
	if err := ctl.Recv(ctx, sayReady, nil); err != nil {
		return 0, err
	}
	figure, err := e.lead(ctx, m)
	if err != nil {
		return 0, err
	}
	if err := ctl.Send(sayOver, nil); err != nil {
		return 0, err
	}
	return figure, ctl.Recv(ctx, sayChecked, nil)
}

// following is the other end's part.
func following(ctx context.Context, e *end, ctl *control.Conn) error {
	for {
		var m mode
		if err := ctl.Recv(ctx, saySlice, &m); err != nil || m == "" {
			return err
		}
		if m.mtu() > 0 {
			clear(e.buf.Bytes()[toAt : toAt+message])
		}
		if err := ctl.Send(sayReady, nil); err != nil {
			return err
		}
		if err := e.follow(ctx, m); err != nil {
			return err
		}
		if err := ctl.Recv(ctx, sayOver, nil); err != nil {
			return err
		}
		if m == write1024 || m == write4096 {
			if err := measure.Check(e.buf.Bytes()[toAt:toAt+message], seed); err != nil {
				return err
			}
		}
		if err := ctl.Send(sayChecked, nil); err != nil {
			return err
		}
	}
}

// lead measures a mode from the end that leads: GB/s, µs of half a round trip, or ns for a message.
func (e *end) lead(ctx context.Context, m mode) (float64, error) {
	switch m {
	case write1024:
		return e.stream(ctx, e.qps[qp1024])
	case write4096:
		return e.stream(ctx, e.qps[qp4096])
	case crc1024, plain1024, crc4096, plain4096:
		return e.ref.stream(ctx, m.mtu(), m == crc1024 || m == crc4096, e.Slice)
	case oneQP:
		return e.small(ctx, e.qps[qpOne:special])
	case manyQP:
		return e.small(ctx, e.qps[special:])
	}
	return e.pingPong(ctx, m)
}

// follow does what the other end has to do itself, which is nothing where it is written to.
func (e *end) follow(ctx context.Context, m mode) error {
	switch m {
	case write1024, write4096, oneQP, manyQP:
		return nil
	case crc1024, plain1024, crc4096, plain4096:
		return e.ref.sink(ctx, m.mtu(), m == crc1024 || m == crc4096)
	}
	_, err := e.pingPong(ctx, m)
	return err
}

// second is the second process. What goes wrong it tells on the control connection, so that it is reported once.
func second() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o orders
	nc, err := pair.Join(&o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	if err := o.pinned(func() error { return session(ctx, nc, o, where{}, false, following) }); err != nil {
		return 1
	}
	return 0
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/purerdma/purerdma/bench/pair"
	"github.com/purerdma/purerdma/bench/pin"
	"github.com/purerdma/purerdma/bench/stats"
	"github.com/purerdma/purerdma/shmtransport"
)

// orders is what the second process starts with.
type orders struct {
	CPU   int
	Addr  string // of the Listener
	PID   int    // of the first process
	Probe int    // its descriptor of the probe's memory
	Cells int    // of a ring
	Data  int    // bytes of a ring
}

// order is one thing to do for the second process. It says "ready" as soon as it waits for the first message.
type order struct {
	Probe bool
	Kind  kind
	Size  int
	Count int
}

// ends is the first process's side.
type ends struct {
	nc     net.Conn
	wait   func() error
	to     *json.Encoder
	from   *json.Decoder
	conn   *shmtransport.Conn
	line   *line
	buffer []byte
	many   [][]byte
}

const largest = 1 << 20

// start starts the second process on cpu and connects to it.
func start(ctx context.Context, cpu int, stderr io.Writer, cells, data int) (e *ends, err error) {
	l, err := shmtransport.Listen("")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	line, file, err := newLine()
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	e = &ends{line: line, buffer: make([]byte, largest), many: newBatch()}
	e.nc, e.wait, err = pair.Start(orders{CPU: cpu, Addr: l.Addr(), PID: os.Getpid(), Probe: int(file.Fd()), Cells: cells, Data: data}, stderr)
	if err != nil {
		return nil, err
	}
	e.to, e.from = json.NewEncoder(e.nc), json.NewDecoder(e.nc)
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if e.conn, err = l.Accept(limited); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for the other end: %w", err), e.nc.Close(), e.wait())
	}
	return e, nil
}

func newBatch() [][]byte {
	b := make([][]byte, batchSize)
	for i := range b {
		b[i] = make([]byte, 8)
	}
	return b
}

// close ends the second process.
func (e *ends) close() error {
	return errors.Join(e.conn.Close(), e.nc.Close(), e.wait(), e.line.span.Release())
}

// order gives an order and waits until it is begun.
func (e *ends) order(o order) error {
	if err := e.to.Encode(o); err != nil {
		return fmt.Errorf("the other end: %w", err)
	}
	var ready string
	if err := e.from.Decode(&ready); err != nil || ready != "ready" {
		return fmt.Errorf("the other end said %q: %w", ready, err)
	}
	return nil
}

// probe is a line's round trip in seconds.
func (e *ends) probe() (float64, error) {
	if err := e.order(order{Probe: true}); err != nil {
		return 0, err
	}
	return e.line.ping()
}

// settle probes until the processors are awake: after a pause, as while a rival starts, they are half as fast for some ms.
func (e *ends) settle() error {
	const alike, most, within = 5, 200, 1.05
	before := 0.0
	for same, n := 0, 0; same < alike && n < most; n++ {
		p, err := e.probe()
		if err != nil {
			return err
		}
		if same++; p > before*within || before > p*within {
			same = 0
		}
		before = p
	}
	return nil
}

// measure is a row's time of one message, in seconds.
func (e *ends) measure(ctx context.Context, r row) (float64, error) {
	if err := e.order(order{Kind: r.Kind, Size: r.Size, Count: r.Count}); err != nil {
		return 0, err
	}
	switch r.Kind {
	case latency:
		return e.pings(ctx, r)
	case stream:
		return e.timed(ctx, r, func() error {
			for range r.Count {
				if err := e.conn.Send(ctx, e.buffer[:r.Size]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return e.timed(ctx, r, func() error {
		for range r.Count / batchSize {
			if _, err := e.conn.SendBatch(ctx, e.many); err != nil {
				return err
			}
		}
		return nil
	})
}

// pings is the median of windows, of half a round trip.
func (e *ends) pings(ctx context.Context, r row) (float64, error) {
	const windows = 10
	var took [windows]float64
	m := e.buffer[:r.Size]
	for w := range took {
		begun := time.Now()
		for range r.Count / windows {
			if err := e.conn.Send(ctx, m); err != nil {
				return 0, err
			}
			if _, err := e.conn.Recv(ctx, m); err != nil {
				return 0, err
			}
		}
		took[w] = time.Since(begun).Seconds() / float64(r.Count/windows) / 2
	}
	return stats.Median(took[:]), nil
}

// timed is the time of one message of a stream, the receiver's answer at its end included.
func (e *ends) timed(ctx context.Context, r row, send func() error) (float64, error) {
	begun := time.Now()
	if err := send(); err != nil {
		return 0, err
	}
	if _, err := e.conn.Recv(ctx, e.buffer); err != nil {
		return 0, err
	}
	return time.Since(begun).Seconds() / float64(r.Count), nil
}

// second is the second process.
func second() int {
	if err := follow(); err != nil {
		fmt.Fprintf(os.Stderr, "error: the other end: %v\n", err)
		return 1
	}
	return 0
}

func follow() (err error) {
	var o orders
	nc, err := pair.Join(&o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nc.Close()) }()
	if _, err := pin.To(o.CPU); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	file, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", o.PID, o.Probe), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	line, err := openLine(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	ctx := context.Background()
	conn, err := shmtransport.Dial(ctx, o.Addr, shmtransport.WithCells(o.Cells), shmtransport.WithData(o.Data))
	if err != nil {
		return err
	}
	buffer, batch, sizes := make([]byte, largest), newBatch(), make([]int, batchSize)
	to, from := json.NewEncoder(nc), json.NewDecoder(nc)
	for {
		var o order
		if err := from.Decode(&o); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return errors.Join(err, conn.Close(), line.span.Release())
		}
		if err := to.Encode("ready"); err != nil {
			return err
		}
		if err := obey(ctx, o, line, conn, buffer, batch, sizes); err != nil {
			return err
		}
	}
}

func obey(ctx context.Context, o order, l *line, c *shmtransport.Conn, buffer []byte, batch [][]byte, sizes []int) error {
	if o.Probe {
		return l.pong()
	}
	switch o.Kind {
	case latency:
		for range o.Count / 10 * 10 {
			n, err := c.Recv(ctx, buffer)
			if err != nil {
				return err
			}
			if err := c.Send(ctx, buffer[:n]); err != nil {
				return err
			}
		}
		return nil
	case stream:
		for range o.Count {
			if _, err := c.Recv(ctx, buffer); err != nil {
				return err
			}
		}
	case batched:
		for left := o.Count; left > 0; {
			n, err := c.RecvBatch(ctx, batch[:min(left, batchSize)], sizes)
			if err != nil {
				return err
			}
			left -= n
		}
	}
	return c.Send(ctx, buffer[:8])
}

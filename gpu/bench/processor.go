//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/kernels"
	"github.com/purerdma/purerdma/internal/cause"
	"github.com/purerdma/purerdma/transport/driver"
	"github.com/purerdma/purerdma/transport/hostend"
)

// processor is a rank of the processor and one of the GPU that SHM connects, both ways: here the messages are this program's, there kernels'.
type processor struct {
	g        gpu.Context
	r        *ranks
	sender   *hostend.Sender
	receiver *hostend.Receiver
	set      *kernels.Set
	e        *end
	there    [2]uint64 // steps taken on the way to the GPU and on the way back
}

const (
	toGPU = iota
	fromGPU
)

// newProcessor has room for messages of size bytes.
func newProcessor(g gpu.Context, buffers [driver.Protocols]int, size int) (_ *processor, err error) {
	p := &processor{g: g}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.r, err = newRanks(ranksConfig{gpu: g, processor: true, buffers: buffers}); err != nil {
		return nil, err
	}
	if p.sender, err = hostend.NewSender(p.r.ends[0]); err != nil {
		return nil, err
	}
	if p.receiver, err = hostend.NewReceiver(p.r.back[0]); err != nil {
		return nil, err
	}
	if p.set, err = kernels.Load(g); err != nil {
		return nil, err
	}
	p.e, err = newEnd(g, size)
	return p, err
}

func (p *processor) close() error {
	var errs []error
	if p.set != nil {
		errs = append(errs, p.set.Close())
	}
	if p.e != nil {
		errs = append(errs, p.e.close())
	}
	if p.r != nil {
		errs = append(errs, p.r.Close())
	}
	return errors.Join(errs...)
}

// channel is one way, as the GPU's kernels have it.
func (p *processor) channel(way int, protocol driver.Protocol) kernels.Channel {
	c := p.r.ends[1].Conn().GPU
	if way == fromGPU {
		c = p.r.back[1].Conn().GPU
	}
	return kernels.Channel{Buffer: c.Buffers[protocol], Head: c.Head, Tail: c.Tail, First: p.there[way], Step: c.Steps[protocol]}
}

// with launches what the GPU does and does the processor's part, and gives the time until both are done. The kernels of a part that failed,
// or that takes too long, end.
func (p *processor) with(launch func() error, part func(ctx context.Context) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patient, errors.New("a message takes too long"))
	defer cancel()
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- p.g.WriteTo(p.e.abort, []byte{1, 0, 0, 0, 0, 0, 0, 0}) })
	took, err := timed(func() error {
		if err := launch(); err != nil {
			return err
		}
		if err := part(ctx); err != nil {
			cancel()
			return err
		}
		return p.g.Synchronize(p.e.a)
	})
	if !stop() {
		if err == nil {
			err = cause.Of(ctx)
		}
		err = errors.Join(err, <-stopped, p.e.wait())
	}
	return took, err
}

// send moves b to the GPU's memory at the destination.
func (p *processor) send(protocol driver.Protocol, b []byte) (time.Duration, error) {
	c, launch := p.channel(toGPU, protocol), p.set.RecvSimple
	c.Data, c.Bytes = p.e.dst, len(b)
	if protocol == driver.LL {
		launch = p.set.RecvLL
	}
	took, err := p.with(func() error { return launch(p.e.a, p.e.abort, []kernels.Channel{c}) },
		func(ctx context.Context) error { return p.sender.Send(ctx, protocol, b) })
	p.there[toGPU] += steps(c, protocol, err)
	return took, err
}

// recv fills b from the GPU's memory at the source.
func (p *processor) recv(protocol driver.Protocol, b []byte) (time.Duration, error) {
	c, launch := p.channel(fromGPU, protocol), p.set.SendSimple
	c.Data, c.Bytes = p.e.src, len(b)
	if protocol == driver.LL {
		launch = p.set.SendLL
	}
	took, err := p.with(func() error { return launch(p.e.a, p.e.abort, []kernels.Channel{c}) },
		func(ctx context.Context) error { return p.receiver.Recv(ctx, protocol, b) })
	p.there[fromGPU] += steps(c, protocol, err)
	return took, err
}

// steps is how many a channel's message has taken; after an error the connection is of no use.
func steps(c kernels.Channel, protocol driver.Protocol, err error) uint64 {
	if err != nil {
		return 0
	}
	if protocol == driver.LL {
		return kernels.Steps(c.Bytes, c.Step/2)
	}
	return kernels.Steps(c.Bytes, c.Step)
}

// lines moves messages of 8 bytes by LL, each the next number, on one of the ways or, given back one by one, on both.
func (p *processor) lines(count int, to, from bool) (time.Duration, error) {
	var in, out kernels.Channel
	if to {
		in = p.channel(toGPU, driver.LL)
	}
	if from {
		out = p.channel(fromGPU, driver.LL)
	}
	took, err := p.with(func() error { return p.set.Lines(p.e.a, p.e.abort, in, out, count) }, func(ctx context.Context) error {
		var word, answer [8]byte
		for i := range uint64(count) {
			binary.LittleEndian.PutUint64(word[:], i+1)
			if to {
				if err := p.sender.Send(ctx, driver.LL, word[:]); err != nil {
					return err
				}
			}
			if from {
				if err := p.receiver.Recv(ctx, driver.LL, answer[:]); err != nil {
					return err
				}
				if answer != word {
					return fmt.Errorf("message %d is % x, want % x", i, answer, word)
				}
			}
		}
		return nil
	})
	if to {
		p.there[toGPU] += uint64(count)
	}
	if from {
		p.there[fromGPU] += uint64(count)
	}
	return took, err
}

// processors measures messages between the processor and the GPU's kernels over SHM, on one channel with NCCL's buffers.
func (t *tool) processors(g gpu.Context) (err error) {
	size := t.bytes / 4
	p, err := newProcessor(g, driver.DefaultBuffers, size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	data := bytes.Repeat([]byte("data"), size/4) // pages of its own, not the one of zeros
	each := func(count int) func(time.Duration) float64 {
		return func(took time.Duration) float64 { return float64(took.Nanoseconds()) / float64(count) }
	}
	rate := func(took time.Duration) float64 { return float64(size) / took.Seconds() / 1e9 }
	const step = 512 << 10
	big := []string{fmt.Sprint(step >> 10), fmt.Sprint(size / step)}
	for _, m := range []struct {
		name, unit string
		f          func() (time.Duration, error)
		figure     func(time.Duration) float64
		pattern    string
		half       bool
		args       []string
	}{
		{"processor and kernel, 8 bytes by LL, half round trip", "ns", func() (time.Duration, error) { return p.lines(t.lines, true, true) }, each(2 * t.lines),
			`(?s).*round trip ([0-9.]+) ns`, true, []string{"host"}},
		{"the same; the limit by words without release and acquire", "ns", func() (time.Duration, error) { return p.lines(t.lines, true, true) }, each(2 * t.lines),
			`(?s).*round trip ([0-9.]+) ns`, true, []string{"hostwords", "echo"}},
		{"processor to kernel, 8 bytes by LL, one after the other", "ns", func() (time.Duration, error) { return p.lines(t.lines, true, false) }, each(t.lines),
			`(?s).*: ([0-9.]+) ns each`, false, []string{"hostwords", "to"}},
		{"kernel to processor, 8 bytes by LL, one after the other", "ns", func() (time.Duration, error) { return p.lines(t.lines, false, true) }, each(t.lines),
			`(?s).*: ([0-9.]+) ns each`, false, []string{"hostwords", "from"}},
		{"processor to kernel, by SIMPLE, one channel", "GB/s", func() (time.Duration, error) { return p.send(driver.Simple, data) }, rate,
			`(?s).*: ([0-9.]+) GB/s`, false, append([]string{"hostring", "to"}, big...)},
		{"kernel to processor, by SIMPLE, one channel", "GB/s", func() (time.Duration, error) { return p.recv(driver.Simple, data) }, rate,
			`(?s).*: ([0-9.]+) GB/s`, false, append([]string{"hostring", "from"}, big...)},
	} {
		if _, err := m.f(); err != nil { // pages are touched for the first time
			return fmt.Errorf("%s: %w", m.name, err)
		}
		var ours, theirs []float64
		for range t.samples {
			took, err := m.f()
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			ours = append(ours, m.figure(took))
			v, err := t.fromLimits(m.pattern, m.args...)
			if err != nil {
				return err
			}
			if m.half {
				v /= 2
			}
			theirs = limit(theirs, v)
		}
		t.add(m.name, m.unit, ours, "the same in CUDA C++", theirs)
	}
	return nil
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/copies"
	"github.com/purerdma/purerdma/gpu/kernels"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/transport/driver"
)

// patient bounds one message over the network.
const patient = 2 * time.Minute

// staging measures messages between two ranks on the GPU over softroce, which does not reach its memory, beside the slower of the two
// things that they take: copies between pinned host memory and the GPU, and the same connection between buffers of the host.
func (t *tool) staging(g gpu.Context) (err error) {
	after := func(f func() error) { err = errors.Join(err, f()) }
	net := ibverbs.WithDrivers(softroce.New(softroce.Config{}))
	staged, err := newRanks(ranksConfig{driver: t.driver, gpu: g, net: net, buffers: driver.DefaultBuffers})
	if err != nil {
		return err
	}
	defer after(staged.Close)
	plain, err := newRanks(ranksConfig{net: net, buffers: driver.DefaultBuffers})
	if err != nil {
		return err
	}
	defer after(plain.Close)
	fmt.Fprintf(t.out.Err, "over the network by %v\n", staged.why)
	p, err := newPath(g, staged, t.bytes)
	if err != nil {
		return err
	}
	defer after(p.close)
	empty, err := newPath(nil, plain, t.bytes)
	if err != nil {
		return err
	}
	var byCopies, byKernels, limits, pinned, bare []float64
	rate := func(all []float64, f func() error) ([]float64, error) {
		took, err := timed(f)
		return append(all, float64(t.bytes)/took.Seconds()/1e9), err
	}
	for range t.samples {
		if byCopies, err = rate(byCopies, p.byCopies); err != nil {
			return err
		}
		if byKernels, err = rate(byKernels, p.byKernels); err != nil {
			return err
		}
		if bare, err = rate(bare, empty.byCopies); err != nil {
			return err
		}
		in, out, err := p.pinned()
		if err != nil {
			return err
		}
		pinned = append(pinned, min(in, out))
		limits = append(limits, min(in, out, bare[len(bare)-1]))
	}
	const of = "the slower of pinned copies and the connection between host buffers"
	t.add("pinned host memory to and from the GPU, the slower way", "GB/s", pinned, "", nil)
	t.add("over softroce between host buffers", "GB/s", bare, "", nil)
	t.add("over softroce, staged, by copies", "GB/s", byCopies, of, limits)
	t.add("over softroce, staged, by kernels", "GB/s", byKernels, of, limits)
	return nil
}

// path moves messages of size bytes between two ranks.
type path struct {
	g       gpu.Context // nil: nothing is moved but what the connection moves
	r       *ranks
	size    int
	set     *kernels.Set
	e       *end
	movers  [2]*mover
	engines [2]*copies.Engine
}

func newPath(g gpu.Context, r *ranks, size int) (_ *path, err error) {
	p := &path{g: g, r: r, size: size}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if g != nil {
		if p.set, err = kernels.Load(g); err != nil {
			return nil, err
		}
		if p.e, err = newEnd(g, size); err != nil {
			return nil, err
		}
	}
	for i := range p.movers {
		if g != nil {
			if p.engines[i], err = copies.New(g, driver.Steps); err != nil {
				return nil, err
			}
		}
		if p.movers[i], err = newMover(r.ends[i].Conn(), p.engines[i]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *path) close() error {
	var errs []error
	if p.set != nil {
		errs = append(errs, p.set.Close())
	}
	for _, e := range p.engines {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if p.e != nil {
		errs = append(errs, p.e.close())
	}
	return errors.Join(errs...)
}

func (p *path) byCopies() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patient, errors.New("a message takes too long"))
	defer cancel()
	var src, dst gpu.Ptr
	if p.e != nil {
		src, dst = p.e.src, p.e.dst
	}
	wait := p.r.operation(p.movers[0].steps(p.size), driver.Simple)
	sent := make(chan error, 1)
	go func() { sent <- p.movers[0].send(ctx, src, p.size) }()
	if err := errors.Join(p.movers[1].recv(ctx, dst, p.size), <-sent); err != nil {
		return err // the proxies end with the engines
	}
	return wait()
}

func (p *path) byKernels() error { return p.kernels(driver.Simple, p.set.SendSimple, p.set.RecvSimple) }

// launch is SendSimple and its like of a kernels.Set.
type launch func(gpu.Stream, gpu.Ptr, []kernels.Channel) error

// kernels moves a message by kernels of a protocol, which the proxies' failure ends.
func (p *path) kernels(protocol driver.Protocol, send, recv launch) error {
	first, payload := p.movers[0].first, p.r.ends[0].Conn().GPU.Steps[protocol]
	if protocol == driver.LL {
		payload /= 2
	}
	channel := func(rank int, data gpu.Ptr) []kernels.Channel {
		c := p.r.ends[rank].Conn().GPU
		return []kernels.Channel{{Data: data, Bytes: p.size, Buffer: c.Buffers[protocol], Head: c.Head, Tail: c.Tail, FIFO: c.FIFO, First: first,
			Step: c.Steps[protocol]}}
	}
	steps := kernels.Steps(p.size, payload)
	wait := p.r.operation(int(steps), protocol)
	if err := send(p.e.a, p.e.abort, channel(0, p.e.src)); err != nil {
		return err
	}
	err := recv(p.e.b, p.e.abort, channel(1, p.e.dst))
	if err == nil {
		ended := make(chan error, 1)
		go func() { ended <- wait() }()
		select {
		case err = <-ended:
		case <-time.After(patient):
			err = errors.New("a message takes too long")
		}
	}
	if err != nil {
		return errors.Join(err, p.g.WriteTo(p.e.abort, []byte{1, 0, 0, 0, 0, 0, 0, 0}), p.e.wait())
	}
	for _, m := range p.movers {
		m.first += steps
	}
	return p.e.wait()
}

// pinned is how fast copies move data from the GPU into the sender's buffer, and out of the receiver's.
func (p *path) pinned() (in, out float64, err error) {
	rate := func(m *mover, to bool) (float64, error) {
		took, err := timed(func() error {
			for off := 0; off < p.size; off += m.step {
				slot, n := m.slot(off/m.step%driver.Steps), min(m.step, p.size-off)
				dst, src := slot, p.e.src+gpu.Ptr(off)
				if !to {
					dst, src = p.e.dst+gpu.Ptr(off), slot
				}
				if err := p.g.Copy(dst, src, n, p.e.a); err != nil {
					return err
				}
			}
			return p.g.Synchronize(p.e.a)
		})
		return float64(p.size) / took.Seconds() / 1e9, err
	}
	if in, err = rate(p.movers[0], true); err != nil {
		return 0, 0, err
	}
	out, err = rate(p.movers[1], false)
	return in, out, err
}

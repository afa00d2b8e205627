//go:build linux

package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/kernels"
)

const (
	line     = 128
	ringStep = 512 << 10
	ringAll  = 256 << 20
	rounds   = 20000
)

// connection is the memory between two ends: the rings of up to MaxChannels channels, their heads, their tails.
type connection struct {
	base gpu.Ptr
}

const (
	headsAt = kernels.MaxChannels * kernels.Slots * ringStep
	tailsAt = headsAt + kernels.MaxChannels*line
	wordsAt = tailsAt + kernels.MaxChannels*line
	// connectionSize is a multiple of 2 MiB.
	connectionSize = headsAt + 2<<20
)

func (c connection) channels(n int, data gpu.Ptr, first uint64) []kernels.Channel {
	all := make([]kernels.Channel, n)
	part := ringAll / n
	for i := range all {
		all[i] = kernels.Channel{Data: data + gpu.Ptr(i*part), Bytes: part, Buffer: c.base + gpu.Ptr(i*kernels.Slots*ringStep),
			Head: c.base + headsAt + gpu.Ptr(i*line), Tail: c.base + tailsAt + gpu.Ptr(i*line), First: first, Step: ringStep}
	}
	return all
}

// clear makes it as new.
func (c connection) clear(g gpu.Context, s gpu.Stream) error {
	if err := g.Fill(c.base+headsAt, 0, 2<<20, s); err != nil {
		return err
	}
	return g.Synchronize(s)
}

// oneProcess measures two streams of one context.
func (t *tool) oneProcess(g gpu.Context) error {
	set, err := kernels.Load(g)
	if err != nil {
		return err
	}
	defer set.Close()
	e, err := newEnd(g, ringAll)
	if err != nil {
		return err
	}
	base, err := g.Alloc(connectionSize)
	if err != nil {
		return err
	}
	defer g.Free(base)
	c := connection{base}

	for _, n := range []int{16, 64} {
		var ours, theirs []float64
		for range t.samples {
			took, err := fastest(func() (time.Duration, error) {
				if err := c.clear(g, e.a); err != nil {
					return 0, err
				}
				return timed(func() error {
					if err := set.SendSimple(e.a, e.abort, c.channels(n, e.src, 0)); err != nil {
						return err
					}
					if err := set.RecvSimple(e.b, e.abort, c.channels(n, e.dst, 0)); err != nil {
						return err
					}
					return e.wait()
				})
			})
			if err != nil {
				return err
			}
			ours = append(ours, ringAll/took.Seconds()/1e9)
			v, err := t.fromLimits(fmt.Sprintf(`%d channels x 8 slots x 512 KiB: ([0-9.]+) GB/s`, n), "same")
			if err != nil {
				return err
			}
			theirs = limit(theirs, v)
		}
		t.add("ring by kernels, one process, "+strconv.Itoa(n)+" channels", "GB/s", ours, "the same in CUDA C++", theirs)
	}

	var ours, theirs []float64
	for range t.samples {
		if err := c.clear(g, e.a); err != nil {
			return err
		}
		took, err := timed(func() error {
			at := c.base + wordsAt
			if err := set.Rounds(e.a, e.abort, at, at+512, rounds, true); err != nil {
				return err
			}
			if err := set.Rounds(e.b, e.abort, at+512, at, rounds, false); err != nil {
				return err
			}
			return e.wait()
		})
		if err != nil {
			return err
		}
		ours = append(ours, float64(took.Nanoseconds())/rounds/2)
		v, err := t.fromLimits(`half round trip ([0-9.]+) ns`, "same")
		if err != nil {
			return err
		}
		theirs = limit(theirs, v)
	}
	t.add("8 bytes by LL, one process, half round trip", "ns", ours, "flags in CUDA C++", theirs)
	return e.close()
}

func timed(f func() error) (time.Duration, error) {
	start := time.Now()
	err := f()
	return time.Since(start), err
}

// fastest is the best of five, of which the program in C++ makes one figure.
func fastest(f func() (time.Duration, error)) (best time.Duration, err error) {
	for i := range 5 {
		took, err := f()
		if err != nil {
			return 0, err
		}
		if i == 0 || took < best {
			best = took
		}
	}
	return best, nil
}

// end is what a process has of its own: two streams, a source, a destination, a word to stop kernels.
type end struct {
	g               gpu.Context
	a, b            gpu.Stream
	src, dst, abort gpu.Ptr
}

// newEnd has room for size bytes to send and to receive.
func newEnd(g gpu.Context, size int) (*end, error) {
	e := &end{g: g}
	var err error
	for _, s := range []*gpu.Stream{&e.a, &e.b} {
		if *s, err = g.NewStream(); err != nil {
			return nil, err
		}
	}
	for _, m := range []struct {
		p *gpu.Ptr
		n int
	}{{&e.src, size}, {&e.dst, size}, {&e.abort, 4096}} {
		if *m.p, err = g.Alloc(m.n); err != nil {
			return nil, err
		}
		if err := g.Fill(*m.p, 0, m.n, e.a); err != nil {
			return nil, err
		}
	}
	return e, g.Synchronize(e.a)
}

func (e *end) wait() error {
	if err := e.g.Synchronize(e.a); err != nil {
		return err
	}
	return e.g.Synchronize(e.b)
}

func (e *end) close() error {
	var errs []error
	for _, p := range []gpu.Ptr{e.src, e.dst, e.abort} {
		errs = append(errs, e.g.Free(p))
	}
	return errors.Join(append(errs, e.g.CloseStream(e.a), e.g.CloseStream(e.b))...)
}

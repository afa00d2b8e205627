package tune

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/purerdma/purerdma/bench/measure"
)

// sending is the stream of a run at the end that sweeps.
func (e *End) sending(r run) *measure.Stream {
	ring := e.rings.out
	s := &measure.Stream{Dir: e.conns[r.Connection].out, Ring: ring, Size: r.Size, Count: r.Count, Nap: e.nap()}
	if r.Kind == check {
		s.Before = func(i, off int) error {
			measure.Fill(e.buf.Bytes()[off:off+r.Size], measure.MessageSeed(r.Seed, i))
			return nil
		}
	}
	return s
}

// restore lays the slots' own patterns ready again after a check.
func (e *End) restore(r run) {
	if r.Kind == check {
		for slot := range e.rings.out.Slots {
			e.fillSlot(slot, r.Size)
		}
	}
}

// receiving is the stream of a run at the end that serves.
func (e *End) receiving(r run) *measure.Stream {
	s := &measure.Stream{Dir: e.conns[r.Connection].in, Ring: e.rings.in, Size: r.Size, Count: r.Count, Nap: e.nap()}
	if r.Kind == check {
		s.After = func(i, off int) error {
			return measure.Check(e.buf.Bytes()[off:off+r.Size], measure.MessageSeed(r.Seed, i))
		}
	}
	return s
}

// wipe damages what sample will look at, so that a message that never arrives shows.
func (e *End) wipe(r run) {
	for slot := range e.rings.in.Slots {
		for _, p := range samples(r) {
			clear(e.arrived(slot, p))
		}
	}
}

// sample checks the message that arrived last in each slot against the slot's pattern.
func (e *End) sample(r run) error {
	for slot := range min(e.rings.in.Slots, r.Count) {
		for _, p := range samples(r) {
			if err := measure.CheckPart(e.arrived(slot, p), measure.MessageSeed(sampleSeed, slot), p.off); err != nil {
				return fmt.Errorf("one of the last %d messages of %d bytes: %w", e.rings.in.Slots, r.Size, err)
			}
		}
	}
	return nil
}

func (e *End) arrived(slot int, p piece) []byte {
	off := e.rings.in.Off + slot*e.rings.in.Stride + p.off
	return e.buf.Bytes()[off : off+p.n]
}

// piece is a part of a message, from a multiple of 8 on.
type piece struct{ off, n int }

// samples is which parts of a run's messages are looked at: all of small ones, of others the two ends and some in between, so that
// looking takes no longer than moving.
func samples(r run) []piece {
	const all, some, length = 16 << 10, 30, 256
	if r.Size <= all {
		return []piece{{0, r.Size}}
	}
	last := (r.Size - length) &^ 7
	ps := []piece{{0, length}, {last, r.Size - last}}
	rnd := rand.New(rand.NewPCG(r.Seed, uint64(r.Size)))
	for range some {
		ps = append(ps, piece{rnd.IntN(last) &^ 7, length})
	}
	return ps
}

// pingPong is the ping-pong of a run; both ends make theirs alike.
func (e *End) pingPong(r run) *measure.PingPong {
	c := e.conns[r.Connection]
	return &measure.PingPong{Send: c.out, Recv: c.in, SendOff: e.rings.out.Off, RecvOff: e.rings.in.Off, Size: r.Size, Count: r.Count, Nap: e.nap()}
}

// halves is a ping-pong's samples in ascending order of time.
func halves(ctx context.Context, p *measure.PingPong) ([]float64, time.Duration, error) {
	begin := time.Now()
	samples, err := p.Lead(ctx, make([]float64, 0, p.Count))
	took := time.Since(begin)
	slices.Sort(samples)
	return samples, took, err
}

// nap is how the loops wait: next to packets that the processor moves they leave it to them.
func (e *End) nap() time.Duration {
	if e.about.Software {
		return 20 * time.Microsecond
	}
	return 0
}

package gdr_test

import (
	"context"
	"errors"
	"testing"

	"github.com/purerdma/purerdma/gdr"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/racetest"
)

// A flush reads GPU memory behind what was written, wherever the byte lies, and in
// order; one that fails ends all later ones, and nothing is left.
func TestFlusher(t *testing.T) {
	d, g := openGPU(t, gputest.Config{})
	dev := soft(t)
	pd := get(dev.AllocPD())(t)
	r := get(gdr.NewRegistrar(gdr.Config{Driver: d, GPU: g.Device(), Device: dev, Sys: noModules}, g, pd, nil))(t)
	f := get(gdr.NewFlusher(dev, pd))(t)
	p := get(g.Alloc(9000))(t)
	m := get(r.Register(p+13, 8000, ibverbs.LocalWrite|ibverbs.RemoteWrite|ibverbs.RemoteRead))(t)
	for _, off := range []int{0, 1, 4095, 7999} {
		must(t, f.Flush(context.Background(), m, off))
	}
	var last uint64
	for range 64 {
		last = get(f.Start(m, 5))(t)
	}
	if _, err := f.Start(m, 5); !errors.Is(err, ibverbs.ErrQueueFull) {
		t.Errorf("one flush too many: %v", err)
	}
	for done := false; !done; {
		done = get(f.Done(last))(t)
	}
	for _, off := range []int{-1, 8000} {
		if _, err := f.Start(m, off); err == nil {
			t.Errorf("byte %d was flushed", off)
		}
	}
	written := get(r.Register(p, 100, ibverbs.LocalWrite|ibverbs.RemoteWrite))(t)
	if _, err := f.Start(written, 0); !errors.Is(err, gdr.ErrNotRead) {
		t.Errorf("memory that may not be read: %v", err)
	}
	must(t, written.Close())

	if n := testing.AllocsPerRun(50, func() {
		n, err := f.Start(m, 7)
		for done := false; !done && err == nil; {
			done, err = f.Done(n)
		}
		must(t, err)
	}); n > 0 && !racetest.Enabled {
		t.Errorf("%v allocations a flush", n)
	}

	stale := *m
	must(t, m.Close())
	if err := f.Flush(context.Background(), m, 0); err == nil {
		t.Error("memory without a registration was flushed")
	}
	if err := f.Flush(context.Background(), &stale, 0); err == nil {
		t.Error("a flush of a registration that is gone has ended well")
	}
	must(t, f.Close())
	must(t, f.Close())
	if _, err := f.Start(&stale, 0); err == nil {
		t.Error("a closed one flushes")
	}
}

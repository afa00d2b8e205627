package main

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/gpu/kernels"
	"github.com/purerdma/purerdma/gpu/kernels/kernelstest"
	"github.com/purerdma/purerdma/transport/driver"
)

// A rank of the processor and a GPU's exchange messages by kernels and by hostend.
func TestProcessor(t *testing.T) {
	d := gputest.New(gputest.Config{Kernels: kernelstest.Kernels()})
	g, err := d.Open(0)
	must(t, err)
	withProcessor(t, g, 100, 300_001)
	must(t, g.Close())
	if left := d.Left(); len(left) > 0 {
		t.Errorf("left on the GPU: %v", left)
	}
}

// withProcessor checks messages of up to most bytes both ways, and many of 8 bytes.
func withProcessor(t *testing.T, g gpu.Context, many, most int) {
	t.Helper()
	p, err := newProcessor(g, smallBuffers, most)
	must(t, err)
	for i, n := range []int{0, 1, 3, 4, 7, 8, 9, 16, 4095, 4096, 4097, smallBuffers[driver.LL] / 16, smallBuffers[driver.Simple] / 8,
		smallBuffers[driver.Simple]/8 + 1, smallBuffers[driver.Simple], most} {
		for _, protocol := range []driver.Protocol{driver.Simple, driver.LL} {
			want, got := text(n, byte(i), 0), make([]byte, n)
			_, err := p.send(protocol, want)
			must(t, errors.Join(err, g.ReadFrom(got, p.e.dst)))
			if !bytes.Equal(got, want) {
				t.Fatalf("%d bytes to the GPU by %v: they differ", n, protocol)
			}
			want = text(n, byte(i), 1)
			must(t, g.WriteTo(p.e.src, want))
			if _, err := p.recv(protocol, got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("%d bytes from the GPU by %v: they differ", n, protocol)
			}
			for _, way := range [][2]bool{{true, true}, {true, false}, {false, true}} {
				if _, err := p.lines(many, way[0], way[1]); err != nil {
					t.Fatalf("lines, to and from %v: %v", way, err)
				}
			}
		}
	}
	must(t, p.close())
}

// A part that fails ends the kernel that waits for it.
func TestProcessorFails(t *testing.T) {
	g, err := gputest.New(gputest.Config{Kernels: kernelstest.Kernels()}).Open(0)
	must(t, err)
	p, err := newProcessor(g, smallBuffers, 4096)
	must(t, err)
	failed := errors.New("it failed")
	_, err = p.with(func() error { return p.set.Lines(p.e.a, p.e.abort, p.channel(toGPU, driver.LL), kernels.Channel{}, 1) },
		func(context.Context) error { return failed })
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	must(t, errors.Join(p.close(), g.Close()))
}

func TestProcessorRows(t *testing.T) {
	g, err := gputest.New(gputest.Config{Kernels: kernelstest.Kernels()}).Open(0)
	must(t, err)
	b := &tool{samples: 2, bytes: 4 << 20, lines: 100}
	b.out.Err = t.Output()
	must(t, b.processors(g))
	if len(b.doc.Rows) != 6 {
		t.Errorf("%d rows", len(b.doc.Rows))
	}
	for _, r := range b.doc.Rows {
		if len(r.Samples) != 2 || r.Value <= 0 || r.Ratio != 0 {
			t.Errorf("%+v", r)
		}
	}
	must(t, g.Close())
}

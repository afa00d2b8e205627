package main

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/gpu/kernels/kernelstest"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/transport/driver"
)

var smallBuffers = [driver.Protocols]int{driver.LL: 64 << 10, driver.Simple: 256 << 10}

// Two ranks on one GPU meet over the network, with their buffers in the GPU's memory or staged, and in shared memory: messages by kernels
// and by copies arrive whole.
func TestRanksOnOneGPU(t *testing.T) {
	for name, c := range map[string]struct {
		machine gputest.Config
		net     bool
		why     string
	}{
		"NET, GPUDirect":  {gputest.Config{}, true, "DMA-BUF"},
		"NET, staged":     {gputest.Config{OpaqueDMABuf: true}, true, "staged through pinned host memory: DMA-BUF was refused"},
		"SHM, registered": {gputest.Config{}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.machine.Kernels = kernelstest.Kernels()
			d := gputest.New(c.machine)
			g, err := d.Open(0)
			if err != nil {
				t.Fatal(err)
			}
			var net ibverbs.Option
			if c.net {
				net = ibverbs.WithDrivers(softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")},
					Network: softroce.OnSim(softroce.NewSim(softroce.SimConfig{}))}))
			}
			onOneGPU(t, d, g, net, c.why, 300_001)
			if err := g.Close(); err != nil {
				t.Error(err)
			}
			if left := d.Left(); len(left) > 0 {
				t.Errorf("left on the GPU: %v", left)
			}
		})
	}
}

// onOneGPU connects two ranks and checks messages of up to most bytes.
func onOneGPU(t *testing.T, d gpu.Driver, g gpu.Context, net ibverbs.Option, why string, most int) {
	t.Helper()
	r, err := newRanks(ranksConfig{driver: d, gpu: g, net: net, buffers: smallBuffers})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("connected by %v", r.why)
	if want := map[bool]string{true: "NET", false: "SHM"}[net != nil]; r.why.Transport != want || !strings.Contains(r.why.Reason, why) {
		t.Errorf("connected by %v, want %s: %s", r.why, want, why)
	}
	p, err := newPath(g, r, most)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []int{0, 1, 7, 4096, smallBuffers[driver.Simple], most} {
		for way, move := range map[string]func() error{"copies": p.byCopies, "SIMPLE": p.byKernels,
			"LL": func() error { return p.kernels(driver.LL, p.set.SendLL, p.set.RecvLL) }} {
			if err := checked(p, n, byte(i)+way[0], move); err != nil {
				t.Fatalf("%d bytes by %s: %v", n, way, err)
			}
		}
	}
	if err := errors.Join(p.close(), r.Close()); err != nil {
		t.Error(err)
	}
}

// checked moves a message of n bytes and compares it.
func checked(p *path, n int, salt byte, move func() error) error {
	want := make([]byte, n)
	for i := range want {
		want[i] = byte(i)*7 + byte(i>>8) + byte(i>>16)*3 + salt
	}
	p.size = n
	if n > 0 {
		if err := errors.Join(p.g.WriteTo(p.e.src, want), p.g.WriteTo(p.e.dst, make([]byte, n))); err != nil {
			return err
		}
	}
	if err := move(); err != nil || n == 0 {
		return err
	}
	got := make([]byte, n)
	if err := p.g.ReadFrom(got, p.e.dst); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("the bytes differ")
	}
	return nil
}

// The rows of staging come out of any GPU that the devices do not reach.
func TestStagingRows(t *testing.T) {
	d := gputest.New(gputest.Config{OpaqueDMABuf: true, Kernels: kernelstest.Kernels()})
	g, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	b := &tool{driver: d, samples: 2, bytes: 9 << 20}
	b.out.Err = t.Output()
	if err := b.staging(g); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"pinned", "between host buffers", "staged, by copies", "staged, by kernels"} {
		if r := b.doc.Rows[i]; !strings.Contains(r.Name, name) || len(r.Samples) != 2 || r.Value <= 0 || (i > 1) != (r.Ratio > 0) {
			t.Errorf("%+v", r)
		}
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if left := d.Left(); len(left) > 0 {
		t.Errorf("left on the GPU: %v", left)
	}
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/gdr"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/gpu/kernels/kernelstest"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
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

// The memory of a GPU comes to a device by descriptors that hold it.
func TestRegister(t *testing.T) {
	d := gputest.New(gputest.Config{})
	g, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	onDevice(t, d, g)
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if left := d.Left(); len(left) > 0 {
		t.Errorf("left on the GPU: %v", left)
	}
}

// onDevice registers memory of the two kinds with a device that looks at each descriptor.
func onDevice(t *testing.T, d gpu.Driver, g gpu.Context) {
	var got []ibverbs.DMABuf
	adapter := memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{{Name: "mem0", Hardware: true, DMABuf: func(b ibverbs.DMABuf) error {
		f, err := unix.FcntlInt(uintptr(b.FD), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return err
		}
		size, err := unix.Seek(f, 0, io.SeekEnd)
		if err == nil && uint64(size) < b.Offset+b.Length {
			err = fmt.Errorf("%d bytes from %d of %d: %w", b.Length, b.Offset, size, unix.EINVAL)
		}
		got = append(got, b)
		return errors.Join(err, unix.Close(f))
	}}}})
	dev, err := ibverbs.Open("mem0", ibverbs.WithDrivers(adapter))
	must(t, err)
	pd, err := dev.AllocPD()
	must(t, err)
	r, err := gdr.NewRegistrar(gdr.Config{Driver: d, GPU: g.Device(), Device: dev}, g, pd, nil)
	must(t, err)
	if way := r.Decision(); way.Way != gdr.DMABuf {
		t.Fatalf("%v: %s", way.Way, way.Reason)
	}
	unit, err := g.Granularity()
	must(t, err)
	plain, err := g.Alloc(3 * unit)
	must(t, err)
	mapped, err := g.Reserve(2 * unit)
	must(t, err)
	for i := range gpu.Ptr(2) {
		a, err := g.Create(unit, true)
		must(t, err)
		must(t, g.Map(mapped+i*gpu.Ptr(unit), unit, a))
	}
	const page = 4096
	for _, c := range []struct {
		p gpu.Ptr
		n int
	}{{plain, 3 * unit}, {plain, 1}, {plain + page - 1, 2}, {plain + 12345, unit}, {plain + gpu.Ptr(3*unit) - 1, 1},
		{mapped, unit}, {mapped + 7, 9}, {mapped + gpu.Ptr(unit) - 1, 1}, {mapped + gpu.Ptr(unit) - 7, 14}, {mapped + 100, 2*unit - 200}} {
		got = got[:0]
		m, err := r.Register(c.p, c.n, ibverbs.LocalWrite|ibverbs.RemoteWrite)
		if err != nil {
			t.Errorf("%#x, %d: %v", uint64(c.p), c.n, err)
			continue
		}
		at := uint64(c.p)
		for _, piece := range got {
			if piece.IOVA != at || piece.Offset%page != at%page {
				t.Errorf("%#x, %d: a piece of %d bytes from %d for %#x, not %#x", uint64(c.p), c.n, piece.Length, piece.Offset, piece.IOVA, at)
			}
			at += piece.Length
		}
		if at != uint64(c.p)+uint64(c.n) || len(m.Pieces()) != len(got) {
			t.Errorf("%#x, %d: %d pieces up to %#x", uint64(c.p), c.n, len(got), at)
		}
		must(t, m.Close())
	}
	must(t, errors.Join(pd.Close(), dev.Close()))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

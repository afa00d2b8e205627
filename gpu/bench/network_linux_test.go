package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/gdr"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/gpu/kernels/kernelstest"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/p2ptransport"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport"
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

// Send and Recv of a communicator take memory of a GPU, over every transport.
func TestMessagesOnOneGPU(t *testing.T) {
	d := gputest.New(gputest.Config{OpaqueDMABuf: true})
	g, err := d.Open(0)
	must(t, err)
	net := ibverbs.WithDrivers(softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")},
		Network: softroce.OnSim(softroce.NewSim(softroce.SimConfig{}))}))
	messagesOnOneGPU(t, d, g, net, 1<<20+1)
	must(t, g.Close())
	if left := d.Left(); len(left) > 0 {
		t.Errorf("left on the GPU: %v", left)
	}
}

func messagesOnOneGPU(t *testing.T, d gpu.Driver, g gpu.Context, net ibverbs.Option, most int) {
	for name, c := range map[string]struct {
		ranksConfig
		p2p *p2ptransport.Config
	}{
		"P2P, DIRECT":     {p2p: &p2ptransport.Config{}},
		"P2P, CUMEM":      {p2p: &p2ptransport.Config{NoDirect: true}},
		"SHM":             {},
		"SHM, registered": {ranksConfig: ranksConfig{gpu: g}},
		"NET, staged":     {ranksConfig: ranksConfig{gpu: g, net: net, driver: d}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &ranks{}
			comms := pairs(t, r, c.ranksConfig, func(rank int) transport.Transport {
				if c.p2p == nil {
					made, err := r.transport(c.ranksConfig, rank)
					must(t, err)
					return made
				}
				config := *c.p2p
				config.Driver, config.GPU, config.Log = d, g, slog.New(slog.DiscardHandler)
				p, err := p2ptransport.New(config)
				must(t, err)
				r.close = append(r.close, p.Close)
				return p
			})
			e, err := newEnd(g, most)
			must(t, err)
			for i, n := range []int{0, 1, 7, 4096, 1 << 17, most} {
				must(t, message(comms, e, n, byte(i)))
			}
			start := time.Now()
			must(t, message(comms, e, most, 99))
			t.Logf("%d bytes, checked: %v", most, time.Since(start))
			must(t, errors.Join(r.Close(), e.close()))
		})
	}
}

// pairs is two communicators that are connected for messages.
func pairs(t *testing.T, r *ranks, c ranksConfig, made func(rank int) transport.Transport) (comms [2]*transport.Communicator) {
	transports := [2]transport.Transport{made(0), made(1)}
	var all sync.WaitGroup
	for rank, job := range bootstrap.InMemory(2, nil) {
		r.close = append(r.close, job.Close)
		self := driver.PeerInfo{}
		if c.net != nil {
			self.HostHash = uint64(rank + 1)
		}
		all.Go(func() {
			v := transport.Variables{Buffers: driver.DefaultBuffers}
			var err error
			comms[rank], err = transport.New(t.Context(), transport.Config{Job: job, Channels: 1, Variables: &v, Self: self,
				Transports: transports[rank : rank+1], Log: slog.New(slog.DiscardHandler)})
			if err == nil {
				err = comms[rank].Connect(t.Context(), transport.Pairs(rank, 2, 1))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, comm := range comms {
		if comm != nil {
			r.close = append(r.close, comm.Close)
		}
	}
	if t.Failed() {
		_ = r.Close()
		t.FailNow()
	}
	return comms
}

// message moves n bytes from e's source into its destination and compares them.
func message(comms [2]*transport.Communicator, e *end, n int, salt byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	p := &path{g: e.g, e: e}
	return checked(p, n, salt, func() error {
		sent := make(chan error, 1)
		go func() { sent <- comms[0].SendGPU(ctx, 1, transport.GPUMemory{Context: e.g, Ptr: e.src, Bytes: n}) }()
		got, err := comms[1].RecvGPU(ctx, 0, transport.GPUMemory{Context: e.g, Ptr: e.dst, Bytes: n})
		if err == nil && got != n {
			err = fmt.Errorf("%d bytes came, want %d", got, n)
		}
		return errors.Join(err, <-sent)
	})
}

package gdr_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/purerdma/purerdma/gdr"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/internal/leaktest"
	"github.com/purerdma/purerdma/qp"
	"github.com/purerdma/purerdma/topo"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// soft is a device that registers memory files by descriptor; plain is one that
// does not.
func soft(t testing.TB) *ibverbs.Context {
	drv := softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Network: softroce.OnSim(softroce.NewSim(softroce.SimConfig{}))})
	dev := get(ibverbs.Open("soft0", ibverbs.WithDrivers(drv)))(t)
	t.Cleanup(func() { must(t, dev.Close()) })
	return dev
}

func plain(t testing.TB) *ibverbs.Context {
	dev := get(ibverbs.Open("mem0", ibverbs.WithDrivers(memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{{Name: "mem0", Hardware: true}}}))))(t)
	t.Cleanup(func() { must(t, dev.Close()) })
	return dev
}

func openGPU(t testing.TB, c gputest.Config) (*gputest.Driver, gpu.Context) {
	d := gputest.New(c)
	g := get(d.Open(0))(t)
	t.Cleanup(func() {
		must(t, g.Close())
		if left := d.Left(); len(left) > 0 {
			t.Errorf("left on the GPU: %v", left)
		}
	})
	return d, g
}

var (
	noModules = fstest.MapFS{}
	peermem   = fstest.MapFS{"module/nvidia_peermem/version": &fstest.MapFile{Data: []byte("580.1\n")}}
)

func TestDecide(t *testing.T) {
	noBuf := map[gpu.Attribute]int{gpu.HasDMABuf: 0}
	near, far := distances(t)
	for name, c := range map[string]struct {
		config gdr.Config
		gpu    gputest.Config
		plain  bool
		way    gdr.Way
		reason string
	}{
		"all have it":               {way: gdr.DMABuf, reason: "have it"},
		"switched off":              {config: gdr.Config{NoDMABuf: true}, way: gdr.Staged, reason: "switched off"},
		"switched off, module":      {config: gdr.Config{NoDMABuf: true, Sys: peermem}, plain: true, way: gdr.PeerMemory, reason: "nvidia_peermem"},
		"software, module":          {config: gdr.Config{NoDMABuf: true, Sys: peermem}, way: gdr.Staged, reason: "soft0 moves data with the processor"},
		"GPUDirect switched off":    {config: gdr.Config{Never: true, Sys: peermem}, way: gdr.Staged, reason: "GPUDirect RDMA is switched off"},
		"GPU without":               {gpu: gputest.Config{Attributes: noBuf}, way: gdr.Staged, reason: "GPU's driver does not offer it"},
		"GPU without, module":       {config: gdr.Config{Sys: peermem}, gpu: gputest.Config{Attributes: noBuf}, plain: true, way: gdr.PeerMemory, reason: "nvidia_peermem"},
		"device without":            {plain: true, way: gdr.Staged, reason: "DMA-BUF registration is not supported by"},
		"device without, module":    {config: gdr.Config{Sys: peermem}, plain: true, way: gdr.PeerMemory, reason: "not supported by"},
		"near":                      {config: gdr.Config{System: near}, way: gdr.DMABuf, reason: "have it"},
		"far":                       {config: gdr.Config{System: far, Sys: peermem}, way: gdr.Staged, reason: "SYS lies between the GPU and soft0, and at most PXB"},
		"far, but that far allowed": {config: gdr.Config{System: far, Level: topo.SYS}, way: gdr.DMABuf, reason: "have it"},
	} {
		t.Run(name, func(t *testing.T) {
			d, g := openGPU(t, c.gpu)
			c.config.Driver, c.config.GPU = d, g.Device()
			if c.config.Sys == nil {
				c.config.Sys = noModules
			}
			if c.config.Device = soft(t); c.plain {
				c.config.Device = plain(t)
			}
			got, err := gdr.Decide(c.config)
			if err != nil || got.Way != c.way || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("%v because %q, %v; want %v because %q", got.Way, got.Reason, err, c.way, c.reason)
			}
		})
	}
}

// distances is two machines with a GPU0 and a soft0: beside each other, and on
// different sockets.
func distances(t *testing.T) (near, far *topo.System) {
	t.Helper()
	for _, m := range []struct {
		to    **topo.System
		place string
		node  string
	}{{&near, "devices/pci0000:00/0000:00:01.0/0000:01:00.1", "0"}, {&far, "devices/pci0000:80/0000:81:00.0", "1"}} {
		sys := fstest.MapFS{
			"devices/pci0000:00/0000:00:01.0/0000:01:00.0/numa_node": &fstest.MapFile{Data: []byte("0")},
			m.place + "/numa_node":               &fstest.MapFile{Data: []byte(m.node)},
			"bus/pci/devices/0000:01:00.0":       symlink("../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0"),
			"class/infiniband/soft0":             symlink("../../" + m.place + "/infiniband/soft0"),
			m.place + "/infiniband/soft0/device": symlink("../../../" + m.place[strings.LastIndex(m.place, "/")+1:]),
		}
		s := get(topo.Read(sys))(t)
		must(t, s.AddGPUs(sys, gputest.New(gputest.Config{})))
		*m.to = s
	}
	return near, far
}

func symlink(to string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(to), Mode: os.ModeSymlink | 0o777}
}

// NCCL_NET_GDR_READ, and NCCL's rule where it is not set.
func TestMayRead(t *testing.T) {
	yes, no := true, false
	two := make([]gpu.DeviceInfo, 2)
	linked := map[int][]gpu.Link{0: {{Kind: "NVLink", Count: 4}}, 1: {{Kind: "NVLink", Count: 4}}}
	for _, c := range []struct {
		major   int
		allow   *bool
		devices []gpu.DeviceInfo
		links   map[int][]gpu.Link
		want    bool
	}{
		{8, nil, two, nil, true}, {7, nil, two, nil, false}, {7, nil, two, linked, true}, {7, nil, two[:1], nil, true},
		{9, &no, two[:1], nil, false}, {7, &yes, two, nil, true},
	} {
		d := gputest.New(gputest.Config{Devices: append([]gpu.DeviceInfo(nil), c.devices...), Links: c.links})
		s := get(topo.Read(fstest.MapFS{}))(t)
		_ = s.AddGPUs(fstest.MapFS{}, d) // they have no place
		config := gdr.Config{GPU: gpu.DeviceInfo{Major: c.major}, System: s, AllowRead: c.allow}
		if got, why := config.MayRead(); got != c.want || got == (why != "") {
			t.Errorf("%+v: %v, %q", c, got, why)
		}
	}
}

func TestFlush(t *testing.T) {
	dev := soft(t)
	for _, c := range []struct {
		major, order        int
		never, always, want bool
	}{
		{9, 0, false, false, false},
		{8, 0, false, false, true},
		{8, 100, false, false, false},
		{8, 200, false, false, false},
		{9, 100, false, true, true},
		{7, 0, true, false, false},
	} {
		d := gputest.New(gputest.Config{Devices: []gpu.DeviceInfo{{Major: c.major}}, Attributes: map[gpu.Attribute]int{gpu.GDRWritesOrdering: c.order}})
		info := get(d.Devices())(t)[0]
		got, err := gdr.Decide(gdr.Config{Driver: d, GPU: info, Device: dev, Sys: noModules, NoFlush: c.never, ForceFlush: c.always})
		if err != nil || got.Flush != c.want || got.FlushReason == "" {
			t.Errorf("%+v: %v because %q, %v", c, got.Flush, got.FlushReason, err)
		}
	}
}

// Memory of a GPU is written by a peer, at any offset and length, also where it
// has two allocations; the GPU's driver and the device are told to what belongs
// to each, and no descriptor is left.
func TestRegister(t *testing.T) {
	for name, divided := range map[string]bool{"one descriptor": false, "one for each allocation": true} {
		t.Run(name, func(t *testing.T) { testRegister(t, divided) })
	}
}

func testRegister(t *testing.T, divided bool) {
	d, g := openGPU(t, gputest.Config{})
	dev := soft(t)
	pd, cq := get(dev.AllocPD())(t), get(dev.CreateCQ(16))(t)
	r := get(gdr.NewRegistrar(gdr.Config{Driver: d, GPU: g.Device(), Device: dev, Sys: noModules}, g, pd, nil))(t)
	if r.Decision().Way != gdr.DMABuf {
		t.Fatalf("%+v", r.Decision())
	}
	size := get(g.Granularity())(t)
	p, n := get(g.Alloc(3*size))(t), 3*size
	if divided {
		p, n = get(g.Reserve(2*size))(t), 2*size
		for i := range gpu.Ptr(2) {
			must(t, g.Map(p+i*gpu.Ptr(size), size, get(g.Create(size, true))(t)))
		}
	}
	a, b := get(qp.New(pd, cq, cq, qp.WithSGEs(2)))(t), get(qp.New(pd, cq, cq, qp.WithAccess(ibverbs.RemoteRead)))(t)
	must(t, a.Connect(b.Info()))
	must(t, b.Connect(a.Info()))
	for _, at := range [][2]int{{0, n}, {1, 1}, {4095, 2}, {size - 7, 14}, {n - 1, 1}, {12345, size}} {
		want := bytes.Repeat([]byte{byte(at[0]), 0x5a, byte(at[1])}, n/3+1)[:at[1]]
		m := get(r.Register(p+gpu.Ptr(at[0]), at[1], ibverbs.LocalWrite|ibverbs.RemoteRead))(t)
		if m.Len() != at[1] {
			t.Errorf("%d bytes", m.Len())
		}
		source := get(g.Alloc(at[1]))(t)
		must(t, g.WriteTo(source, want))
		from := get(r.Register(source, at[1], ibverbs.LocalWrite|ibverbs.RemoteRead))(t)
		get(a.PostSend(ibverbs.SendWR{Op: ibverbs.OpRead, Flags: ibverbs.Signaled, SGL: m.SGEs(nil, 0, at[1]), Remote: from.Pieces()[0].Remote(0)}))(t)
		var wcs [1]ibverbs.WC
		get(cq.Wait(context.Background(), wcs[:]))(t)
		must(t, cq.Err(&wcs[0]))
		got := make([]byte, at[1])
		must(t, g.ReadFrom(got, p+gpu.Ptr(at[0])))
		if !bytes.Equal(got, want) {
			t.Errorf("%v: the bytes differ", at)
		}
		must(t, m.Close())
		must(t, m.Close())
		must(t, from.Close())
		must(t, g.Free(source))
	}
	for _, bad := range [][2]int{{0, 0}, {0, -1}, {n - 1, 2}, {n, 1}} {
		if m, err := r.Register(p+gpu.Ptr(bad[0]), bad[1], ibverbs.LocalWrite); err == nil || errors.Is(err, gdr.ErrStaged) {
			t.Errorf("%v was registered: %v, %v", bad, m, err)
		}
	}
}

// A device that refuses is not asked again, and the reason is told once.
func TestRefused(t *testing.T) {
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	d, g := openGPU(t, gputest.Config{})
	dev := soft(t)
	pd := get(dev.AllocPD())(t)
	r := get(gdr.NewRegistrar(gdr.Config{Driver: d, GPU: g.Device(), Device: dev, Sys: noModules}, g, pd, logger))(t)
	p := get(g.Alloc(8192))(t)
	d.Fail("DMABuf", 1, &gpu.Error{Call: "cuMemGetHandleForAddressRange", Missing: true})
	for range 3 {
		if _, err := r.Register(p, 4096, ibverbs.LocalWrite); !errors.Is(err, gdr.ErrStaged) || !strings.Contains(err.Error(), "DMA-BUF was refused") {
			t.Errorf("%v", err)
		}
	}
	if n := strings.Count(log.String(), "cannot be registered"); n != 1 || d.Calls()["DMABuf"] != 1 {
		t.Errorf("told %d times, asked %d times:\n%s", n, d.Calls()["DMABuf"], &log)
	}

	// A failure of this one call changes nothing.
	r = get(gdr.NewRegistrar(gdr.Config{Driver: d, GPU: g.Device(), Device: dev, Sys: noModules}, g, pd, slog.New(slog.NewTextHandler(io.Discard, nil))))(t)
	d.Fail("DMABuf", 1, &gpu.Error{Call: "cuMemGetHandleForAddressRange", Name: "CUDA_ERROR_OUT_OF_MEMORY", Code: 2, Cause: gpu.ErrOutOfMemory})
	if _, err := r.Register(p, 4096, ibverbs.LocalWrite); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("%v", err)
	}
	m := get(r.Register(p, 4096, ibverbs.LocalWrite))(t)
	must(t, m.Close())
}

// Each call of the GPU's driver fails once, at each time that it comes: the error names the call, the GPU and the device, and nothing is left
// of what was registered before.
func TestEachCallFails(t *testing.T) {
	for _, method := range []string{"Attribute", "DMABuf", "Address"} {
		for nth := 1; ; nth++ {
			d, g := openGPU(t, gputest.Config{Devices: []gpu.DeviceInfo{{Major: 8}}})
			dev := soft(t)
			pd := get(dev.AllocPD())(t)
			unit := get(g.Granularity())(t)
			p := get(g.Reserve(3 * unit))(t)
			for i := range gpu.Ptr(3) {
				must(t, g.Map(p+i*gpu.Ptr(unit), unit, get(g.Create(unit, true))(t)))
			}
			called := d.Calls()[method]
			d.Fail(method, nth, &gpu.Error{Call: method, Name: "PLANTED", Code: 999, Device: 0})
			before := descriptors(t)
			err := registered(d, g, dev, pd, p, 3*unit)
			if after := descriptors(t); after != before {
				t.Errorf("%s %d: %d descriptors before, %d after", method, nth, before, after)
			}
			must(t, pd.Close()) // nothing registered is left
			if d.Calls()[method]-called < nth {
				must(t, err)
				break
			}
			// The first DMABuf is for the whole, which is then divided.
			if method == "DMABuf" && nth == 1 {
				must(t, err)
			} else if err == nil || !strings.Contains(err.Error(), method+" on GPU 0: PLANTED (999)") {
				t.Errorf("%s %d: %v", method, nth, err)
			}
		}
	}
}

func registered(d *gputest.Driver, g gpu.Context, dev *ibverbs.Context, pd *ibverbs.PD, p gpu.Ptr, n int) error {
	r, err := gdr.NewRegistrar(gdr.Config{Driver: d, GPU: g.Device(), Device: dev, Sys: noModules}, g, pd, nil)
	if err != nil {
		return err
	}
	m, err := r.Register(p, n, ibverbs.LocalWrite|ibverbs.RemoteWrite)
	if err != nil {
		return err
	}
	return m.Close()
}

func descriptors(t *testing.T) int { return len(get(os.ReadDir("/proc/self/fd"))(t)) }

func ExampleDecide() {
	driver := gputest.New(gputest.Config{})
	devices, _ := driver.Devices()
	soft := softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Network: softroce.OnSim(softroce.NewSim(softroce.SimConfig{}))})
	dev, err := ibverbs.Open("soft0", ibverbs.WithDrivers(soft))
	if err != nil {
		panic(err)
	}
	defer dev.Close()
	d, err := gdr.Decide(gdr.Config{Driver: driver, GPU: devices[0], Device: dev})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%v: %s\n", d.Way, d.Reason)
	// Output: DMA-BUF: the GPU, the kernel and the device have it
}

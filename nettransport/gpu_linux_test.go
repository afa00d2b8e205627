package nettransport

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purerdma/purerdma/gdr"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/ibverbs"
	devices "github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	core "github.com/purerdma/purerdma/transport"
	"github.com/purerdma/purerdma/transport/driver"
)

// soft is a device on a network in memory, which reaches GPU memory that can be mapped.
func soft() devices.Driver {
	return softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Network: softroce.OnSim(softroce.NewSim(softroce.SimConfig{}))})
}

// openGPU opens GPU 0 of a machine n times; nothing must be left there at the end.
func openGPU(t *testing.T, machine *gputest.Driver, n int) []gpu.Context {
	t.Helper()
	all := make([]gpu.Context, n)
	for i := range all {
		var err error
		if all[i], err = machine.Open(0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if left := machine.Left(); len(left) != 1 || left["contexts"] != n {
			t.Errorf("left on the GPU: %v", left)
		}
		for _, g := range all {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return all
}

// Where the devices reach the GPU's memory the buffers lie there, and else in host memory that the GPU reaches; the data arrives, by all
// protocols, and the query and the log, once a NIC, say which it is and why.
func TestNetOfGPUs(t *testing.T) {
	no := false
	old := []gpu.DeviceInfo{{Major: 7}}
	for name, c := range map[string]struct {
		fabric     devices.Driver
		machine    gputest.Config
		gdr        gdr.Config
		send, recv [driver.Protocols]bool // in GPU memory
		flush      bool
		why        string
	}{
		"GPUDirect": {fabric: soft(), send: [3]bool{false, true, true}, recv: [3]bool{true, true, true},
			why: "DMA-BUF: the GPU, the kernel and the device have it"},
		"GPUDirect, a GPU that needs flushes": {fabric: soft(), machine: gputest.Config{Devices: old, Attributes: map[gpu.Attribute]int{gpu.GDRWritesOrdering: 0}},
			send: [3]bool{false, true, true}, recv: [3]bool{true, true, true}, flush: true, why: "DMA-BUF: the GPU, the kernel and the device have it"},
		"memory that cannot be mapped": {fabric: soft(), machine: gputest.Config{OpaqueDMABuf: true},
			why: "staged through pinned host memory: DMA-BUF was refused"},
		"a device without DMA-BUF": {fabric: memdriver.New(memdriver.Config{}), why: "staged through pinned host memory: no DMA-BUF: DMA-BUF registration is not supported"},
		"switched off":             {fabric: soft(), gdr: gdr.Config{Never: true}, why: "staged through pinned host memory: GPUDirect RDMA is switched off"},
		"no sending from GPU memory": {fabric: soft(), gdr: gdr.Config{AllowRead: &no}, recv: [3]bool{true, true, true},
			why: "sends are staged through pinned host memory: sending from GPU memory is switched off; receives by DMA-BUF"},
	} {
		t.Run(name, func(t *testing.T) {
			const n, channels = 2, 2
			machine := gputest.New(c.machine)
			gpus := openGPU(t, machine, n)
			var log lines
			r := newRanksWith(t, n, channels, c.fabric, unchanged, func(rank int, config *Config) {
				config.GPU, config.GDR, config.Log = gpus[rank], c.gdr, slog.New(slog.NewTextHandler(&log, nil))
				config.GDR.Driver = machine
			})
			why := ringOfRanks(t, r, n, channels)
			if !strings.HasPrefix(why.Reason, c.why) {
				t.Errorf("the query says %q, want %q", why.Reason, c.why)
			}
			for _, end := range []struct {
				core.End
				want [driver.Protocols]bool
			}{{core.End{Peer: 1, Send: true}, c.send}, {core.End{Peer: 1}, c.recv}} {
				conn := r.comms[0].Connector(end.End).Conn()
				for p := range driver.Protocol(driver.Protocols) {
					info, err := conn.GPU.Context.Address(conn.GPU.Buffers[p])
					if err != nil || info.Device != end.want[p] || (conn.Buffers[p] == nil) != end.want[p] {
						t.Errorf("%v, %v: in GPU memory: %v, %v", end.End, p, info.Device, err)
					}
				}
				for what, p := range map[string]gpu.Ptr{"head": conn.GPU.Head, "tail": conn.GPU.Tail, "sizes": conn.GPU.FIFO} {
					if info, err := conn.GPU.Context.Address(p); err != nil || info.Device || info.Len == 0 {
						t.Errorf("%v: %s at %#x is %+v, %v", end.End, what, p, info, err)
					}
				}
			}
			if e := r.comms[0].Connector(core.End{Peer: 1}).(*end); e.flush != c.flush || e.receiver.flushes != c.flush {
				t.Errorf("what is received is flushed: %v, want %v", e.flush, c.flush)
			}
			// Each rank has one NIC.
			if got := log.with("data of the GPU over the network"); got != n {
				t.Errorf("the log says it %d times:\n%s", got, &log)
			}
		})
	}
}

// A message goes from memory of one GPU, registered by its address, into that of another.
func TestRegMRGPU(t *testing.T) {
	machine := gputest.New(gputest.Config{Devices: make([]gpu.DeviceInfo, 2)})
	g := openGPU(t, machine, 2)
	f := softFabric(t)
	config := Config{GPU: g[0], GDR: gdr.Config{Driver: machine}}
	p := connect(t, f, config, config)
	const size, from, to = 70_001, 4099, 5
	src, dst := alloc(t, g[0], size+from), alloc(t, g[0], size+to)
	want := make([]byte, size)
	random(want, 1)
	if err := g[0].WriteTo(src+from, want); err != nil {
		t.Fatal(err)
	}
	smr, err := p.send.RegMRGPU(src+from, size)
	if err != nil {
		t.Fatal(err)
	}
	rmr, err := p.recv.RegMRGPU(dst+to, size)
	if err != nil {
		t.Fatal(err)
	}
	in, ok, err := p.recv.Irecv(rmr.Buffer(0, size, 1))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	var out Request
	for ok = false; !ok; {
		if out, ok, err = p.send.Isend(smr.Buffer(0, size, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(outcome(t, out), outcome(t, in)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, size)
	if err := g[0].ReadFrom(got, dst+to); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the bytes differ, %v", err)
	}
	if m, err := p.send.RegMRGPU(src, size+from+1<<20); err == nil || errors.Is(err, gdr.ErrStaged) {
		t.Errorf("more than there is was registered: %v, %v", m, err)
	}
	if err := errors.Join(smr.Close(), smr.Close(), rmr.Close(), g[0].Free(src), g[0].Free(dst)); err != nil {
		t.Error(err)
	}
}

func alloc(t *testing.T, g gpu.Context, n int) gpu.Ptr {
	t.Helper()
	p, err := g.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What cannot be registered as one piece says so: two allocations, a device that refuses, a transport without a GPU.
func TestRegMRGPURefuses(t *testing.T) {
	machine := gputest.New(gputest.Config{})
	g := openGPU(t, machine, 1)[0]
	config := Config{GPU: g, GDR: gdr.Config{Driver: machine}}
	unit, err := g.Granularity()
	if err != nil {
		t.Fatal(err)
	}
	at, err := g.Reserve(2 * unit)
	if err != nil {
		t.Fatal(err)
	}
	for i := range gpu.Ptr(2) {
		a, err := g.Create(unit, true)
		if err == nil {
			err = errors.Join(g.Map(at+i*gpu.Ptr(unit), unit, a), g.Release(a))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p := connect(t, softFabric(t), config, Config{})
	if m, err := p.send.RegMRGPU(at, 2*unit); err == nil || !strings.Contains(err.Error(), "of 2 allocations") {
		t.Errorf("%v, %v", m, err)
	}
	if m, err := p.recv.RegMRGPU(at, unit); err == nil || !strings.Contains(err.Error(), "Config.GPU is nil") {
		t.Errorf("%v, %v", m, err)
	}
	plain := connect(t, newFabric(t, 1, 1, memdriver.Config{}, nil), config, Config{})
	if m, err := plain.send.RegMRGPU(at, unit); !errors.Is(err, gdr.ErrStaged) {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := New(Config{GPU: g}); err == nil || !strings.Contains(err.Error(), "GDR.Driver") {
		t.Error(err)
	}
	for i := range gpu.Ptr(2) {
		if err := g.Unmap(at+i*gpu.Ptr(unit), unit); err != nil {
			t.Error(err)
		}
	}
	if err := g.Unreserve(at, 2*unit); err != nil {
		t.Error(err)
	}
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) with(text string) int { return strings.Count(l.String(), text) }

// Each call of the GPU's driver fails once, at each time that it comes: the error, or the reason where the seam refuses, names the call and
// the GPU, and nothing is left on the GPU or on the device.
func TestEachGPUCallFails(t *testing.T) {
	methods := []string{"Attribute", "DMABuf", "Address", "Alloc", "Free", "NewStream", "Fill", "Synchronize", "CloseStream", "RegisterHost", "UnregisterHost"}
	for name, c := range map[string]gputest.Config{"GPUDirect": {}, "staged": {OpaqueDMABuf: true}} {
		for _, method := range methods {
			for nth := 1; ; nth++ {
				machine := gputest.New(c)
				machine.Fail(method, nth, &gpu.Error{Call: method, Name: "PLANTED", Code: 999, Device: 0})
				err := seamPair(t, machine)
				what := fmt.Sprintf("%s, %s %d", name, method, nth)
				if left := machine.Left(); len(left) > 0 {
					t.Errorf("%s: left on the GPU: %v", what, left)
				}
				if machine.Calls()[method] < nth {
					if err != nil {
						t.Errorf("%s: %v", what, err)
					}
					break // it did not come that often
				}
				if err == nil && method == "Address" && c.OpaqueDMABuf {
					continue // what the device refuses anyway is not divided
				}
				if err == nil || !strings.Contains(err.Error(), method+" on GPU 0: PLANTED (999)") {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
	}
}

// seamPair connects two ends behind the seam and closes them. What was left on the device is an error.
func seamPair(t *testing.T, machine *gputest.Driver) (err error) {
	after := func(f func() error) { err = errors.Join(err, f()) }
	dev, err := ibverbs.Open("soft0", ibverbs.WithDrivers(soft()), ibverbs.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer after(func() error {
		if left := dev.Objects(); len(left) > 0 {
			t.Errorf("left on the device: %v", left)
		}
		return dev.Close()
	})
	g, err := machine.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer after(g.Close)
	net, err := New(Config{NICs: []NIC{{{Device: dev}}}, Net: localNet(), Log: quiet, GPU: g, GDR: gdr.Config{Driver: machine}})
	if err != nil {
		return err
	}
	defer after(net.Close)
	s := net.Driver()
	infos := [2]driver.PeerInfo{{}, {Rank: 1}}
	var ends [2]driver.Connector
	var blobs [2]driver.Blob
	for i := range infos {
		if err := s.Describe(&infos[i]); err != nil {
			return err
		}
	}
	for i := range ends {
		if v := s.CanConnect(&infos[i], &infos[1-i]); !v.OK {
			return errors.New(v.Reason)
		}
		if ends[i], err = s.Setup(driver.Request{Send: i == 0, Self: &infos[i], Peer: &infos[1-i], Buffers: [driver.Protocols]int{8 << 10, 8 << 10, 8 << 10}}, &blobs[i]); err != nil {
			return err
		}
		defer after(ends[i].Close)
	}
	var done [2]bool
	for limit := time.Now().Add(20 * time.Second); !done[0] || !done[1]; time.Sleep(20 * time.Microsecond) {
		for i := range ends {
			if done[i], err = ends[i].Connect(&blobs[1-i]); err != nil {
				return err
			}
		}
		if time.Now().After(limit) {
			t.Fatalf("not connected: %v", done)
		}
	}
	return nil
}

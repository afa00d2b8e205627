package p2ptransport_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/copies"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/gpu/kernels"
	"github.com/purerdma/purerdma/gpu/kernels/kernelstest"
	"github.com/purerdma/purerdma/internal/leaktest"
	"github.com/purerdma/purerdma/p2ptransport"
	"github.com/purerdma/purerdma/p2ptransport/p2ptest"
	"github.com/purerdma/purerdma/topo"
	"github.com/purerdma/purerdma/transport/driver"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestSuite(t *testing.T) {
	d := gputest.New(gputest.Config{Kernels: kernelstest.Kernels()})
	p2ptest.Run(t, p2ptest.Config{Driver: d, TwoProcesses: true, Counted: true, Biggest: 300005})
	if left := d.Left(); len(left) > 0 {
		t.Errorf("left on the GPU: %v", left)
	}
}

// Processes that take turns on the GPU.
func TestSuiteWithoutMPS(t *testing.T) {
	d := gputest.New(gputest.Config{Kernels: kernelstest.Kernels(), Attributes: map[gpu.Attribute]int{gpu.SharedByProcesses: 0}})
	p2ptest.Run(t, p2ptest.Config{Driver: d, Counted: true, Biggest: 300005})
	if left := d.Left(); len(left) > 0 {
		t.Errorf("left on the GPU: %v", left)
	}
}

var _ driver.Transport = (*p2ptransport.Transport)(nil)

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

// machine is four GPUs, of which 2 and 3 are instances of one.
func machine(peers func(a, b int) bool) *gputest.Driver {
	bus := func(s string) gpu.BusID {
		b, err := gpu.ParseBusID(s)
		if err != nil {
			panic(err)
		}
		return b
	}
	return gputest.New(gputest.Config{Peers: peers, Devices: []gpu.DeviceInfo{
		{UUID: "GPU-00000000-0000-0000-0000-00000000000a", PCI: bus("0000:01:00.0")},
		{UUID: "GPU-00000000-0000-0000-0000-00000000000b", PCI: bus("0000:02:00.0")},
		{UUID: "MIG-00000000-0000-0000-0000-00000000000c", PCI: bus("0000:03:00.0"), MIG: true},
		{UUID: "MIG-00000000-0000-0000-0000-00000000000d", PCI: bus("0000:03:00.0"), MIG: true},
	}})
}

func TestCanConnect(t *testing.T) {
	all := func(int, int) bool { return true }
	far := get(topo.Read(sysfs()))(t)
	must(t, far.AddGPUs(sysfs(), machine(all)))
	for name, c := range map[string]struct {
		peers  func(a, b int) bool
		attrs  map[gpu.Attribute]int
		noIPC  bool
		config p2ptransport.Config
		device int
		peer   int // device of the peer
		change func(self, peer *driver.PeerInfo)
		ok     bool
		reason string
		// missing is a driver that lacks the first attribute asked for.
		missing bool
		without string // what the reason does not say
	}{
		"two GPUs":                      {peer: 1, ok: true, reason: "DIRECT"},
		"the same GPU":                  {ok: true, reason: "DIRECT, the same GPU"},
		"the same GPU, switched off":    {config: p2ptransport.Config{Disable: true}, ok: true, reason: "same GPU"},
		"switched off":                  {config: p2ptransport.Config{Disable: true}, peer: 1, reason: "NCCL_P2P_DISABLE"},
		"no peer access":                {peers: func(a, b int) bool { return false }, peer: 1, reason: "do not reach"},
		"peer access one way":           {peers: func(a, b int) bool { return a < b }, peer: 1, reason: "do not reach"},
		"two instances":                 {peers: func(a, b int) bool { return false }, device: 2, peer: 3, reason: "do not reach"},
		"too far":                       {config: p2ptransport.Config{System: far}, peer: 1, reason: "SYS lies between"},
		"far, allowed":                  {config: p2ptransport.Config{System: far, Level: topo.SYS}, peer: 1, ok: true, reason: "SYS"},
		"peer's GPU hidden":             {peer: 1, change: func(_, p *driver.PeerInfo) { p.GPUUUID[0], p.BusID = 0xff, 0x99000 }, ok: true, reason: "DIRECT, the peer's GPU is hidden"},
		"peer's GPU renumbered":         {peer: 1, change: func(_, p *driver.PeerInfo) { p.BusID = 1 }, ok: true},
		"peer without GPU":              {change: func(_, p *driver.PeerInfo) { p.ComputeCap = 0 }, reason: "one of the ranks has no GPU"},
		"none has a GPU":                {change: func(s, p *driver.PeerInfo) { s.ComputeCap, p.ComputeCap = 0, 0 }, reason: "neither rank"},
		"different hosts":               {change: func(_, p *driver.PeerInfo) { p.HostHash++ }, reason: "different hosts"},
		"another process":               {change: func(_, p *driver.PeerInfo) { p.PIDHash++ }, ok: true, reason: "CUMEM"},
		"another boot":                  {change: func(_, p *driver.PeerInfo) { p.PIDHash++; p.BootID[0] = 1 }, reason: "different boots"},
		"another user":                  {change: func(_, p *driver.PeerInfo) { p.PIDHash++; p.UID++ }, reason: "different users"},
		"another network namespace":     {change: func(_, p *driver.PeerInfo) { p.PIDHash++; p.NetNS++ }, reason: "network namespaces"},
		"another namespace, legacy":     {attrs: map[gpu.Attribute]int{gpu.HasVMM: 0}, change: func(_, p *driver.PeerInfo) { p.PIDHash++; p.NetNS++ }, ok: true},
		"nothing shared, one process":   {attrs: map[gpu.Attribute]int{gpu.HasVMM: 0}, noIPC: true, ok: true},
		"nothing shared, two processes": {attrs: map[gpu.Attribute]int{gpu.HasVMM: 0}, noIPC: true, change: func(_, p *driver.PeerInfo) { p.PIDHash++ }, reason: "too old to share memory by descriptor, and refuses a legacy handle: cuIpcGetMemHandle"},
		"driver too old":                {attrs: map[gpu.Attribute]int{gpu.HasFDHandles: 0}, peer: 1, change: func(_, p *driver.PeerInfo) { p.PIDHash++ }, ok: true, reason: "by legacy handle: the GPU's driver is too old"},
		"driver too old, no attribute":  {missing: true, peer: 1, change: func(_, p *driver.PeerInfo) { p.PIDHash++ }, ok: true, reason: "by legacy handle: the GPU's driver is too old"},
		"descriptors switched off":      {config: p2ptransport.Config{NoCUMEM: true}, peer: 1, change: func(_, p *driver.PeerInfo) { p.PIDHash++ }, ok: true, reason: "IPC, by legacy handle: NCCL_CUMEM_ENABLE=0"},
		"one GPU, MPS":                  {change: func(_, p *driver.PeerInfo) { p.PIDHash++ }, ok: true, reason: "the same GPU", without: "take turns"},
		"one GPU, no MPS":               {attrs: map[gpu.Attribute]int{gpu.SharedByProcesses: 0}, change: func(_, p *driver.PeerInfo) { p.PIDHash++ }, ok: true, reason: "take turns without MPS: copies move the data"},
		"one GPU, no MPS, one process":  {attrs: map[gpu.Attribute]int{gpu.SharedByProcesses: 0}, ok: true, reason: "the same GPU", without: "take turns"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.peers == nil {
				c.peers = all
			}
			d := machine(c.peers)
			if c.attrs != nil {
				d = gputest.New(gputest.Config{Attributes: c.attrs, Devices: get(machine(all).Devices())(t)})
			}
			mine, theirs := info(t, d, c.device, 0), info(t, d, c.peer, 1)
			if c.change != nil {
				c.change(&mine, &theirs)
			}
			c.config.Driver, c.config.GPU = d, get(d.Open(c.device))(t)
			if c.noIPC {
				d.Fail("IPCHandle", 1, &gpu.Error{Call: "cuIpcGetMemHandle", Name: "CUDA_ERROR_NOT_SUPPORTED", Code: 801})
			}
			if c.missing {
				d.Fail("Attribute", 1, &gpu.Error{Call: "cuDeviceGetAttribute", Missing: true})
			}
			tr := get(p2ptransport.New(c.config))(t)
			v := tr.CanConnect(&mine, &theirs)
			if v.OK != c.ok || !strings.Contains(v.Reason, c.reason) || !v.OK && v.Reason == "" || c.without != "" && strings.Contains(v.Reason, c.without) {
				t.Errorf("%v, %q; want %v, %q", v.OK, v.Reason, c.ok, c.reason)
			}
			if back := tr.CanConnect(&theirs, &mine); c.device == c.peer && back.OK != v.OK {
				t.Errorf("the other way it is %v, %q", back.OK, back.Reason)
			}
			must(t, tr.Close())
			must(t, c.config.GPU.Close())
			if left := d.Left(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// info is what a rank on a device tells of itself.
func info(t *testing.T, d *gputest.Driver, device, rank int) driver.PeerInfo {
	c := get(d.Open(device))(t)
	defer c.Close()
	tr := get(p2ptransport.New(p2ptransport.Config{Driver: d, GPU: c, NoCUMEM: true}))(t)
	p := driver.PeerInfo{Version: driver.ProtocolVersion, Rank: rank, HostHash: 7, PIDHash: 8, UID: uint32(os.Getuid())}
	must(t, tr.Describe(&p))
	must(t, tr.Close())
	return p
}

// triangle is three GPUs of which NVLink joins 0 and 1 over 2, and what lies between them.
func triangle(t *testing.T, c gputest.Config) (*gputest.Driver, *topo.System) {
	bus := func(n uint8) gpu.BusID { return gpu.BusID{Bus: n, Valid: true} }
	to := func(n uint8) gpu.Link { return gpu.Link{Kind: "NVLink", To: bus(n), ToGPU: true, Count: 2} }
	c.Devices = []gpu.DeviceInfo{{PCI: bus(1)}, {PCI: bus(2)}, {PCI: bus(3)}}
	c.Links = map[int][]gpu.Link{0: {to(3)}, 1: {to(3)}, 2: {to(1), to(2)}}
	if c.Peers == nil {
		c.Peers = func(a, b int) bool { return a+b != 1 }
	}
	d := gputest.New(c)
	s := get(topo.Read(sysfs()))(t)
	must(t, s.AddGPUs(sysfs(), d))
	return d, s
}

// NVLink joins the ranks' GPUs over a third: both pieces lie there, and kernels move messages through them.
func TestIntermediate(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		d, system := triangle(t, gputest.Config{Kernels: kernelstest.Kernels()})
		c := pairing{noCUMEM: legacy, two: true, system: system}
		c.use = func(a, b driver.Connector, blobs [2]driver.Blob) error {
			for i, blob := range blobs {
				if want := []byte{0, 0, 0, 3}; !bytes.Equal(blob[96:100], want) {
					t.Errorf("the piece of rank %d is on GPU %x, want %x", i, blob[96:100], want)
				}
			}
			for _, conn := range []driver.Connector{a, b} {
				g := conn.Conn().GPU
				info := get(g.Context.Address(g.Head))(t)
				if legacy && info.Index != 2 || g.Read || g.NoKernels != "" {
					t.Errorf("head is on GPU %d, %+v", info.Index, g)
				}
			}
			return transfer(a, b)
		}
		must(t, pair(d, c))
		if left := d.Left(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

func TestIntermediateSelection(t *testing.T) {
	for name, c := range map[string]struct {
		peers  func(a, b int) bool
		config p2ptransport.Config
		hide   bool // the GPU between
		ok     bool
		reason string
	}{
		"over NVLink":       {ok: true, reason: "INTERMEDIATE, NVB, on GPU 2 between them"},
		"switched off":      {config: p2ptransport.Config{NoIntermediate: true}, reason: "NCCL_NVB_DISABLE=1"},
		"level":             {config: p2ptransport.Config{Level: topo.NVL}, reason: "NVB lies between"},
		"no access":         {peers: func(a, b int) bool { return a+b != 1 && a != 1 }, reason: "GPU 1 does not reach the memory of GPU 2 between them"},
		"hidden in between": {hide: true, reason: "0000:03:00.0, is hidden"},
	} {
		t.Run(name, func(t *testing.T) {
			d, system := triangle(t, gputest.Config{Peers: c.peers})
			mine, theirs := info(t, d, 0, 0), info(t, d, 1, 1)
			if c.hide {
				d = gputest.New(gputest.Config{Devices: get(d.Devices())(t)[:2]})
			}
			c.config.Driver, c.config.GPU, c.config.System = d, get(d.Open(0))(t), system
			tr := get(p2ptransport.New(c.config))(t)
			if v := tr.CanConnect(&mine, &theirs); v.OK != c.ok || !strings.Contains(v.Reason, c.reason) {
				t.Errorf("%v, %q; want %v, %q", v.OK, v.Reason, c.ok, c.reason)
			}
			must(t, tr.Close())
			must(t, c.config.GPU.Close())
		})
	}
}

// Each call of the driver fails once, at each time that it comes, during set-up, transfer and end: the error names it and the GPU, and
// nothing is left.
func TestEachCallFails(t *testing.T) {
	methods := []string{"Devices", "Attribute", "CanAccessPeer", "Alloc", "Free", "IPCHandle", "Granularity", "Create", "Reserve", "Map", "NewStream", "Fill",
		"Synchronize", "CloseStream", "Export", "Import", "Unmap", "Unreserve", "Release", "EnablePeer", "Load", "Launch", "Unload", "WriteTo", "ReadFrom",
		"NewEvent", "Record", "Done", "Copy", "CloseEvent"}
	for _, m := range []struct{ noDirect, noCUMEM, two, triangle bool }{{false, false, false, false}, {true, false, false, false}, {false, true, false, false},
		{false, true, true, false}, {false, false, true, false}, {false, false, true, true}, {false, true, true, true}} {
		for _, method := range methods {
			for nth := 1; nth <= 1 || !testing.Short(); nth++ {
				name := fmt.Sprintf("%+v, %s %d", m, method, nth)
				d, c := gputest.New(gputest.Config{Devices: make([]gpu.DeviceInfo, 2), Kernels: kernelstest.Kernels()}), pairing{noDirect: m.noDirect, noCUMEM: m.noCUMEM, two: m.two}
				if m.triangle {
					d, c.system = triangle(t, gputest.Config{Kernels: kernelstest.Kernels()})
				}
				c.use = func(a, b driver.Connector, _ [2]driver.Blob) error { return transfer(a, b) }
				before := descriptors(t)
				d.Fail(method, nth, &gpu.Error{Call: method, Name: "PLANTED", Code: 999, Device: 1})
				called := d.Calls()[method] // the topology asks, too
				err := pair(d, c)
				if left := d.Left(); len(left) > 0 {
					t.Errorf("%s: left %v", name, left)
				}
				if after := descriptors(t); after != before {
					t.Errorf("%s: %d descriptors before, %d after", name, before, after)
				}
				if d.Calls()[method]-called < nth {
					break // it did not come that often
				}
				var e *gpu.Error
				if !(method == "IPCHandle" && nth <= 2) && (!errors.As(err, &e) || e.Code != 999) && (method != "Export" || err == nil || !strings.Contains(err.Error(), "PLANTED")) {
					t.Errorf("%s: %v", name, err)
				}
				if err != nil && !(strings.Contains(err.Error(), method+" on GPU 1: PLANTED (999)")) {
					t.Errorf("%s: the error does not name the call and the GPU: %v", name, err)
				}
			}
		}
	}
}

// transfer moves a message by kernels from a to b, and one straight by copies.
func transfer(a, b driver.Connector) (err error) {
	const n = 20_000
	var ends [2]struct {
		set    *kernels.Set
		stream gpu.Stream
		data   gpu.Ptr
	}
	want := bytes.Repeat([]byte{3, 1, 4, 1, 5}, n/5)
	after := func(f func() error) { err = errors.Join(err, f()) }
	for i, conn := range []driver.Connector{a, b} {
		c, e := conn.Conn().GPU.Context, &ends[i]
		if e.set, err = kernels.Load(c); err != nil {
			return err
		}
		defer after(e.set.Close)
		if e.data, err = c.Alloc(2*n + 4096); err != nil {
			return err
		}
		defer after(func() error { return c.Free(e.data) })
		if e.stream, err = c.NewStream(); err != nil {
			return err
		}
		defer after(func() error { return c.CloseStream(e.stream) })
		if err := errors.Join(c.WriteTo(e.data, append(append([]byte(nil), want...), make([]byte, n+4096)...))); err != nil {
			return err
		}
	}
	channel := func(i int, g *driver.GPUConn, at gpu.Ptr) []kernels.Channel {
		return []kernels.Channel{{Data: ends[i].data + at, Bytes: n, Buffer: g.Buffers[driver.Simple], Head: g.Head, Tail: g.Tail, Step: g.Steps[driver.Simple]}}
	}
	out, in := a.Conn().GPU, b.Conn().GPU
	if err := ends[0].set.SendSimple(ends[0].stream, ends[0].data+2*n, channel(0, out, 0)); err != nil {
		return err
	}
	if err := ends[1].set.RecvSimple(ends[1].stream, ends[1].data+2*n, channel(1, in, n)); err != nil {
		return err // the kernel that sends ends with its stream
	}
	if err := errors.Join(out.Context.Synchronize(ends[0].stream), in.Context.Synchronize(ends[1].stream)); err != nil {
		return err
	}
	e, err := copies.New(in.Context, 2)
	if err != nil {
		return err
	}
	defer after(e.Close)
	if _, _, err := e.Start(ends[1].data, ends[1].data+n, n); err != nil {
		return err
	}
	if err := e.Wait(); err != nil {
		return err
	}
	got := make([]byte, n)
	if err := in.Context.ReadFrom(got, ends[1].data); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("the bytes differ")
	}
	return nil
}

func descriptors(t *testing.T) int { return len(get(os.ReadDir("/proc/self/fd"))(t)) }

// pairing is how two ranks of this process are connected, and what they do then.
type pairing struct {
	noDirect, noCUMEM, two bool
	system                 *topo.System
	use                    func(a, b driver.Connector, blobs [2]driver.Blob) error
}

// pair connects them and takes all away again.
func pair(d *gputest.Driver, p pairing) (err error) {
	var all []func() error
	defer func() {
		for i := len(all) - 1; i >= 0; i-- {
			err = errors.Join(err, all[i]())
		}
	}()
	type side struct {
		t    *p2ptransport.Transport
		info driver.PeerInfo
		conn driver.Connector
		blob driver.Blob
	}
	sides := make([]side, 2)
	for i := range sides {
		device := 0
		if p.two {
			device = i
		}
		c, err := d.Open(device)
		if err != nil {
			return err
		}
		all = append(all, c.Close)
		s := &sides[i]
		if s.t, err = p2ptransport.New(p2ptransport.Config{Driver: d, GPU: c, NoDirect: p.noDirect, NoCUMEM: p.noCUMEM, System: p.system,
			Log: slog.New(slog.DiscardHandler)}); err != nil {
			return err
		}
		all = append(all, s.t.Close)
		s.info = driver.PeerInfo{Version: driver.ProtocolVersion, Rank: i, UID: uint32(os.Getuid())}
		if err := s.t.Describe(&s.info); err != nil {
			return err
		}
	}
	for i := range sides {
		s := &sides[i]
		if s.conn, err = s.t.Setup(driver.Request{Send: i == 0, Self: &s.info, Peer: &sides[1-i].info,
			Buffers: [driver.Protocols]int{driver.LL: 65536, driver.Simple: 65536}}, &s.blob); err != nil {
			return err
		}
		all = append(all, s.conn.Close)
	}
	for i := range sides {
		for done := false; !done; time.Sleep(time.Microsecond) {
			if done, err = sides[i].conn.Connect(&sides[1-i].blob); err != nil {
				return err
			}
		}
	}
	return p.use(sides[0].conn, sides[1].conn, [2]driver.Blob{sides[0].blob, sides[1].blob})
}

// What a peer's blob says is checked, and strangers get nothing at the socket.
func TestHostile(t *testing.T) {
	d := machine(func(int, int) bool { return true })
	c := get(d.Open(0))(t)
	tr := get(p2ptransport.New(p2ptransport.Config{Driver: d, GPU: c, NoDirect: true}))(t)
	self, peer := driver.PeerInfo{Rank: 0, UID: uint32(os.Getuid())}, driver.PeerInfo{Rank: 1, UID: uint32(os.Getuid())}
	must(t, tr.Describe(&self))
	must(t, tr.Describe(&peer))
	setup := func(send bool, self, peer *driver.PeerInfo) (driver.Connector, driver.Blob) {
		var b driver.Blob
		return get(tr.Setup(driver.Request{Send: send, Self: self, Peer: peer, Buffers: [driver.Protocols]int{driver.Simple: 65536}}, &b))(t), b
	}
	theirs, good := setup(false, &peer, &self)
	for name, damage := range map[string]func(b *driver.Blob){
		"zero":            func(b *driver.Blob) { *b = driver.Blob{} },
		"rank":            func(b *driver.Blob) { b[0] = 9 },
		"read":            func(b *driver.Blob) { b[4] = 2 },
		"the other way":   func(b *driver.Blob) { b[4] = 1 },
		"token":           func(b *driver.Blob) { b[8]++ },
		"size":            func(b *driver.Blob) { b[20]++ },
		"kind 99":         func(b *driver.Blob) { b[88] = 99 },
		"GPU":             func(b *driver.Blob) { b[96]++ },
		"socket":          func(b *driver.Blob) { b[195]++ },
		"no socket":       func(b *driver.Blob) { clear(b[192:]) },
		"a file's socket": func(b *driver.Blob) { clear(b[192:]); copy(b[192:], "/nowhere") },
	} {
		t.Run(name, func(t *testing.T) {
			mine, _ := setup(true, &self, &peer)
			b := good
			damage(&b)
			var err error
			for done := false; !done && err == nil; time.Sleep(time.Microsecond) {
				done, err = mine.Connect(&b)
			}
			if err == nil {
				t.Error("connected")
			} else if !strings.Contains(err.Error(), "rank 1") {
				t.Errorf("%v does not name the rank", err)
			}
			must(t, mine.Close())
		})
	}
	end := 192
	for end < len(good) && good[end] != 0 {
		end++
	}
	for name, words := range map[string]string{"nothing": "", "too little": "abc", "a wrong token": "12345678", "too much": strings.Repeat("x", 1000)} {
		nc := get(net.Dial("unixpacket", string(good[192:end])))(t)
		if words != "" {
			_, _ = nc.Write([]byte(words))
		} else {
			must(t, nc.(*net.UnixConn).CloseWrite())
		}
		oob := make([]byte, 100)
		answer := make([]byte, 300)
		n, rights, _, _, err := nc.(*net.UnixConn).ReadMsgUnix(answer, oob)
		if err == nil && (rights > 0 || n > 0 && answer[0] != 2) {
			t.Errorf("%s: %q and %d bytes of rights came back", name, answer[:n], rights)
		}
		must(t, nc.Close())
	}
	must(t, theirs.Close())
	must(t, tr.Close())
	must(t, c.Close())
	if left := d.Left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

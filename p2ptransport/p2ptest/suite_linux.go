// Package p2ptest is what the P2P transport must do on any driver of a GPU, as a test.
package p2ptest

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/kernels"
	"github.com/purerdma/purerdma/p2ptransport"
	"github.com/purerdma/purerdma/transport/driver"
)

// childVariable tells the second process which case it plays.
const childVariable = "P2P_TEST_CHILD"

// Config is what the suite runs on.
type Config struct {
	Driver gpu.Driver
	Device int
	// TwoProcesses tells that kernels of two processes on one GPU run beside each
	// other: the fake's do, NVIDIA's under MPS. Else copies move the data between two
	// processes, and the connections say so.
	TwoProcesses bool
	// Counted tells that the driver opens no descriptors of its own, so that they can
	// be counted.
	Counted bool
	// Biggest is the bytes of the largest message.
	Biggest int
	// Used is how many bytes of the GPU all processes use, by somebody else's count; nil is nobody's.
	Used func() (uint64, error)
}

// Run runs the suite; like the suite of gpu/drivertest it starts the test's program
// again.
func Run(t *testing.T, c Config) {
	if what := os.Getenv(childVariable); what != "" {
		child(t, c, what)
		return
	}
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) { oneProcess(t, c, m) })
		if m.alone {
			continue
		}
		t.Run(m.name+", two processes", func(t *testing.T) { twoProcesses(t, c, m) })
		t.Run(m.name+", the sender is killed", func(t *testing.T) { killed(t, c, m) })
	}
}

// mode is how the ends are to meet.
type mode struct {
	name     string
	noDirect bool
	noCUMEM  bool
	read     bool
	alone    bool // no second process
}

var modes = []mode{
	{name: "DIRECT", alone: true},
	{name: "DIRECT, read", alone: true, read: true},
	{name: "DIRECT, legacy", alone: true, noCUMEM: true},
	{name: "CUMEM", noDirect: true},
	{name: "CUMEM, read", noDirect: true, read: true},
	{name: "IPC", noDirect: true, noCUMEM: true},
}

var buffers = [driver.Protocols]int{driver.LL: 64 << 10, driver.LL128: 0, driver.Simple: 256 << 10}

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

// rank is one end.
type rank struct {
	c    gpu.Context
	t    *p2ptransport.Transport
	info driver.PeerInfo
	conn driver.Connector
	blob driver.Blob
}

func newRank(t *testing.T, c Config, m mode, number int) *rank {
	r := &rank{c: get(c.Driver.Open(c.Device))(t), info: driver.PeerInfo{Version: driver.ProtocolVersion, Rank: number, HostHash: 1,
		PIDHash: uint64(os.Getpid()), UID: uint32(os.Getuid())}}
	r.t = get(p2ptransport.New(p2ptransport.Config{Driver: c.Driver, GPU: r.c, NoDirect: m.noDirect, NoCUMEM: m.noCUMEM, Read: &m.read}))(t)
	must(t, r.t.Describe(&r.info))
	return r
}

func (r *rank) setup(t *testing.T, send bool, peer *driver.PeerInfo) {
	if v := r.t.CanConnect(&r.info, peer); !v.OK {
		t.Fatalf("rank %d: %s", r.info.Rank, v.Reason)
	}
	r.conn = get(r.t.Setup(driver.Request{Send: send, Self: &r.info, Peer: peer, Buffers: buffers}, &r.blob))(t)
}

func (r *rank) connect(t *testing.T, in *driver.Blob) {
	for {
		done, err := r.conn.Connect(in)
		must(t, err)
		if done {
			return
		}
		runtime.Gosched()
	}
}

func (r *rank) close(t *testing.T) {
	must(t, r.conn.Close())
	must(t, r.conn.Close())
	must(t, r.t.Close())
	must(t, r.t.Close())
	must(t, r.c.Close())
}

// oneProcess connects two ranks of this process and moves messages.
func oneProcess(t *testing.T, c Config, m mode) {
	if m.noDirect && m.noCUMEM {
		t.Skip("a legacy handle does not open where it was made")
	}
	before := descriptors(t)
	a, b := newRank(t, c, m, 0), newRank(t, c, m, 1)
	a.setup(t, true, &b.info)
	b.setup(t, false, &a.info)
	a.connect(t, &b.blob)
	b.connect(t, &a.blob)
	sa, sb := newSide(t, c, a), newSide(t, c, b)
	for i, n := range sizes(c) {
		for _, p := range []driver.Protocol{driver.Simple, driver.LL} {
			sa.fill(t, n, i)
			sa.send(t, p, n)
			sb.recv(t, p, n)
			sa.wait(t)
			sb.wait(t)
			sb.check(t, n, i)
		}
	}
	sa.close(t)
	sb.close(t)
	a.close(t)
	for limit := time.Now().Add(10 * time.Second); m.noDirect && time.Now().Before(limit) && b.conn.(driver.Watcher).Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	if err := b.conn.(driver.Watcher).Err(); m.noDirect && err != io.EOF {
		t.Errorf("the peer has closed: %v", err)
	}
	b.close(t)
	// The driver keeps some of its own at its first use.
	if after := descriptors(t); c.Counted && after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func sizes(c Config) []int {
	return []int{0, 1, 7, 8, 4096, buffers[driver.Simple], c.Biggest / 3, c.Biggest}
}

func descriptors(t *testing.T) int { return len(get(os.ReadDir("/proc/self/fd"))(t)) }

// side is what an end needs to move messages.
type side struct {
	r      *rank
	set    *kernels.Set
	stream gpu.Stream
	data   gpu.Ptr
	abort  gpu.Ptr
	step   uint64
}

func newSide(t *testing.T, c Config, r *rank) *side {
	s := &side{r: r, set: get(kernels.Load(r.c))(t), stream: get(r.c.NewStream())(t), data: get(r.c.Alloc(c.Biggest + 1<<20))(t), abort: get(r.c.Alloc(4096))(t)}
	must(t, r.c.WriteTo(s.abort, make([]byte, 8)))
	return s
}

func (s *side) close(t *testing.T) {
	must(t, s.set.Close())
	must(t, s.r.c.CloseStream(s.stream))
	must(t, s.r.c.Free(s.data))
	must(t, s.r.c.Free(s.abort))
}

func pattern(n, of int) []byte {
	b := make([]byte, n)
	v := uint32(of + 1)
	for i := range b {
		v = v*1664525 + 1013904223
		b[i] = byte(v >> 24)
	}
	return b
}

func (s *side) fill(t *testing.T, n, of int) { must(t, s.r.c.WriteTo(s.data, pattern(n, of))) }

func (s *side) check(t *testing.T, n, of int) {
	t.Helper()
	got := make([]byte, n)
	must(t, s.r.c.ReadFrom(got, s.data))
	if !bytes.Equal(got, pattern(n, of)) {
		t.Errorf("message %d of %d bytes differs", of, n)
	}
}

func (s *side) channel(p driver.Protocol, n int) []kernels.Channel {
	g := s.r.conn.Conn().GPU
	payload := g.Steps[p]
	if p == driver.LL {
		payload /= 2
	}
	c := kernels.Channel{Data: s.data, Bytes: n, Buffer: g.Buffers[p], Head: g.Head, Tail: g.Tail, First: s.step, Step: g.Steps[p]}
	s.step += kernels.Steps(n, payload)
	return []kernels.Channel{c}
}

func (s *side) send(t *testing.T, p driver.Protocol, n int) {
	f := s.set.SendSimple
	if p == driver.LL {
		f = s.set.SendLL
	}
	must(t, f(s.stream, s.abort, s.channel(p, n)))
}

func (s *side) recv(t *testing.T, p driver.Protocol, n int) {
	f := s.set.RecvSimple
	if p == driver.LL {
		f = s.set.RecvLL
	}
	must(t, f(s.stream, s.abort, s.channel(p, n)))
}

func (s *side) wait(t *testing.T) { must(t, s.r.c.Synchronize(s.stream)) }

// protocols is what can move data between two processes: by copies SIMPLE's buffer
// alone. The connection must know.
func (s *side) protocols(t *testing.T, c Config) []driver.Protocol {
	t.Helper()
	why := s.r.conn.Conn().GPU.NoKernels
	if (why == "") != c.TwoProcesses {
		t.Errorf("kernels of two processes run beside each other: %v, the connection says %q", c.TwoProcesses, why)
	}
	if c.TwoProcesses {
		return []driver.Protocol{driver.Simple, driver.LL}
	}
	return []driver.Protocol{driver.Simple}
}

// copied copies k bytes from off on by the slots of SIMPLE's buffer, out of it or
// into it.
func (s *side) copied(t *testing.T, off, k int, in bool) {
	g := s.r.conn.Conn().GPU
	for at := 0; at < k; at += g.Steps[driver.Simple] {
		n := min(k-at, g.Steps[driver.Simple])
		data, slot := s.data+gpu.Ptr(off+at), g.Buffers[driver.Simple]+gpu.Ptr(at)
		if in {
			must(t, s.r.c.Copy(slot, data, n, s.stream))
		} else {
			must(t, s.r.c.Copy(data, slot, n, s.stream))
		}
	}
	s.wait(t)
}

// sendCopied fills the buffer again and again; the socket stands for the words by
// which processors tell each other what is done.
func (s *side) sendCopied(t *testing.T, n int, to *gob.Encoder, from *gob.Decoder) {
	for off := 0; off < n; {
		k := min(n-off, buffers[driver.Simple])
		s.copied(t, off, k, true)
		must(t, to.Encode(k))
		var taken bool
		must(t, from.Decode(&taken))
		off += k
	}
}

func (s *side) recvCopied(t *testing.T, n int, to *gob.Encoder, from *gob.Decoder) {
	for off := 0; off < n; {
		var k int
		must(t, from.Decode(&k))
		s.copied(t, off, k, false)
		must(t, to.Encode(true))
		off += k
	}
}

// hello is what two processes tell each other of their ranks, and their blobs.
type hello struct {
	Info driver.PeerInfo
	Blob driver.Blob
}

// start starts the second process, and gives the socket to it.
func start(t *testing.T, orders string) (*exec.Cmd, net.Conn, *bytes.Buffer) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	theirs := os.NewFile(uintptr(fds[1]), "socket")
	mine := os.NewFile(uintptr(fds[0]), "socket")
	nc := get(net.FileConn(mine))(t)
	must(t, mine.Close())
	root, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+root+"$", "-test.v")
	cmd.Env = append(os.Environ(), childVariable+"="+orders)
	cmd.ExtraFiles = []*os.File{theirs}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	must(t, theirs.Close())
	return cmd, nc, &out
}

// twoProcesses is the receiver; the child sends.
func twoProcesses(t *testing.T, c Config, m mode) {
	cmd, nc, out := start(t, strconv.Itoa(index(m)))
	r := newRank(t, c, m, 1)
	to, from := gob.NewEncoder(nc), gob.NewDecoder(nc)
	peer := meet(t, to, from, r, false)
	r.connect(t, &peer.Blob)
	s := newSide(t, c, r)
	for i, n := range sizes(c) {
		for _, p := range s.protocols(t, c) {
			if c.TwoProcesses {
				s.recv(t, p, n)
				s.wait(t)
			} else {
				s.recvCopied(t, n, to, from)
			}
			s.check(t, n, i)
			must(t, to.Encode(true))
		}
	}
	s.close(t)
	r.close(t)
	if err := errors.Join(cmd.Wait(), nc.Close()); err != nil {
		t.Fatalf("the second process: %v\n%s", err, out)
	}
}

// killed is the receiver of a message whose sender is killed in the middle of it. It learns of that in bounded time, its kernel ends, and
// the memory of both is free again.
func killed(t *testing.T, c Config, m mode) {
	g := get(c.Driver.Open(c.Device))(t)
	before, _, err := g.MemoryInfo()
	must(t, err)
	usedBefore := c.used(t)
	cmd, nc, _ := start(t, strconv.Itoa(index(m))+" dies")
	r := newRank(t, c, m, 1)
	to, from := gob.NewEncoder(nc), gob.NewDecoder(nc)
	peer := meet(t, to, from, r, false)
	r.connect(t, &peer.Blob)
	s := newSide(t, c, r)
	var sent bool
	must(t, from.Decode(&sent)) // the first step, after which it sends no more
	watcher := r.conn.(driver.Watcher)
	must(t, watcher.Err())
	if c.TwoProcesses {
		s.recv(t, driver.Simple, 2*r.conn.Conn().GPU.Steps[driver.Simple])
	}
	must(t, cmd.Process.Kill())
	limit := time.Now().Add(10 * time.Second)
	for watcher.Err() == nil && time.Now().Before(limit) {
		time.Sleep(time.Millisecond)
	}
	if err := watcher.Err(); !errors.Is(err, p2ptransport.ErrPeerGone) || !strings.Contains(err.Error(), "rank 0") {
		t.Errorf("the peer was killed: %v", err)
	}
	must(t, r.c.WriteTo(s.abort, []byte{1, 0, 0, 0, 0, 0, 0, 0}))
	s.wait(t)
	s.close(t)
	r.close(t)
	if err := cmd.Wait(); err == nil {
		t.Error("the second process ended well")
	}
	must(t, nc.Close())
	const some = 64 << 20 // the driver keeps of a context's first use; the other process's context alone is several times that
	var after uint64
	for {
		after, _, err = g.MemoryInfo()
		must(t, err)
		if after+some >= before && c.used(t) <= usedBefore+some || time.Now().After(limit) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if after+some < before {
		t.Errorf("%d bytes of the GPU were free before, %d after", before, after)
	}
	if used := c.used(t); used > usedBefore+some {
		t.Errorf("%d bytes of the GPU were in use before, %d after", usedBefore, used)
	}
	must(t, g.Close())
}

func (c Config) used(t *testing.T) uint64 {
	if c.Used == nil {
		return 0
	}
	return get(c.Used())(t)
}

// dying sends the first step of a message and then nothing.
func dying(t *testing.T, c Config, s *side, to *gob.Encoder, from *gob.Decoder) {
	n := s.r.conn.Conn().GPU.Steps[driver.Simple]
	s.fill(t, n, 0)
	if c.TwoProcesses {
		s.send(t, driver.Simple, n)
		s.wait(t)
	} else {
		s.copied(t, 0, n, true)
	}
	must(t, to.Encode(true))
	var never bool
	must(t, from.Decode(&never))
}

func index(m mode) int {
	for i := range modes {
		if modes[i].name == m.name {
			return i
		}
	}
	panic(fmt.Sprintf("no mode %q", m.name))
}

// meet exchanges infos, then blobs.
func meet(t *testing.T, to *gob.Encoder, from *gob.Decoder, r *rank, send bool) (peer hello) {
	must(t, to.Encode(hello{Info: r.info}))
	must(t, from.Decode(&peer))
	info := peer.Info
	r.setup(t, send, &info)
	must(t, to.Encode(hello{Info: r.info, Blob: r.blob}))
	must(t, from.Decode(&peer))
	return peer
}

func child(t *testing.T, c Config, what string) {
	which, dies := strings.CutSuffix(what, " dies")
	m := modes[get(strconv.Atoi(which))(t)]
	f := os.NewFile(3, "socket")
	nc := get(net.FileConn(f))(t)
	must(t, f.Close())
	defer nc.Close()
	r := newRank(t, c, m, 0)
	to, from := gob.NewEncoder(nc), gob.NewDecoder(nc)
	peer := meet(t, to, from, r, true)
	r.connect(t, &peer.Blob)
	s := newSide(t, c, r)
	if dies {
		dying(t, c, s, to, from)
	}
	for i, n := range sizes(c) {
		for _, p := range s.protocols(t, c) {
			s.fill(t, n, i)
			if c.TwoProcesses {
				s.send(t, p, n)
				s.wait(t)
			} else {
				s.sendCopied(t, n, to, from)
			}
			var ok bool
			must(t, from.Decode(&ok))
		}
	}
	s.close(t)
	r.close(t)
}

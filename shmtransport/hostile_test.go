//go:build linux

package shmtransport

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// forge writes the cell that r looks at next.
func forge(r *Receiver, value, low uint64) {
	c := &r.cells[r.next&uint64(len(r.cells)-1)]
	c.value = value
	atomic.StoreUint64(&c.word, uint64(uint32(r.next+1))<<32|low)
}

// What no sender writes ends the connection with an error that says what it was.
func TestCellsOfALiar(t *testing.T) {
	const part, batch, inline = kindPart << kindShift, kindBatch << kindShift, kindInline << kindShift
	for name, c := range map[string]struct {
		value, low uint64
		left       uint64 // of a message in progress
		want       string
	}{
		"no kind":              {0, 8, 0, "kind 0"},
		"a kind of the future": {0, 7<<kindShift | 8, 0, "kind 7"},
		"more of nothing":      {0, kindMore<<kindShift | 8, 0, "kind 2"},
		"cells of 33 bytes":    {0, inline | 33, 0, "33 bytes in cells"},
		"cells in a message":   {0, inline | 8, 100, "kind 1"},
		"cells that are not":   {0, inline | 20, 0, "cell 1"},
		"empty part":           {10, part, 0, "0 bytes"},
		"part past the end":    {minData + 64, part | (minData + 1), 0, "bytes at 0"},
		"huge part":            {sizeMask, part | sizeMask, 0, "bytes at 0"},
		"part of a smaller":    {9, part | 10, 0, "9 bytes of which 10"},
		"endless message":      {1 << 63, part | 10, 0, "of which 10 are here"},
		"another message":      {200, part | 10, 100, "where 100 were to come"},
		"batch of nothing":     {0, batch | 10, 0, "messages of 0"},
		"batch of a larger":    {11, batch | 10, 0, "messages of 11"},
		"broken batch":         {3, batch | 10, 0, "messages of 3"},
		"batch in a message":   {5, batch | 10, 100, "messages of 5"},
	} {
		t.Run(name, func(t *testing.T) {
			_, b := pair(t, WithCells(minCells), WithData(minData))
			b.r.left = c.left
			forge(b.r, c.value, c.low)
			_, _, err := b.TryRecv(make([]byte, 1000))
			if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err := b.Send(t.Context(), nil); !errors.Is(err, ErrProtocol) {
				t.Errorf("a Send after that: %v", err)
			}
		})
	}
}

func TestCountersOfALiar(t *testing.T) {
	for name, c := range map[string]struct{ cells, bytes uint64 }{
		"cells never sent": {1 << 20, 0}, "bytes never sent": {0, 1 << 40}, "cells taken back": {^uint64(0), 0}, "bytes taken back": {0, 1 << 63},
	} {
		a, b := pair(t, WithCells(minCells), WithData(minData))
		b.r.control.cellsRead, b.r.control.bytesRead = c.cells, c.bytes
		var err error
		for i := 0; err == nil && i < 1000; i++ {
			_, err = a.TrySend(make([]byte, 1000))
		}
		if !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A peer that writes anything anywhere in the shared memory, all the time, gets errors out of this end, and no fault and no hang.
func TestMemoryOfALiar(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	broken := 0
	for round := range 300 {
		a, b := pair(t, WithCells(minCells), WithData(minData))
		stop, stopped := make(chan struct{}), make(chan struct{})
		liar := rand.New(rand.NewPCG(seed, uint64(round)))
		mine, theirs := b.s.ring, b.r.ring // of a's own mapping these are other addresses
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, r := range []ring{mine, theirs} {
					c := &r.cells[liar.IntN(len(r.cells))]
					atomic.StoreUint64(&c.value, liar.Uint64()>>liar.IntN(64))
					seq := uint64(uint32(a.r.life.state.Load())) // any number will do
					if liar.IntN(2) == 0 {
						seq = uint64(liar.IntN(64))
					}
					atomic.StoreUint64(&c.word, seq<<32|uint64(liar.Uint32())&^(7<<kindShift)|uint64(liar.IntN(6))<<kindShift)
					if liar.IntN(20) == 0 {
						atomic.StoreUint64(&r.control.cellsRead, liar.Uint64()>>liar.IntN(64))
						atomic.StoreUint64(&r.control.bytesRead, liar.Uint64()>>liar.IntN(64))
						atomic.StoreUint32(&r.control.far, liar.Uint32()>>liar.IntN(32))
						atomic.StoreUint32(&r.control.receiverAsleep, liar.Uint32()>>liar.IntN(32))
						atomic.StoreUint32(&r.control.senderAsleep, liar.Uint32()>>liar.IntN(32))
					}
				}
			}
		}()
		buf := make([]byte, 100_000)
		message := patterned(10_000, 1)
		var err error
		for range 200 {
			if rnd.IntN(2) == 0 {
				_, err = a.TrySend(message)
			} else if _, _, err = a.TryRecv(buf); err == io.ErrShortBuffer {
				err = nil
				buf = make([]byte, 1<<20)
			}
			if errors.Is(err, ErrProtocol) {
				broken++
				break
			} else if err != nil && !errors.Is(err, io.ErrShortBuffer) {
				t.Fatal(err)
			}
		}
		close(stop)
		<-stopped
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if broken == 0 {
		t.Error("no lie was noticed")
	}
	t.Logf("%d of 300 connections were given up", broken)
}

// memfd is one with some bytes and seals.
func memfd(t *testing.T, size int64, text []byte, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(fd, text, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

// Whatever arrives instead of an offer is refused with its reason, and every descriptor that came is closed.
func TestOffersOfALiar(t *testing.T) {
	g := geometry{minCells, minData, 0}
	var text [headerText]byte
	g.encode(&text)
	with := func(off int, v uint32) []byte {
		b := text
		binary.LittleEndian.PutUint32(b[off:], v)
		return b[:]
	}
	hello := packet{}.encode()
	bad := append([]byte(nil), hello...)
	bad[16] = 9
	good := func(t *testing.T) []int { return []int{memfd(t, g.size(), text[:], sealed)} }
	for name, c := range map[string]struct {
		packet []byte
		fds    func(t *testing.T) []int
		want   string
	}{
		"nothing":         {nil, nil, "closed"},
		"short packet":    {hello[:100], good, "100 bytes"},
		"long packet":     {append(append([]byte(nil), hello...), 0), good, "257 bytes"},
		"another version": {bad, good, "version 9"},
		"no descriptor":   {hello, nil, "without a descriptor"},
		"two descriptors": {hello, func(t *testing.T) []int { return append(good(t), good(t)...) }, "more than one"},
		"very many": {hello, func(t *testing.T) (fds []int) {
			for range 250 {
				fds = append(fds, memfd(t, 4096, nil, 0))
			}
			return fds
		}, "more than one"},
		"not sealed":   {hello, func(t *testing.T) []int { return []int{memfd(t, g.size(), text[:], unix.F_SEAL_GROW)} }, "seals"},
		"not writable": {hello, func(t *testing.T) []int { return []int{memfd(t, g.size(), text[:], sealed|unix.F_SEAL_WRITE)} }, "operation not permitted"},
		"a socket": {hello, func(t *testing.T) []int {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				t.Fatal(err)
			}
			return []int{fd}
		}, "seals"},
		"too short":           {hello, func(t *testing.T) []int { return []int{memfd(t, g.size()-4096, text[:], sealed)} }, "its header speaks of"},
		"empty":               {hello, func(t *testing.T) []int { return []int{memfd(t, 0, nil, sealed)} }, "0 bytes"},
		"not a header":        {hello, func(t *testing.T) []int { return []int{memfd(t, g.size(), with(0, 1), sealed)} }, "does not begin"},
		"header of a version": {hello, func(t *testing.T) []int { return []int{memfd(t, g.size(), with(16, 2), sealed)} }, "version 2"},
		"17 cells":            {hello, func(t *testing.T) []int { return []int{memfd(t, g.size(), with(20, 17), sealed)} }, "17 cells"},
		"very many cells":     {hello, func(t *testing.T) []int { return []int{memfd(t, g.size(), with(20, 1<<31), sealed)} }, "cells"},
		"data without an end": {hello, func(t *testing.T) []int { return []int{memfd(t, g.size(), with(28, 1<<31), sealed)} }, "data"},
		"data of an odd size": {hello, func(t *testing.T) []int { return []int{memfd(t, g.size(), with(24, minData+1), sealed)} }, "data"},
	} {
		t.Run(name, func(t *testing.T) {
			before := openFiles(t)
			x, y := sockets(t)
			if c.packet != nil {
				var fds []int
				if c.fds != nil {
					fds = c.fds(t)
				}
				var rights []byte
				if fds != nil {
					rights = unix.UnixRights(fds...)
				}
				if _, _, err := x.WriteMsgUnix(c.packet, rights, nil); err != nil {
					t.Fatal(err)
				}
				for _, fd := range fds {
					_ = unix.Close(fd)
				}
			} else if err := x.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			conn, err := Take(t.Context(), y)
			if err == nil {
				_ = conn.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			_ = x.Close()
			if after := openFiles(t); after != before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

// The side that offers is told why it is refused, and does not wait for ever for one that says nothing.
func TestRefusals(t *testing.T) {
	x, y := sockets(t)
	go func(nc *net.UnixConn) { _, _ = Take(context.Background(), nc, WithToken(Token{1})) }(y)
	if _, err := Offer(t.Context(), x); err == nil || !strings.Contains(err.Error(), "another token") {
		t.Errorf("another token: %v", err)
	}
	x, y = sockets(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := Offer(ctx, x); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silence: %v", err)
	}
	_ = y.Close()
	x, y = sockets(t)
	_ = y.Close()
	if _, err := Offer(t.Context(), x); err == nil {
		t.Error("an offer to nobody succeeded")
	}
	if _, err := Dial(t.Context(), "@purerdma-shm-nobody"); !errors.Is(err, unix.ECONNREFUSED) || !strings.Contains(err.Error(), "network namespace") {
		t.Errorf("Dial to nobody: %v", err)
	}
	for _, o := range []Option{WithCells(17), WithCells(8), WithData(1000), WithData(-1), WithCells(1 << 20)} {
		x, y := sockets(t)
		if _, err := Offer(t.Context(), x, o); !errors.Is(err, errGeometry) {
			t.Errorf("odd sizes: %v", err)
		}
		_ = y.Close()
	}
}

// One that connects and says nothing delays nobody.
func TestSilentPeers(t *testing.T) {
	l := listen(t)
	for range 40 {
		nc, err := net.Dial("unixpacket", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
	}
	accepted := make(chan error)
	go func() {
		c, err := l.Accept(t.Context())
		if err == nil {
			err = c.Close()
		}
		accepted <- err
	}()
	c, err := Dial(t.Context(), l.Addr())
	if err = errors.Join(err, <-accepted); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Accept(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(t.Context()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func init() {
	children["dial"] = func() error {
		c, err := Dial(context.Background(), os.Getenv("PURERDMA_SHM_ADDR"))
		if err == nil {
			return errors.Join(errors.New("connected"), c.Close())
		}
		if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EPIPE) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, unix.ECONNRESET) {
			return err
		}
		return nil
	}
}

// Another user is refused on both sides, whatever it sends.
func TestAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	l := listen(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"=dial", "PURERDMA_SHM_ADDR="+l.Addr())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	x, y := sockets(t)
	o := options{geometry: geometry{minCells, minData, 0}, uids: []uint32{65534}}
	if _, err := checkPeer(x, o); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "user 0") {
		t.Error(err)
	}
	_, _ = x.Close(), y.Close()
}

// A context that ends as the handshake does leaves no deadline on the connection: its peer's end is told apart from a goodbye.
func TestContextEndsWithHandshake(t *testing.T) {
	for range 100 {
		nc, peer := sockets(t)
		ctx, cancel := context.WithCancel(t.Context())
		c, err := bounded(ctx, nc, func() (*Conn, error) {
			g := newOptions(nil).geometry
			fd, span, err := makeMemfd(g)
			if err != nil {
				return nil, err
			}
			cancel()
			return newConn(span, g, true, true, Peer{}), unix.Close(fd)
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := peer.Write([]byte{goodbye}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Recv(t.Context(), nil); err != io.EOF {
			t.Fatalf("got %v", err)
		}
		if err := errors.Join(c.Close(), peer.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// A peer that marks a sleeper's word, just after this process has cleared it to wake the sleeper, does not make the sleep last.
func TestPeerMarksSleeper(t *testing.T) {
	_, b := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	w := &b.r.wait
	w.ctx = ctx
	var n nap
	for n.at != napSleep {
		n.step(w)
	}
	cancel()
	b.life.wakeAll()
	atomic.StoreUint32(w.asleep, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		n.step(w)
	}()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Error("it sleeps on")
		b.life.wakeAll()
		<-over
	}
}

//go:build linux

package shmtransport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair is the two ends of a connection, both in this process, each with a mapping of its own.
func pair(t testing.TB, opts ...Option) (a, b *Conn) {
	t.Helper()
	x, y := sockets(t)
	type made struct {
		c   *Conn
		err error
	}
	taken := make(chan made)
	go func() {
		c, err := Take(t.Context(), y)
		taken <- made{c, err}
	}()
	a, err := Offer(t.Context(), x, opts...)
	m := <-taken
	if err = errors.Join(err, m.err); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), m.c.Close()); err != nil {
			t.Error(err)
		}
	})
	return a, m.c
}

// sockets is a connected pair that keeps packets apart.
func sockets(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		nc, err := net.FileConn(f)
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		ends[i] = nc.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// pattern fills b with what seed says.
func pattern(b []byte, seed uint64) {
	for i := range b {
		b[i] = byte(seed + uint64(i)*(2*seed+1)>>3)
	}
}

func patterned(n int, seed uint64) []byte {
	b := make([]byte, n)
	pattern(b, seed)
	return b
}

// geometries are the small ring, in which everything wraps, and the usual one; each with and without barriers.
func geometries(t *testing.T, f func(t *testing.T, a, b *Conn)) {
	for name, opts := range map[string][]Option{"small": {WithCells(minCells), WithData(minData)}, "usual": nil} {
		for _, fenced := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, fenced %v", name, fenced), func(t *testing.T) {
				a, b := pair(t, opts...)
				for _, c := range []*Conn{a, b} {
					c.s.gate.fenced, c.s.wait.fenced, c.r.wait.fenced = fenced, fenced, fenced
				}
				f(t, a, b)
			})
		}
	}
}

var sizes = []int{0, 1, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, 255, 4095, 4096, 4097, 16<<10 - 1, 16 << 10, 16<<10 + 1, 100_000, 1 << 20, 3 << 20}

// Every size arrives as it was sent, in both directions, with the next message right after it.
func TestSizes(t *testing.T) {
	geometries(t, func(t *testing.T, a, b *Conn) {
		received := make(chan error)
		go func() {
			buf := make([]byte, 4<<20)
			for i, n := range sizes {
				got, err := b.Recv(t.Context(), buf)
				if err == nil && !bytes.Equal(buf[:got], patterned(n, uint64(i))) {
					err = fmt.Errorf("message %d of %d bytes is wrong, has %d", i, n, got)
				}
				if err == nil {
					err = b.Send(t.Context(), buf[:got])
				}
				if err != nil {
					received <- err
					return
				}
			}
			received <- nil
		}()
		buf := make([]byte, 4<<20)
		for i, n := range sizes {
			if err := a.Send(t.Context(), patterned(n, uint64(i))); err != nil {
				t.Fatal(err)
			}
			got, err := a.Recv(t.Context(), buf)
			if err != nil || !bytes.Equal(buf[:got], patterned(n, uint64(i))) {
				t.Fatalf("message %d of %d bytes came back with %d, %v", i, n, got, err)
			}
		}
		if err := <-received; err != nil {
			t.Fatal(err)
		}
	})
}

// Random sizes, bursts, batches and ways of sending and receiving, one direction beside the other: everything arrives once, whole and
// in order.
func TestRandom(t *testing.T) {
	geometries(t, func(t *testing.T, a, b *Conn) {
		seed := uint64(time.Now().UnixNano())
		t.Log("seed", seed)
		errs := make(chan error, 4)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i, c := range []*Conn{a, b} {
			s, r, err := c.Split()
			if err != nil {
				t.Fatal(err)
			}
			go func() { errs <- sendRandom(ctx, s, seed+uint64(i), 3000) }()
			go func() { errs <- recvRandom(ctx, r, seed+uint64(1-i), 3000) }()
		}
		for range 4 {
			if err := <-errs; err != nil {
				t.Error(err)
				cancel()
			}
		}
	})
}

// randomSize favours what has a path of its own.
func randomSize(r *rand.Rand) int {
	switch r.IntN(10) {
	case 0, 1, 2, 3:
		return r.IntN(40)
	case 4, 5, 6:
		return r.IntN(5000)
	case 7, 8:
		return 8
	}
	return r.IntN(200_000)
}

func sendRandom(ctx context.Context, s *Sender, seed uint64, count int) error {
	how, what := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	for i := 0; i < count; {
		switch n := randomSize(what); {
		case how.IntN(4) == 0: // a batch; its messages have the sizes that would come one by one
			var batch [][]byte
			for k := min(1+how.IntN(300), count-i); ; {
				batch = append(batch, patterned(n, uint64(i)))
				i++
				if k--; k == 0 {
					break
				}
				n = randomSize(what)
			}
			if sent, err := s.SendBatch(ctx, batch); err != nil || sent != len(batch) {
				return fmt.Errorf("batch: %d of %d, %w", sent, len(batch), err)
			}
		case how.IntN(4) == 0 && n <= s.MaxAcquire():
			b, err := s.Acquire(max(n, 1))
			for ; b == nil && err == nil; b, err = s.Acquire(max(n, 1)) {
				if err := ctx.Err(); err != nil {
					return err
				}
				time.Sleep(10 * time.Microsecond)
			}
			if err != nil {
				return err
			}
			pattern(b[:n], uint64(i))
			if err := s.Commit(n); err != nil {
				return err
			}
			i++
		default:
			if err := s.Send(ctx, patterned(n, uint64(i))); err != nil {
				return err
			}
			i++
		}
	}
	return nil
}

func recvRandom(ctx context.Context, r *Receiver, seed uint64, count int) error {
	how, what := rand.New(rand.NewPCG(seed, 3)), rand.New(rand.NewPCG(seed, 2))
	check := func(i int, b []byte) error {
		if n := randomSize(what); !bytes.Equal(b, patterned(n, uint64(i))) {
			return fmt.Errorf("message %d of %d bytes is wrong, has %d", i, n, len(b))
		}
		return nil
	}
	buffers, sizes := make([][]byte, 50), make([]int, 50)
	for i := range buffers {
		buffers[i] = make([]byte, 200_000)
	}
	for i := 0; i < count; {
		switch how.IntN(3) {
		case 0:
			n, err := r.Recv(ctx, buffers[0])
			if err != nil {
				return err
			}
			if err := check(i, buffers[0][:n]); err != nil {
				return err
			}
			i++
		case 1:
			most := min(1+how.IntN(50), count-i)
			n, err := r.RecvBatch(ctx, buffers[:most], sizes)
			if err != nil {
				return err
			}
			for k, b := range buffers[:n] {
				if err := check(i+k, b[:sizes[k]]); err != nil {
					return err
				}
			}
			i += n
		case 2:
			var m []byte
			for left := 1; left > 0; {
				b, more, ok, err := r.Next()
				if err != nil {
					return err
				}
				if !ok {
					if err := r.Wait(ctx); err != nil {
						return err
					}
					continue
				}
				m, left = append(m, b...), more
				if err := r.Release(); err != nil {
					return err
				}
			}
			if err := check(i, m); err != nil {
				return err
			}
			i++
		}
	}
	return nil
}

// A message longer than the ring goes out in parts, and comes in in parts.
func TestTry(t *testing.T) {
	a, b := pair(t, WithCells(minCells), WithData(minData))
	if n, ok, err := b.TryRecv(nil); n != 0 || ok || err != nil {
		t.Fatalf("from an empty ring: %d, %v, %v", n, ok, err)
	}
	m := patterned(1<<20, 3)
	got := make([]byte, 1<<20)
	sent, received := false, false
	for turns := 0; !received; turns++ {
		if turns > 1000 {
			t.Fatal("no progress")
		}
		if !sent {
			ok, err := a.TrySend(m)
			if err != nil {
				t.Fatal(err)
			}
			if sent = ok; !ok {
				if _, err := a.TrySend(got[:100]); !errors.Is(err, ErrOrder) {
					t.Fatalf("another message in the middle of one: %v", err)
				}
			}
		}
		n, ok, err := b.TryRecv(got)
		if err != nil {
			t.Fatal(err)
		}
		if received = ok; ok && n != len(m) {
			t.Fatalf("%d bytes", n)
		}
	}
	if !bytes.Equal(m, got) {
		t.Error("bytes differ")
	}
}

// A message that does not fit stays.
// A sender that found no room waits until the receiver has read, until its context ends, or until the connection does.
func TestSenderWait(t *testing.T) {
	a, b := pair(t, WithData(minData), WithCells(minCells))
	s, _, err := a.Split()
	if err != nil {
		t.Fatal(err)
	}
	message, sent := make([]byte, minData/8), 0
	fill := func() {
		for {
			ok, err := s.TrySend(message)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return
			}
			sent++
		}
	}
	fill()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Wait(ctx) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("after its context: %v", err)
	}
	go func() { ended <- s.Wait(t.Context()) }()
	for range sent {
		if n, err := b.Recv(t.Context(), make([]byte, len(message))); n != len(message) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	fill()
	go func() { ended <- s.Wait(t.Context()) }()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := s.TrySend(message); !errors.Is(err, ErrPeerGone) {
		t.Errorf("after the peer's end: %v", err)
	}
}

func TestShortBuffer(t *testing.T) {
	a, b := pair(t)
	for _, n := range []int{8, 20, 1000, 100_000} {
		if err := a.Send(t.Context(), patterned(n, 9)); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Recv(t.Context(), make([]byte, n-1)); got != n || !errors.Is(err, io.ErrShortBuffer) {
			t.Errorf("%d, %v; want %d and a short buffer", got, err, n)
		}
		if got, err := b.Recv(t.Context(), make([]byte, n)); got != n || err != nil {
			t.Errorf("%d, %v", got, err)
		}
	}
	batch := [][]byte{patterned(100, 1), patterned(100, 2), patterned(100, 3)}
	if _, err := a.SendBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	sizes := make([]int, 3)
	n, err := b.RecvBatch(t.Context(), [][]byte{make([]byte, 100), make([]byte, 99), make([]byte, 100)}, sizes)
	if n != 1 || !errors.Is(err, io.ErrShortBuffer) || sizes[1] != 100 {
		t.Errorf("%d, %v, sizes %v", n, err, sizes)
	}
	for range 2 {
		if n, err := b.Recv(t.Context(), make([]byte, 100)); n != 100 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
}

// The counters of cells are told by their low 32 bits; those of data and cells run on for ever.
func TestCountersWrap(t *testing.T) {
	geometries(t, func(t *testing.T, a, b *Conn) {
		cells, data := uint64(len(a.s.cells)), uint64(len(a.s.data))
		for _, start := range []struct{ cells, bytes uint64 }{{1<<32 - cells, 0}, {0 - 2*cells, 0 - 2*data}} {
			for _, d := range []struct{ from, to *Conn }{{a, b}, {b, a}} {
				s, r := d.from.s, d.to.r
				s.next, s.pos, s.cellLimit, s.byteLimit, s.ownedTo = start.cells, start.bytes, start.cells+cells, start.bytes+data, start.bytes
				r.next, r.pos, r.toldCells, r.toldBytes = start.cells, start.bytes, start.cells, start.bytes
				r.control.cellsRead, r.control.bytesRead = start.cells, start.bytes
			}
			buf := make([]byte, 1000)
			for i := range 4 * cells {
				n := int(i*37) % 1000
				for _, d := range []struct{ from, to *Conn }{{a, b}, {b, a}} {
					if err := d.from.Send(t.Context(), patterned(n, i)); err != nil {
						t.Fatal(err)
					}
					if got, err := d.to.Recv(t.Context(), buf); err != nil || !bytes.Equal(buf[:got], patterned(n, i)) {
						t.Fatalf("message %d: %d bytes, %v", i, got, err)
					}
				}
			}
		}
	})
}

// Owning ahead changes no byte that the receiver has not read, also when there is hardly any room.
func TestPrepare(t *testing.T) {
	geometries(t, func(t *testing.T, a, b *Conn) {
		s, _, err := a.Split()
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100_000)
		sent, received := uint64(0), uint64(0)
		size := func(i uint64) int { return int(i*997) % 5000 }
		for sent < 2000 {
			for range 1 + sent%7 {
				ok, err := s.TrySend(patterned(size(sent), sent))
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				sent++
			}
			for steps := 0; s.Prepare(); steps++ {
				if steps > ownMost/64 {
					t.Fatal("Prepare has no end")
				}
			}
			for received+sent%3 < sent {
				n, ok, err := b.TryRecv(buf)
				if err != nil || !ok || !bytes.Equal(buf[:n], patterned(size(received), received)) {
					t.Fatalf("message %d: %d bytes, %v, %v", received, n, ok, err)
				}
				received++
			}
		}
	})
	a, _ := pair(t)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if a.s.Prepare() {
		t.Error("something to prepare after Close")
	}
}

func TestNoAllocations(t *testing.T) {
	a, b := pair(t)
	buf := make([]byte, 1<<20)
	batch, sizes := make([][]byte, 64), make([]int, 64)
	for i := range batch {
		batch[i] = make([]byte, 8)
	}
	ctx := t.Context()
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range map[string]func(){
		"8 B":   func() { check(a.Send(ctx, buf[:8])); _, err := b.Recv(ctx, buf); check(err) },
		"4 KiB": func() { check(a.Send(ctx, buf[:4096])); _, err := b.Recv(ctx, buf); check(err) },
		"1 MiB": func() { check(a.Send(ctx, buf)); _, err := b.Recv(ctx, buf); check(err) },
		"none":  func() { _, _, err := b.TryRecv(buf); check(err) },
		"batch": func() {
			_, err := a.SendBatch(ctx, batch)
			check(err)
			_, err = b.RecvBatch(ctx, batch, sizes)
			check(err)
		},
		"places": func() {
			_, err := a.Acquire(4096)
			check(err)
			check(a.Commit(4096))
			_, _, _, err = b.Next()
			check(err)
			check(b.Release())
		},
	} {
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// After its first message a batch takes only what was all there at one look. What is not there yet may be a long message, whose first part,
// come between two looks, would be in a buffer that the next call does not have first.
func TestBatchTakesWhatIsThere(t *testing.T) {
	a, b := pair(t, WithData(minData), WithCells(minCells))
	next := func(want bool, when string) {
		t.Helper()
		if got := b.r.wholeNext(); got != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	send := func(n int) {
		t.Helper()
		if _, err := a.TrySend(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	buffers, sizes := make([][]byte, 3), make([]int, 3)
	for i := range buffers {
		buffers[i] = make([]byte, 2*minData)
	}
	take := func(want int) {
		t.Helper()
		if n, err := b.TryRecvBatch(buffers, sizes); n != want || err != nil {
			t.Fatalf("%d messages, %v, want %d", n, err, want)
		}
	}
	next(false, "nothing")
	send(30)
	next(true, "in cells")
	send(1000)
	take(2)
	send(1000)
	next(true, "one part")
	take(1)
	if n, err := a.TrySendBatch([][]byte{buffers[2][:100], buffers[2][:100], buffers[2][:100], buffers[2][:100]}); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	take(3)
	next(true, "the rest of a batch")
	take(1)
	send(30)
	send(2 * minData)
	take(1)
	next(false, "parts, some of them to come")
	take(0)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	next(false, "the end")
}

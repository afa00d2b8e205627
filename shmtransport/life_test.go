//go:build linux

package shmtransport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// asleep waits until the word says that somebody sleeps on it.
func asleep(t *testing.T, p *uint32) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); atomic.LoadUint32(p) == 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("nobody sleeps")
		}
	}
}

func TestSleepersWake(t *testing.T) {
	for name, c := range map[string]struct {
		wake func(a, b *Conn, cancel context.CancelFunc) error
		want error
	}{
		"message":     {func(a, _ *Conn, _ context.CancelFunc) error { return a.Send(context.Background(), []byte("x")) }, nil},
		"peer closes": {func(a, _ *Conn, _ context.CancelFunc) error { return a.Close() }, io.EOF},
		"close":       {func(_, b *Conn, _ context.CancelFunc) error { return b.Close() }, ErrClosed},
		"cancel":      {func(_, _ *Conn, cancel context.CancelFunc) error { cancel(); return nil }, context.Canceled},
		"peer's nonsense": {func(a, _ *Conn, _ context.CancelFunc) error {
			_, err := a.link.(*socket).nc.Write([]byte("??"))
			return err
		}, ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error)
			go func() {
				_, err := b.Recv(ctx, make([]byte, 10))
				ended <- err
			}()
			asleep(t, b.r.wait.asleep)
			if err := c.wake(a, b, cancel); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// A sender without room sleeps, and the receiver's reading wakes it.
func TestSenderSleeps(t *testing.T) {
	geometries(t, func(t *testing.T, a, b *Conn) {
		m := patterned(8<<20, 1)
		ended := make(chan error)
		go func() { ended <- a.Send(t.Context(), m) }()
		asleep(t, a.s.wait.asleep)
		got := make([]byte, len(m))
		if n, err := b.Recv(t.Context(), got); n != len(m) || err != nil || !bytes.Equal(m, got) {
			t.Errorf("%d bytes, %v", n, err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A long message that a context cut goes on where it was.
func TestCancelInMessage(t *testing.T) {
	a, b := pair(t, WithData(minData))
	m, got := patterned(1<<20, 5), make([]byte, 1<<20)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Send(ctx, m) }()
	asleep(t, a.s.wait.asleep)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := a.Send(t.Context(), []byte("another")); !errors.Is(err, ErrOrder) {
		t.Fatalf("another message in the middle of one: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		_, err := b.Recv(ctx, got)
		ended <- err
	}()
	asleep(t, b.r.wait.asleep)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := b.Recv(t.Context(), make([]byte, 1<<20)); !errors.Is(err, ErrOrder) {
		t.Fatalf("another buffer in the middle of a message: %v", err)
	}
	go func() { ended <- a.Send(t.Context(), m) }()
	if n, err := b.Recv(t.Context(), got); n != len(m) || err != nil || !bytes.Equal(m, got) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What was sent before the end arrives; then comes the end.
func TestCloseKeepsWhatWasSent(t *testing.T) {
	a, b := pair(t)
	for range 3 {
		if err := a.Send(t.Context(), []byte("last words")); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	for range 3 {
		if n, err := b.Recv(t.Context(), buf); err != nil || string(buf[:n]) != "last words" {
			t.Fatalf("%q, %v", buf[:n], err)
		}
	}
	if _, err := b.Recv(t.Context(), buf); err != io.EOF {
		t.Errorf("%v, want EOF", err)
	}
	if err := b.Send(t.Context(), buf); !errors.Is(err, ErrPeerGone) || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a Send to who has closed: %v", err)
	}
	if err := a.Send(t.Context(), buf); !errors.Is(err, ErrClosed) || !errors.Is(err, net.ErrClosed) {
		t.Errorf("a Send after Close: %v", err)
	}
	if _, _, err := a.TryRecv(buf); !errors.Is(err, ErrClosed) {
		t.Errorf("a TryRecv after Close: %v", err)
	}
}

// What nobody has received is lost with the peer, although Send was nil; once Recv has told of the peer's end, Send does.
func TestSendIsNoReceipt(t *testing.T) {
	a, b := pair(t)
	if err := a.Send(t.Context(), []byte("in vain!")); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Recv(t.Context(), make([]byte, 8)); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want io.EOF", err)
	}
	if err := a.Send(t.Context(), []byte("in vain!")); !errors.Is(err, ErrPeerGone) {
		t.Errorf("%v, want ErrPeerGone", err)
	}
}

// Close in the middle of everything: no fault, and every call ends.
func TestCloseUnderLoad(t *testing.T) {
	for i := range 60 {
		a, b := pair(t)
		s, r, err := a.Split()
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 3)
		go func() {
			var err error
			for err == nil {
				err = s.Send(t.Context(), patterned(100<<(i%10), 1))
			}
			ended <- err
		}()
		go func() {
			_, err := r.Recv(t.Context(), nil)
			ended <- err
		}()
		go func() {
			var err error
			for buf := make([]byte, 1<<20); err == nil; {
				_, err = b.Recv(t.Context(), buf)
			}
			ended <- err
		}()
		for range i {
			runtime.Gosched()
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := <-ended; !errors.Is(err, ErrClosed) && err != io.EOF && !errors.Is(err, ErrPeerGone) {
				t.Errorf("ended by %v", err)
			}
		}
	}
}

// Memory that is out stays mapped until it is given back.
func TestCloseWithMemoryOut(t *testing.T) {
	a, b := pair(t)
	if err := a.Send(t.Context(), patterned(1000, 1)); err != nil {
		t.Fatal(err)
	}
	in, _, ok, err := b.Next()
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	out, err := b.Acquire(5000)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Recv(t.Context(), make([]byte, 1000)); !errors.Is(err, ErrOrder) {
		t.Errorf("Recv while memory is out: %v", err)
	}
	if err := b.Send(t.Context(), make([]byte, 8)); !errors.Is(err, ErrOrder) {
		t.Errorf("Send while memory is out: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	clear(out)
	if !bytes.Equal(in, patterned(1000, 1)) {
		t.Error("bytes differ after Close")
	}
	if err := b.Commit(5000); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	clear(out) // the other memory is still out
	if err := b.Release(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := b.life.span.Retain(); err == nil {
		t.Error("the memory is still mapped")
	}
	for _, err := range []error{b.Commit(1), b.Release()} {
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}

// Two goroutines in one Conn are an error, and after Split none.
func TestOneGoroutine(t *testing.T) {
	a, b := pair(t)
	ended := make(chan error)
	go func() {
		_, err := a.Recv(t.Context(), make([]byte, 10))
		ended <- err
	}()
	asleep(t, a.r.wait.asleep)
	if err := a.Send(t.Context(), nil); !errors.Is(err, ErrBusy) {
		t.Errorf("Send beside Recv: %v", err)
	}
	if _, _, err := a.Split(); !errors.Is(err, ErrBusy) {
		t.Errorf("Split beside Recv: %v", err)
	}
	if err := b.Send(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	s, r, err := a.Split()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := r.Recv(t.Context(), make([]byte, 10))
		ended <- err
	}()
	asleep(t, a.r.wait.asleep)
	if err := s.Send(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := b.Send(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, _, err := a.Split(); !errors.Is(err, ErrOrder) {
		t.Errorf("Split again: %v", err)
	}
}

// An end that waits uses no processor time.
func TestIdleCostsNothing(t *testing.T) {
	a, b := pair(t)
	ended := make(chan error)
	go func() {
		_, err := b.Recv(t.Context(), make([]byte, 10))
		ended <- err
	}()
	asleep(t, b.r.wait.asleep)
	word := b.r.wait.asleep
	for range 100 { // it stays asleep: the word is cleared by whoever wakes
		if atomic.LoadUint32(word) != 1 {
			t.Error("awake without a reason")
		}
		runtime.Gosched()
	}
	if err := a.Send(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func init() {
	children["echo"] = func() error {
		c, err := Dial(context.Background(), os.Getenv("PURERDMA_SHM_ADDR"))
		if err != nil {
			return err
		}
		buf := make([]byte, 8<<20)
		for {
			n, err := c.Recv(context.Background(), buf)
			if err != nil {
				return errors.Join(c.Close(), ignoreEOF(err))
			}
			if err := c.Send(context.Background(), buf[:n]); err != nil {
				return err
			}
		}
	}
	children["flood"] = func() error {
		c, err := Dial(context.Background(), os.Getenv("PURERDMA_SHM_ADDR"))
		if err != nil {
			return err
		}
		m := make([]byte, 100_000)
		for {
			if err := c.Send(context.Background(), m); err != nil {
				return err
			}
		}
	}
	children["sink"] = func() error {
		c, err := Dial(context.Background(), os.Getenv("PURERDMA_SHM_ADDR"))
		if err != nil {
			return err
		}
		m := make([]byte, 100_000)
		for {
			if _, err := c.Recv(context.Background(), m); err != nil {
				return err
			}
		}
	}
}

func ignoreEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// child starts a second process.
func child(t testing.TB, name, addr string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"="+name, "PURERDMA_SHM_ADDR="+addr)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func listen(t testing.TB, opts ...Option) *Listener {
	t.Helper()
	l, err := Listen("", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestTwoProcesses(t *testing.T) {
	l := listen(t)
	cmd := child(t, "echo", l.Addr())
	c, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Peer(); p.PID != cmd.Process.Pid || p.UID != uint32(os.Getuid()) {
		t.Errorf("peer %+v, want process %d", p, cmd.Process.Pid)
	}
	buf := make([]byte, 8<<20)
	for i := range 2000 {
		n := sizes[i%(len(sizes)-2)]
		m := patterned(n, uint64(i))
		if err := c.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		got, err := c.Recv(t.Context(), buf)
		if err != nil || !bytes.Equal(buf[:got], m) {
			t.Fatalf("message %d of %d bytes came back with %d, %v", i, n, got, err)
		}
	}
	if err := errors.Join(c.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}

// kill -9 in the middle of data, at 200 places: this end gets its error within a second, also asleep, and nothing is left.
func TestKilled(t *testing.T) {
	l := listen(t)
	runs := 200
	if testing.Short() {
		runs = 20
	}
	before := openFiles(t)
	var longest time.Duration
	defer func() { t.Logf("the longest took %v", longest) }()
	for i := range runs {
		name := []string{"flood", "sink", "echo"}[i%3]
		cmd := child(t, name, l.Addr())
		c, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			var err error
			buf := make([]byte, 200_000)
			for err == nil {
				switch name {
				case "flood":
					_, err = c.Recv(t.Context(), buf)
				case "sink":
					err = c.Send(t.Context(), buf[:100_000])
				default: // it waits for us, and we for it
					_, err = c.Recv(t.Context(), buf)
				}
			}
			ended <- err
		}()
		if name == "echo" {
			asleep(t, c.r.wait.asleep)
		} else {
			for range i * 10 {
				runtime.Gosched()
			}
		}
		killed := time.Now()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			longest = max(longest, time.Since(killed))
			if !errors.Is(err, ErrPeerGone) {
				t.Errorf("run %d: %v", i, err)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("run %d, %s: no error", i, name)
		}
		_ = cmd.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// mapped counts this process's mappings of connections' memory.
func mappings(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("memfd:purerdma-shm"))
}

func TestNothingIsLeft(t *testing.T) {
	before := mappings(t)
	for range 20 {
		a, b := pair(t)
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if after := mappings(t); after != before {
		t.Errorf("%d mappings before, %d after", before, after)
	}
}

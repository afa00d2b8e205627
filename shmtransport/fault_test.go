//go:build linux

package shmtransport

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A file that is spent gives no connection.
func TestSpentFile(t *testing.T) {
	f, err := MakeFile(tmpfs(t), WithCells(minCells), WithData(minData))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err := f.Attached(t.Context()); c != nil || !errors.Is(err, ErrClosed) {
		t.Error(c, err)
	}
}

// A Split that Close overtakes gives no ends: Close does not know of them, and would take the memory from under them.
func TestSplitOvertakenByClose(t *testing.T) {
	a, _ := pair(t)
	a.life.mu.Lock()
	split := make(chan error)
	go func() {
		_, _, err := a.Split()
		split <- err
	}()
	for atomic.LoadUint32(&a.s.gate.state) != inside {
		runtime.Gosched()
	}
	a.life.state.Or(closed)
	a.life.mu.Unlock()
	if err := <-split; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	a.life.state.And(^uint32(closed)) // for the Close that follows
}

type noLink struct{}

func (noLink) close() error { return nil }

// By the time that Close leaves the mapping to whoever holds memory it is theirs: they may give it back at once, while Close waits for others.
func TestCloseLeavesMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := geometry{minCells, minData, 0}
		fd, span, err := makeMemfd(g)
		if err = errors.Join(err, unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
		c := newConn(span, g, true, false, Peer{})
		c.link = noLink{}
		if m, err := c.Acquire(8); m == nil || err != nil {
			t.Fatal(err)
		}
		if err := c.s.gate.enter(c.life); err != nil { // a call that goes on
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- c.Close() }()
		synctest.Wait()
		if err := errors.Join(span.Release(), span.Retain()); err != nil {
			t.Fatalf("nothing was kept for the holder: %v", err)
		}
		c.s.gate.leave()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := c.Commit(8); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if span.Retain() == nil {
			t.Error("the memory is still mapped")
		}
	})
}

// A listener whose queue is full makes who dials wait, and is not taken for one that is not there.
func TestDialFullQueue(t *testing.T) {
	addr := "@purerdma-test-" + rand.Text()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: addr}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), addr)
	l, err := net.FileListener(f)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	var waiting []io.Closer
	for {
		nc, err := net.Dial("unixpacket", addr)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, nc)
	}
	if err := try(addr); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	time.AfterFunc(10*time.Millisecond, func() { cancel(enough) })
	if _, err := Dial(ctx, addr); !errors.Is(err, enough) || !errors.Is(err, unix.EAGAIN) {
		t.Error(err)
	}
	type made struct {
		c   *Conn
		err error
	}
	dialled := make(chan made)
	go func() {
		c, err := Dial(t.Context(), addr)
		dialled <- made{c, err}
	}()
	for range waiting {
		nc, err := l.Accept()
		if err = errors.Join(err, nc.Close()); err != nil {
			t.Fatal(err)
		}
	}
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Take(t.Context(), nc.(*net.UnixConn))
	m := <-dialled
	if err = errors.Join(err, m.err); err != nil {
		t.Fatal(err)
	}
	for _, x := range append(waiting, c, m.c, l) {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}

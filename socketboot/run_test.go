package socketboot

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// loopback is one good session whose owners can be used again and again.
func loopback(t testing.TB) session { return goldens[0].load(t) }

func TestRunBothEnds(t *testing.T) {
	forGoldens(t, func(t *testing.T, g golden, s session) {
		synctest.Test(t, func(t *testing.T) {
			conn, acc := s.ends(t, g.layout)
			a, b := net.Pipe()
			defer a.Close()
			defer b.Close()
			done := make(chan error)
			go func() { done <- mustAcceptor(t, g.layout, acc).Run(t.Context(), b, Deadlines{}) }()
			if err := mustConnector(t, g.layout, s.handle, conn).Run(t.Context(), a, Deadlines{}); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		})
	})
}

// speak is a connector that says the first n bytes of a session in turn, and the rest of the messages it begins not at all. It
// returns when it has been answered.
func (s session) speak(c net.Conn, n int) error {
	list := helloLen + 20
	for _, turn := range []struct{ from, to, answer int }{{0, list, 20}, {list, len(s.fromConn) - 4, len(s.fromAcc) - 20}, {len(s.fromConn) - 4, len(s.fromConn), 0}} {
		if n <= turn.from {
			return nil
		}
		if _, err := c.Write(s.fromConn[turn.from:min(n, turn.to)]); err != nil {
			return err
		}
		if n < turn.to {
			return nil
		}
		if _, err := io.ReadFull(c, make([]byte, turn.answer)); err != nil {
			return err
		}
	}
	return nil
}

// hostile peers of an acceptor, each with the virtual time after which it must be rid of them.
func TestDeadlines(t *testing.T) {
	s := loopback(t)
	d := helloLen + 20
	slow := func(from, to int, pause time.Duration) func(net.Conn) {
		return func(c net.Conn) {
			_ = s.speak(c, from)
			go func() { _, _ = io.Copy(io.Discard, c) }()
			for _, b := range s.fromConn[from:to] {
				time.Sleep(pause)
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
			}
		}
	}
	for _, c := range []struct {
		name  string
		peer  func(net.Conn)
		after time.Duration
		state State
		calls int // of Establish
	}{
		{"silent", func(net.Conn) {}, 5 * time.Second, StateAccept, 0},
		{"half a magic", slow(4, 4, 0), 5 * time.Second, StateAccept, 0},
		{"a byte a second", slow(0, d, time.Second), 5 * time.Second, StateAccept, 0},
		{"silent after hello", slow(helloLen, helloLen, 0), 10 * time.Second, StateRecvDevList, 0},
		{"device list a byte a second", slow(helloLen, d, time.Second), 10 * time.Second, StateRecvDevList, 0},
		{"takes nothing", func(c net.Conn) { _, _ = c.Write(s.fromConn[:d]) }, 10 * time.Second, StateSendDevList, 0},
		{"metadata a byte a second", slow(d, len(s.fromConn), time.Second), 10 * time.Second, StateRecv, 0},
		{"no ready", slow(len(s.fromConn)-4, len(s.fromConn)-4, 0), 10 * time.Second, StatePendingReady, 1},
		{"ready after 9.9 s", slow(len(s.fromConn)-1, len(s.fromConn), 9900*time.Millisecond), 0, StatePendingReady, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, acc := s.ends(t, Layout225)
			ours, theirs := net.Pipe()
			peerDone := make(chan struct{})
			go func() {
				defer close(peerDone)
				c.peer(theirs)
			}()
			start := time.Now()
			err := mustAcceptor(t, Layout225, acc).Run(t.Context(), ours, Deadlines{})
			if c.after == 0 {
				if err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
			} else {
				var h *HandshakeError
				if !errors.As(err, &h) || !errors.Is(err, os.ErrDeadlineExceeded) || h.State != c.state || time.Since(start) != c.after {
					t.Errorf("%s: %v after %v, want it in %s after %v", c.name, err, time.Since(start), c.state, c.after)
				}
			}
			n := 0
			for _, call := range acc.calls {
				if call == "Establish" {
					n++
				}
			}
			if n != c.calls {
				t.Errorf("%s: %d queue pairs made", c.name, n)
			}
			ours.Close()
			theirs.Close()
			<-peerDone
		})
	}
}

// A peer that uses each step up to its limit meets the limit of the whole.
func TestTotalDeadline(t *testing.T) {
	s := loopback(t)
	synctest.Test(t, func(t *testing.T) {
		_, acc := s.ends(t, Layout225)
		acc.hook = func(call string) {
			if call == "Establish" {
				time.Sleep(20 * time.Second) // a kernel that takes its time is not the peer's fault, but it counts
			}
		}
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		go func() {
			time.Sleep(4 * time.Second)
			_, _ = theirs.Write(s.fromConn[:helloLen])
			time.Sleep(9 * time.Second)
			_, _ = theirs.Write(s.fromConn[helloLen : helloLen+20])
			_, _ = io.ReadFull(theirs, make([]byte, 20))
			time.Sleep(9 * time.Second)
			_, _ = theirs.Write(s.fromConn[helloLen+20 : len(s.fromConn)-4])
			_, _ = io.Copy(io.Discard, theirs)
		}()
		start := time.Now()
		err := mustAcceptor(t, Layout225, acc).Run(t.Context(), ours, Deadlines{})
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 42*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestRunCancelled(t *testing.T) {
	s := loopback(t)
	cause := errors.New("the job is over")
	for _, upTo := range []int{0, helloLen, helloLen + 20, len(s.fromConn) - 4} {
		synctest.Test(t, func(t *testing.T) {
			_, acc := s.ends(t, Layout225)
			ours, theirs := net.Pipe()
			defer ours.Close()
			defer theirs.Close()
			go func() {
				_ = s.speak(theirs, upTo)
			}()
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			start := time.Now()
			err := mustAcceptor(t, Layout225, acc).Run(ctx, ours, Deadlines{})
			if !errors.Is(err, cause) || time.Since(start) != time.Second || acc.aborts() != 1 {
				t.Errorf("after %d bytes: %v after %v, %d aborts", upTo, err, time.Since(start), acc.aborts())
			}
			// The deadline by which it was interrupted is gone.
			go func() { _, _ = theirs.Write([]byte{1}) }()
			if _, err := ours.Read(make([]byte, 1)); err != nil {
				t.Errorf("after %d bytes: connection unusable: %v", upTo, err)
			}
		})
	}
}

// The peer closes after each byte.
func TestClosedAfterEachByte(t *testing.T) {
	s := loopback(t)
	for n := 0; n < len(s.fromConn); n++ {
		if n > 64 && n < len(s.fromConn)-16 && n%97 != 0 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			conn, acc := s.ends(t, Layout225)
			check := func(m *Machine, owner *fake, stream []byte) {
				t.Helper()
				ours, theirs := net.Pipe()
				defer ours.Close()
				go func() {
					go func() { _, _ = io.Copy(io.Discard, theirs) }()
					synctest.Wait()
					for at, c := range stream {
						if _, err := theirs.Write([]byte{c}); err != nil {
							t.Errorf("byte %d: %v", at, err)
						}
						synctest.Wait()
					}
					theirs.Close()
				}()
				err := m.Run(t.Context(), ours, Deadlines{})
				if !errors.Is(err, ErrPeerClosed) || owner.aborts() != 1 {
					t.Errorf("%s, closed after %d bytes: %v, %d aborts", m.Role(), n, err, owner.aborts())
				}
			}
			check(mustAcceptor(t, Layout225, acc), acc, s.fromConn[:n])
			if n < len(s.fromAcc) {
				check(mustConnector(t, Layout225, s.handle, conn), conn, s.fromAcc[:n])
			}
		})
	}
}

// Two machines polled in turn by one goroutine, over a socket with small buffers so that writes are cut too.
func TestStep(t *testing.T) {
	forGoldens(t, func(t *testing.T, g golden, s session) {
		conn, acc := s.ends(t, g.layout)
		a, b := tcpPair(t)
		_ = a.(*net.TCPConn).SetWriteBuffer(1)
		_ = b.(*net.TCPConn).SetWriteBuffer(1)
		mc, ma := mustConnector(t, g.layout, s.handle, conn), mustAcceptor(t, g.layout, acc)
		if done, err := ma.Step(b); done || err != nil {
			t.Fatalf("with nothing to read: %v, %v", done, err)
		}
		limit := time.Now().Add(10 * time.Second)
		for doneC, doneA := false, false; !doneC || !doneA; runtime.Gosched() {
			var err [2]error
			if doneC, err[0] = mc.Step(a); err[0] == nil {
				doneA, err[1] = ma.Step(b)
			}
			if err[0] != nil || err[1] != nil || time.Now().After(limit) {
				t.Fatalf("connector in %s, acceptor in %s: %v", mc.State(), ma.State(), err)
			}
		}
		a.Close()
		if done, err := ma.Step(b); !done || err != nil {
			t.Errorf("a step after the end: %v, %v", done, err)
		}
	})
}

func TestStepSeesTheEnd(t *testing.T) {
	s := loopback(t)
	_, acc := s.ends(t, Layout225)
	a, b := tcpPair(t)
	m := mustAcceptor(t, Layout225, acc)
	_, _ = a.Write(s.fromConn[:7])
	a.Close()
	limit := time.Now().Add(10 * time.Second)
	for {
		if _, err := m.Step(b); err != nil {
			if !errors.Is(err, ErrPeerClosed) || acc.aborts() != 1 {
				t.Errorf("got %v", err)
			}
			return
		}
		if time.Now().After(limit) {
			t.Fatal("the end was not seen")
		}
		runtime.Gosched()
	}
}

// Where a connection has no descriptor, Step waits a millisecond instead.
func TestStepOverPipe(t *testing.T) {
	s := loopback(t)
	synctest.Test(t, func(t *testing.T) {
		conn, acc := s.ends(t, Layout225)
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		poll := func(m *Machine, c net.Conn) error {
			for range 1000 {
				if done, err := m.Step(c); done || err != nil {
					return err
				}
			}
			return errors.New("never done")
		}
		done := make(chan error)
		go func() { done <- poll(mustAcceptor(t, Layout225, acc), b) }()
		if err := poll(mustConnector(t, Layout225, s.handle, conn), a); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func tcpPair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}

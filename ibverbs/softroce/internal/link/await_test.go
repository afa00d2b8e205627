package link

import (
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// A goroutine that sleeps in Await holds up nobody who takes, and wakes for each
// packet that nobody took.
func TestUDPAwait(t *testing.T) {
	a, b := listen(t, UDPConfig{}), listen(t, UDPConfig{})
	if !b.Awaits() {
		t.Skip("not on this system")
	}
	woken := make(chan error)
	begin := func() { go func() { woken <- b.Await() }() }
	batch := make([]Datagrams, 4)
	take := func() (n int) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); n == 0 && time.Now().Before(end); {
			m, err := b.TryRecv(batch)
			if err != nil {
				t.Fatal(err)
			}
			n += m
		}
		return n
	}
	one := stretch(b.LocalAddr(), 0, 1, 16)
	for range 50 {
		begin()
		sendAll(t, a, one)
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		if n := take(); n != 1 {
			t.Fatalf("%d packets", n)
		}
	}
	// What is there already wakes as well, and stays.
	sendAll(t, a, one)
	begin()
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	begin()
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	if n := take(); n != 1 {
		t.Fatalf("%d packets", n)
	}
	begin()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-woken; !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := b.Await(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := b.TryRecv(batch); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if b.LocalAddr().Port() != wire.Port {
		t.Error(b.LocalAddr())
	}
	again, err := ListenUDP(UDPConfig{Addr: b.LocalAddr().Addr()})
	if err != nil {
		t.Fatalf("the port is not free after Close: %v", err)
	}
	again.Close()
}

// Rouse ends an Await, and no other one.
func TestUDPRouse(t *testing.T) {
	a, b := listen(t, UDPConfig{}), listen(t, UDPConfig{})
	if !b.Awaits() {
		t.Skip("not on this system")
	}
	batch := make([]Datagrams, 4)
	one := stretch(b.LocalAddr(), 0, 1, 16)
	b.Rouse() // nobody sleeps
	for range 50 {
		woken := make(chan error, 1)
		go func() { woken <- b.Await() }()
		for roused := false; !roused; {
			b.Rouse()
			select {
			case err := <-woken:
				if err != nil {
					t.Fatal(err)
				}
				roused = true
			default:
				runtime.Gosched()
			}
		}
		b.Rouse()
		sendAll(t, a, one)
		if err := b.Await(); err != nil {
			t.Fatal(err)
		}
		if n, err := b.TryRecv(batch); n != 1 || err != nil {
			t.Fatalf("after Await: %d packets, %v", n, err)
		}
	}
}

// Whoever takes packets, rouses and closes may do so at any time.
func TestUDPRouseAtAnyTime(t *testing.T) {
	a, b := listen(t, UDPConfig{}), listen(t, UDPConfig{})
	if !b.Awaits() {
		t.Skip("not on this system")
	}
	slept := make(chan error, 1)
	go func() {
		for {
			if err := b.Await(); err != nil {
				slept <- err
				return
			}
		}
	}()
	batch := make([]Datagrams, 4)
	one := stretch(b.LocalAddr(), 0, 1, 16)
	for i := range 2000 {
		if i%3 == 0 {
			sendAll(t, a, one)
		}
		if _, err := b.TryRecv(batch); err != nil {
			t.Fatal(err)
		}
		b.Rouse()
		if i%16 == 0 {
			runtime.Gosched()
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.Rouse()
	if err := <-slept; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

package nettransport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// TestCreditsInPieces shows the sender the first bytes of a group's offers before the rest: it waits for all, and waits for none.
func TestCreditsInPieces(t *testing.T) {
	for _, visible := range []int{8, 40, 48, 64, 104, 128, 176} {
		f := newFabric(t, 1, 1, memdriver.Config{}, nil)
		b := &bench{f: f, pair: connect(t, f, Config{}, Config{})}
		b.smr, _ = memory(t, &b.send.Comm, 4096)
		b.rmr, _ = memory(t, &b.recv.Comm, 4096)
		f.Device("b0").DelayTail(visible)
		var bs []Buffer
		for i := range 3 {
			bs = append(bs, Buffer{MR: b.rmr, Off: 100 * i, N: 100, Tag: 1})
		}
		r, ok, err := b.recv.Irecv(bs...)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, ok, err := b.send.Isend(Buffer{MR: b.smr, N: 50, Tag: 1}); ok != (visible >= 176) || err != nil {
			t.Fatalf("%d bytes to see: %v, %v", visible, ok, err)
		} else if ok {
			continue
		}
		f.Device("b0").ReleaseTails()
		for range 3 {
			b.isend(50)
		}
		if err := outcome(t, r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCreditsOutOfOrder lets credits of one device overtake those of another: groups are filled in their order all the same.
func TestCreditsOutOfOrder(t *testing.T) {
	b := newBench(t, Config{}, 2)
	b.f.Device("b0").Hold()
	first, second := b.irecv(100), b.irecv(200)
	if _, ok, err := b.send.Isend(Buffer{MR: b.smr, N: 1, Tag: 1}); ok || err != nil {
		t.Fatal(ok, err)
	}
	b.f.Device("b0").Resume()
	s1, s2 := b.isend(100), b.isend(200)
	for i, r := range []Request{first, second} {
		var got [1]int
		if err := r.Wait(t.Context(), got[:]); err != nil || got[0] != 100*(i+1) {
			t.Fatal(got, err)
		}
	}
	if err := errors.Join(outcome(t, s1), outcome(t, s2)); err != nil {
		t.Fatal(err)
	}
}

// TestSlowQueuePair lets later messages overtake an earlier one on another queue pair: each request ends by itself.
func TestSlowQueuePair(t *testing.T) {
	f := newFabric(t, 2, 2, memdriver.Config{}, nil)
	c := Config{Split: false}
	p := connect(t, f, c, c)
	b := &bench{f: f, pair: p}
	b.smr, _ = memory(t, &p.send.Comm, 4096)
	b.rmr, _ = memory(t, &p.recv.Comm, 4096)
	rs := []Request{b.irecv(300), b.irecv(300)}
	f.Device("a1").HoldCompletions()
	ss := []Request{b.isend(300), b.isend(300)}
	for _, r := range rs {
		if err := outcome(t, r); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range ss {
		if done, err := s.Test(nil); done || err != nil {
			t.Fatal("a message on two devices ended with one:", done, err)
		}
	}
	f.Device("a1").ReleaseCompletions()
	for _, s := range ss {
		if err := outcome(t, s); err != nil {
			t.Fatal(err)
		}
	}
}

// TestConcurrent runs several connections of one Transport, each end in a goroutine of its own, and their set-up and end beside
// them.
func TestConcurrent(t *testing.T) {
	seed := rand.Uint64()
	f := newFabric(t, 2, 2, memdriver.Config{}, nil)
	c := Config{QPsPerConn: 2}
	st, rt := transport(t, f.send, c), transport(t, f.recv, c)
	l, err := rt.Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var wg sync.WaitGroup
	for i := range 4 {
		s, err := st.Connect(t.Context(), 0, l.Handle())
		if err != nil {
			t.Fatal(err)
		}
		r, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		smr, sb := memory(t, &s.Comm, 1<<16)
		rmr, rb := memory(t, &r.Comm, 1<<16)
		random(sb, seed+uint64(i))
		const messages, room = 300, 3000
		checked := make(chan struct{})
		wg.Go(func() {
			errs := stream(messages, func(k int) (Request, bool, error) {
				n := int(uint64(k) * 7919 % room)
				return s.Isend(Buffer{MR: smr, Off: k % 16 * room, N: n, Tag: int32(k)})
			}, nil)
			<-checked // against the sender's memory, which goes with it
			if err := errors.Join(errs, s.Close()); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
		wg.Go(func() {
			errs := stream(messages, func(k int) (Request, bool, error) {
				return r.Irecv(Buffer{MR: rmr, Off: k % 16 * room, N: room, Tag: int32(k)})
			}, func(k, n int) error {
				at := k % 16 * room
				if n != int(uint64(k)*7919%room) || string(rb[at:at+n]) != string(sb[at:at+n]) {
					return fmt.Errorf("message %d of %d bytes", k, n)
				}
				return nil
			})
			close(checked)
			if err := errors.Join(errs, r.Close()); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
	wg.Wait()
}

// stream keeps 8 requests in flight until so many have ended, in order.
func stream(count int, start func(k int) (Request, bool, error), check func(k, n int) error) error {
	var rs []Request
	for started, ended := 0, 0; ended < count; runtime.Gosched() {
		if len(rs) < 8 && started < count {
			r, ok, err := start(started)
			if err != nil {
				return err
			}
			if ok {
				rs = append(rs, r)
				started++
			}
		}
		if len(rs) == 0 {
			time.Sleep(10 * time.Microsecond)
			continue
		}
		var n [1]int
		done, err := rs[0].Test(n[:])
		if err != nil {
			return err
		}
		if done {
			if check != nil {
				if err := check(ended, n[0]); err != nil {
					return err
				}
			}
			rs = rs[1:]
			ended++
		}
	}
	return nil
}

func TestFlush(t *testing.T) {
	f := newFabric(t, 2, 2, memdriver.Config{}, nil)
	b := &bench{f: f, pair: connect(t, f, Config{}, Config{Flush: true})}
	b.smr, _ = memory(t, &b.send.Comm, 4096)
	b.rmr, _ = memory(t, &b.recv.Comm, 4096)
	if _, ok, err := b.recv.Flush(Buffer{MR: b.rmr}, Buffer{MR: b.rmr}); ok || err != nil {
		t.Error("nothing came:", ok, err)
	}
	if _, ok, err := b.recv.Flush(); ok || err != nil {
		t.Error("no buffer:", ok, err)
	}
	var rs []Request
	for {
		r, ok, err := b.recv.Flush(Buffer{MR: b.rmr, N: 9}, Buffer{MR: b.rmr, Off: 9})
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		rs = append(rs, r)
	}
	if len(rs) != MaxRequests {
		t.Errorf("%d flushes in flight", len(rs))
	}
	for _, r := range rs {
		if err := outcome(t, r); err != nil {
			t.Fatal(err)
		}
	}
	if a := testing.AllocsPerRun(100, func() {
		r, _, _ := b.recv.Flush(Buffer{MR: b.rmr, N: 9})
		for done := false; !done; {
			done, _ = r.Test(nil)
		}
	}); a != 0 {
		t.Errorf("%v allocations", a)
	}
}

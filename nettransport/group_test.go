package nettransport

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// begun is for requests that must be taken.
func begun(t *testing.T) func(Request, bool, error) Request {
	return func(r Request, ok bool, err error) Request {
		t.Helper()
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		return r
	}
}

// A group whose second queue pair refuses its request has not been sent, whatever completed on the first.
func TestHalfPostedGroupFails(t *testing.T) {
	var delays []time.Duration
	f := newFabric(t, 1, 1, memdriver.Config{Delay: func() (d time.Duration) {
		if len(delays) > 0 {
			d, delays = delays[0], delays[1:]
		}
		return d
	}}, nil)
	split := Config{QPsPerConn: 2, Split: true}
	p := connect(t, f, split, split)
	sm, _ := memory(t, &p.send.Comm, 1<<16)
	rm, _ := memory(t, &p.recv.Comm, 1<<16)
	must, ctx := begun(t), t.Context()

	pair := must(p.recv.Irecv(Buffer{MR: rm, N: 8, Tag: 1}, Buffer{MR: rm, Off: 8, N: 8, Tag: 2}))
	r0 := must(p.send.Isend(Buffer{MR: sm, N: 8, Tag: 1}))
	r1 := must(p.send.Isend(Buffer{MR: sm, N: 8, Tag: 2}))
	if err := errors.Join(r1.Wait(ctx, nil), r0.Wait(ctx, nil), pair.Wait(ctx, nil)); err != nil {
		t.Fatal(err)
	}

	must(p.recv.Irecv(Buffer{MR: rm, Off: 4096, N: 8192, Tag: 3}))
	must(p.recv.Irecv(Buffer{MR: rm, Off: 32768, N: 8192, Tag: 4}))
	delays = []time.Duration{0, time.Hour} // the second half of a stays on its way
	a := must(p.send.Isend(Buffer{MR: sm, N: 8192, Tag: 3}))
	if done, err := a.Test(nil); done || err != nil {
		t.Fatal(done, err)
	}
	f.Device("a0").FailNext(memdriver.OpPostSend, nil, syscall.EIO)
	if _, ok, err := p.send.Isend(Buffer{MR: sm, N: 8192, Tag: 4}); ok || !errors.Is(err, syscall.EIO) {
		t.Fatalf("Isend: %v, %v, want EIO", ok, err)
	}
	if done, err := a.Test(nil); !done || !errors.Is(err, syscall.EIO) {
		t.Errorf("a request of which half is on its way: %v, %v, want EIO", done, err)
	}
}

// The time in which a program asks for nothing is no lack of progress.
func TestProgressTimeoutCountsRequestsOnly(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	const limit = 200 * time.Millisecond
	p := connect(t, f, Config{}, Config{ProgressTimeout: limit})
	sm, _ := memory(t, &p.send.Comm, 4096)
	rm, _ := memory(t, &p.recv.Comm, 4096)
	must, ctx := begun(t), t.Context()
	for round := range 2 {
		r := must(p.recv.Irecv(Buffer{MR: rm, N: 8}))
		for range 4 * idleLooks { // the sender is a little late
			if done, err := r.Test(nil); done {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		s := must(p.send.Isend(Buffer{MR: sm, N: 8}))
		if err := errors.Join(s.Wait(ctx, nil), r.Wait(ctx, nil)); err != nil {
			t.Fatal(round, err)
		}
		if round == 0 {
			p.recv.lastProgress = time.Now().Add(-2 * limit) // the program computed for so long
		}
	}
}

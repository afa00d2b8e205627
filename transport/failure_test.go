package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/socketboot/bootstrap"
)

// failedAt checks that every rank's error names the same rank, and that the rank itself has the cause.
func failedAt(t *testing.T, errs []error, rank int, cause error, words ...string) {
	t.Helper()
	for r, err := range errs {
		var e *RankError
		if !errors.As(err, &e) || e.Rank != rank {
			t.Errorf("rank %d: %v, want one about rank %d", r, err, rank)
			continue
		}
		if r == rank && !errors.Is(err, cause) || r != rank && !errors.Is(err, ErrPeerFailed) {
			t.Errorf("rank %d: %v", r, err)
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("rank %d: %q does not tell %q", r, err, word)
			}
		}
	}
}

var errBroken = errors.New("out of memory for buffers")

// A transport fails at each call in turn, at each rank; all ranks fail alike and keep nothing, and the next Connect succeeds.
func TestFailureAtEachCallLeavesNothingAndCanBeRetried(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5} {
		for _, what := range []string{"setup", "connect"} {
			for call := range 2 * (n - 1) {
				for _, rank := range []int{0, n - 1} {
					t.Run(fmt.Sprintf("%d ranks, %s %d of rank %d", n, what, call, rank), func(t *testing.T) {
						w := newWorld(t, n, nil, nil)
						defer w.close(t)
						count := 0
						w.f.fault = func(r int, w string, e End) error {
							if r == rank && w == what {
								if count++; count == call+1 {
									return errBroken
								}
							}
							return nil
						}
						failedAt(t, w.connect(t.Context(), mesh(n, 1)), rank, errBroken, "out of memory", "SHM")
						w.f.none(t)
						w.f.fault = nil
						for rank, err := range w.connect(t.Context(), mesh(n, 1)) {
							if err != nil {
								t.Errorf("rank %d, again: %v", rank, err)
							}
						}
						w.connected(t, mesh(n, 1))
					})
				}
			}
		}
	}
}

// While one rank fails, its peers sit in the middle of connecting to it: they are told.
func TestFailureReachesWhoIsConnecting(t *testing.T) {
	const n = 5
	w := newWorld(t, n, nil, nil)
	defer w.close(t)
	var waiting atomic.Int32
	w.f.fault = func(rank int, what string, e End) error {
		switch {
		case what != "connect":
		case rank == 2 && waiting.Load() >= n-1:
			return errBroken
		case rank == 2:
			return errNever
		case e.Peer == 2:
			waiting.Add(1)
			return errNever
		}
		return nil
	}
	failedAt(t, w.connect(t.Context(), mesh(n, 1)), 2, errBroken)
	w.f.none(t)
}

func TestTwoRanksFail(t *testing.T) {
	w := newWorld(t, 6, nil, nil)
	defer w.close(t)
	w.f.fault = func(rank int, what string, e End) error {
		if rank >= 3 && rank <= 4 && what == "setup" && e.Peer == 0 {
			return errBroken
		}
		return nil
	}
	errs := w.connect(t.Context(), mesh(6, 2))
	for rank, err := range errs {
		// The lowest that failed by itself; the other of the two may have been told before its own turn came.
		var e *RankError
		if !errors.As(err, &e) || e.Rank != 3 && e.Rank != 4 || err.Error()[:20] != errs[0].Error()[:20] {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	w.f.none(t)
}

// The end of one rank's context fails the call at all, and the next one succeeds.
func TestContextEnds(t *testing.T) {
	const n = 4
	w := newWorld(t, n, nil, nil)
	defer w.close(t)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	w.f.fault = func(rank int, what string, e End) error {
		if what == "connect" && rank == 1 {
			cancel(enough)
			return errNever
		}
		return nil
	}
	errs := make([]error, n)
	each(n, func(rank int) {
		c := t.Context()
		if rank == 1 {
			c = ctx
		}
		errs[rank] = w.comms[rank].Connect(c, Mesh(rank, n, 2))
	})
	for rank, err := range errs {
		if rank == 1 && !errors.Is(err, enough) || err == nil {
			t.Errorf("rank %d: %v", rank, err)
		}
		if e := (*RankError)(nil); rank != 1 && (!errors.As(err, &e) || e.Rank != 1 || !strings.Contains(err.Error(), "enough")) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	w.f.fault = nil
	for rank, err := range w.connect(t.Context(), mesh(n, 2)) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	w.connected(t, mesh(n, 2))
}

// Wherever in the call the context of a rank ends, all ranks have succeeded or none has.
func TestContextEndsAtEachStage(t *testing.T) {
	const n = 3
	for call := int32(1); ; call++ {
		ctx, cancel := context.WithCancel(t.Context())
		var armed atomic.Bool
		var count atomic.Int32
		w := newWorld(t, n, func(rank int) {
			if rank == 1 && armed.Load() && count.Add(1) == call {
				cancel()
			}
		}, nil)
		armed.Store(true)
		errs := make([]error, n)
		each(n, func(rank int) {
			c := t.Context()
			if rank == 1 {
				c = ctx
			}
			errs[rank] = w.comms[rank].Connect(c, Mesh(rank, n, 1))
		})
		armed.Store(false)
		if (errs[0] == nil) != (errs[1] == nil) || (errs[0] == nil) != (errs[2] == nil) {
			t.Errorf("call %d: %v", call, errs)
		}
		for rank, err := range w.connect(t.Context(), mesh(n, 2)) { // makes what is missing
			if err != nil {
				t.Errorf("call %d, rank %d, again: %v", call, rank, err)
			}
		}
		w.connected(t, mesh(n, 2))
		w.close(t)
		cancel()
		if count.Load() < call {
			break
		}
	}
}

// What is connected stays as it is, and only the rest is made.
func TestMoreChannelsLater(t *testing.T) {
	w := newWorld(t, 3, nil, nil)
	defer w.close(t)
	var before Connector
	for channels := 1; channels <= 4; channels++ {
		for rank, err := range w.connect(t.Context(), ring(3, channels)) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		w.connected(t, ring(3, channels))
		first := w.comms[0].Connector(End{Peer: 1, Send: true})
		if before != nil && first != before {
			t.Error("an end was made again")
		}
		before = first
	}
}

// A rank that is late finds that another has given up; the next call is in step again.
func TestLateRank(t *testing.T) {
	const n = 3
	w := newWorld(t, n, nil, nil)
	defer w.close(t)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	each(2, func(rank int) {
		if err := w.comms[rank].Connect(short, Ring(rank, n, 2)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("rank %d: %v", rank, err)
		}
	})
	if err := w.comms[2].Connect(t.Context(), Ring(2, n, 2)); !errors.Is(err, ErrPeerFailed) || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("got %v", err)
	}
	for rank, err := range w.connect(t.Context(), ring(n, 2)) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	w.connected(t, ring(n, 2))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.comms[0].Connect(ended, Ring(0, n, 2)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for rank, err := range w.connect(t.Context(), mesh(n, 1)) { // a call that did not begin does not count
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A rank dies at each of its calls to the bootstrap, and of its transport: all others are told which.
func TestDeathAtEachStage(t *testing.T) {
	const n, dead = 4, 2
	for _, where := range []string{"bootstrap", "setup", "connect"} {
		for call := 1; ; call++ {
			stages := int32(0)
			killed := false
			t.Run(fmt.Sprintf("%s %d", where, call), func(t *testing.T) {
				var jobs []*bootstrap.Memory
				var armed atomic.Bool
				var count atomic.Int32
				step := func(rank int, at string) {
					if rank == dead && at == where && armed.Load() {
						if count.Add(1) == int32(call) {
							jobs[dead].Kill()
						}
					}
				}
				w := newWorld(t, n, func(rank int) { step(rank, "bootstrap") }, nil)
				defer w.close(t)
				jobs = w.jobs
				w.f.fault = func(rank int, what string, _ End) error { step(rank, what); return nil }
				armed.Store(true)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				errs := w.connect(ctx, mesh(n, 1))
				stages = count.Load()
				if killed = int(stages) >= call; !killed {
					return
				}
				for rank, err := range errs {
					var e *bootstrap.RankError
					if !errors.As(err, &e) || e.Rank != dead || !errors.Is(err, bootstrap.ErrDied) || !strings.Contains(err.Error(), "memory:2") {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
				w.f.none(t)
			})
			if !killed {
				if stages == 0 {
					t.Errorf("%s: no stage was seen", where)
				}
				break
			}
		}
	}
}

// Without a rank that has left nothing can be connected; the others hear it, those too that have nothing to do with it.
func TestARankThatHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4, nil, nil)
		defer w.close(t)
		_ = w.jobs[2].Close()
		errs := make([]error, 4)
		each(4, func(rank int) {
			if rank != 2 {
				errs[rank] = w.comms[rank].Connect(t.Context(), Ring(rank, 4, 1))
			}
		})
		for rank, err := range errs {
			if rank != 2 && (err == nil || !strings.Contains(err.Error(), "rank 2") || !strings.Contains(err.Error(), bootstrap.ErrLeft.Error())) {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	})
}

func TestMasksMustAgree(t *testing.T) {
	for want, change := range map[string]func(rank int, l *Links){
		"rank 1 sends to rank 2 on channels 0-1,3, rank 2 receives on 0-1": func(rank int, l *Links) {
			if rank == 1 {
				l.Send[2] |= 8
			}
		},
		"rank 0 receives from rank 2 on channels 0-1, rank 2 sends on none": func(rank int, l *Links) {
			if rank == 2 {
				delete(l.Send, 0)
			}
		},
		"rank 0 sends to rank 2 on channels 2, rank 2 receives on none": func(rank int, l *Links) {
			if rank == 0 {
				l.Send[2] = 4
			}
		},
	} {
		w := newWorld(t, 3, nil, nil)
		links := func(rank int) Links { l := Ring(rank, 3, 2); change(rank, &l); return l }
		for rank, err := range w.connect(t.Context(), links) {
			if !errors.Is(err, ErrMasks) || !strings.Contains(err.Error(), want) {
				t.Errorf("rank %d: %v, want %q", rank, err, want)
			}
		}
		if n := w.f.setups[0] + w.f.setups[1] + w.f.setups[2]; n != 0 {
			t.Errorf("%d ends were set up", n)
		}
		for rank, err := range w.connect(t.Context(), ring(3, 2)) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		w.close(t)
	}
}

func TestBadLinksFailEverywhere(t *testing.T) {
	for want, bad := range map[string]Links{
		"rank 1, want another":  {Send: map[int]uint64{1: 1}},
		"rank 3":                {Recv: map[int]uint64{3: 1}},
		"channel 4":             {Send: map[int]uint64{0: 16}},
		"ConnIndex is 2":        {ConnIndex: 2},
		"Links.Graph is 6":      {Graph: 6},
		"connection index 1":    {ConnIndex: 1},
		"channel 63, want chan": {Recv: map[int]uint64{2: 1 << 63}},
	} {
		w := newWorld(t, 3, nil, nil)
		errs := w.connect(t.Context(), func(rank int) Links {
			if rank == 1 {
				return bad
			}
			return Links{}
		})
		for rank, err := range errs {
			if e := (*RankError)(nil); !errors.As(err, &e) || e.Rank != 1 || !strings.Contains(err.Error(), want) {
				t.Errorf("rank %d: %v, want %q", rank, err, want)
			}
		}
		w.close(t)
	}
}

func TestClose(t *testing.T) {
	w := newWorld(t, 2, nil, nil)
	for _, err := range w.connect(t.Context(), ring(2, 1)) {
		if err != nil {
			t.Fatal(err)
		}
	}
	waiting := make(chan error, 1)
	go func() { waiting <- w.comms[0].Connect(context.Background(), Mesh(0, 2, 1)) }()
	time.Sleep(time.Millisecond)
	w.close(t)
	if err := <-waiting; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := w.comms[0].Connect(t.Context(), Mesh(0, 2, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

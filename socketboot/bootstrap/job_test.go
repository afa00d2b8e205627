package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/socketboot"
)

func TestAllGather(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			jobs(t, n, func(t *testing.T, all []Job, _ func(int)) {
				each(n, func(rank int) {
					for round := range 5 {
						mine := bytes.Repeat([]byte{byte(rank), byte(round)}, rank*round)
						got, err := all[rank].AllGather(soon(t), mine)
						if err != nil {
							t.Errorf("rank %d: %v", rank, err)
							return
						}
						for r, b := range got {
							if want := bytes.Repeat([]byte{byte(r), byte(round)}, r*round); !bytes.Equal(b, want) {
								t.Errorf("rank %d, round %d: rank %d gave %x, want %x", rank, round, r, b, want)
							}
						}
						if err := all[rank].Barrier(soon(t)); err != nil {
							t.Error(err)
						}
					}
				})
			})
		})
	}
}

func TestBarrierHolds(t *testing.T) {
	jobs(t, 3, func(t *testing.T, all []Job, _ func(int)) {
		passed := make(chan int, 3)
		go func() { _ = all[0].Barrier(soon(t)); passed <- 0 }()
		go func() { _ = all[1].Barrier(soon(t)); passed <- 1 }()
		select {
		case r := <-passed:
			t.Errorf("rank %d passed without rank 2", r)
		case <-time.After(20 * time.Millisecond):
		}
		if err := all[2].Barrier(soon(t)); err != nil {
			t.Error(err)
		}
		<-passed
		<-passed
	})
}

// Messages that nobody has asked for wait, by rank and tag, in order.
func TestMessages(t *testing.T) {
	jobs(t, 3, func(t *testing.T, all []Job, _ func(int)) {
		send := func(from, to int, tag uint32, b string) {
			if err := all[from].Send(soon(t), to, tag, []byte(b)); err != nil {
				t.Errorf("%d to %d: %v", from, to, err)
			}
		}
		if b, ok, err := all[2].TryRecv(0, 7); ok || err != nil {
			t.Errorf("got %q, %v", b, err)
		}
		send(0, 2, 7, "first")
		send(1, 2, 7, "other")
		send(0, 2, 8, "")
		send(0, 2, 7, "second")
		send(2, 2, 7, "to myself")
		want := func(from int, tag uint32, b string) {
			t.Helper()
			if got, err := all[2].Recv(soon(t), from, tag); err != nil || string(got) != b {
				t.Errorf("got %q, %v; want %q", got, err, b)
			}
		}
		want(0, 8, "")
		want(0, 7, "first")
		want(1, 7, "other")
		want(2, 7, "to myself")
		if b, ok, err := all[2].TryRecv(0, 7); !ok || err != nil || string(b) != "second" {
			t.Errorf("got %q, %v, %v", b, ok, err)
		}
	})
}

func TestWaitsEndWithTheirContext(t *testing.T) {
	jobs(t, 3, func(t *testing.T, all []Job, _ func(int)) {
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { time.Sleep(10 * time.Millisecond); cancel(enough) }()
		_, err := all[0].Recv(ctx, 1, 0x101)
		names(t, err, 1, enough, "receive with tag 0x101", all[0].Addr(1))
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		_, err = all[0].AllGather(ctx, []byte("a0"))
		if !errors.Is(err, enough) {
			t.Errorf("got %v", err)
		}
		if err := all[0].Send(ctx, 1, 1, nil); !errors.Is(err, enough) {
			t.Errorf("got %v", err)
		}
		// What rank 0 gave counts, and its next all-gather is the next.
		each(3, func(rank int) {
			if rank > 0 {
				got, err := all[rank].AllGather(soon(t), fmt.Appendf(nil, "a%d", rank))
				if err != nil || string(bytes.Join(got, nil)) != "a0a1a2" {
					t.Errorf("rank %d: %q, %v", rank, got, err)
				}
			}
			got, err := all[rank].AllGather(soon(t), fmt.Appendf(nil, "b%d", rank))
			if err != nil || string(bytes.Join(got, nil)) != "b0b1b2" {
				t.Errorf("rank %d: %q, %v", rank, got, err)
			}
		})
	})
}

func TestAllGatherNamesWhoIsMissing(t *testing.T) {
	jobs(t, 4, func(t *testing.T, all []Job, _ func(int)) {
		each(4, func(rank int) {
			if rank == 2 {
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := all[rank].AllGather(ctx, nil)
			names(t, err, 2, context.DeadlineExceeded, "all-gather")
		})
	})
}

func TestDeathIsToldToAll(t *testing.T) {
	for _, n := range []int{2, 3, 5, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			jobs(t, n, func(t *testing.T, all []Job, kill func(int)) {
				const dead = 1
				addr := all[0].Addr(dead)
				if err := all[dead].Send(soon(t), 0, 5, []byte("last words")); err != nil {
					t.Fatal(err)
				}
				go func() { time.Sleep(5 * time.Millisecond); kill(dead) }()
				each(n, func(rank int) {
					if rank == dead {
						return
					}
					var err error
					if rank%2 == 0 { // one kind of wait or the other, and none of them for the dead rank alone
						_, err = all[rank].AllGather(soon(t), nil)
					} else {
						_, err = all[rank].Recv(soon(t), (dead+n-2)%n, 1)
					}
					names(t, err, dead, ErrDied, addr)
					<-all[rank].Done()
					names(t, all[rank].Err(), dead, ErrDied)
					names(t, all[rank].Send(soon(t), (dead+n-2)%n, 1, nil), dead, ErrDied)
				})
				if b, err := all[0].Recv(soon(t), dead, 5); err != nil || string(b) != "last words" {
					t.Errorf("got %q, %v", b, err)
				}
			})
		})
	}
}

// Who learns of a death and leaves at once is not taken for the dead: its neighbours hear from it who that was.
func TestDeathIsToldBeforeWhoLearnsOfItLeaves(t *testing.T) {
	const n, dead = 5, 1
	for range 5 {
		all := overTCP(t, n, nil)
		each(n, func(rank int) {
			if rank == dead {
				all[dead].kill()
				return
			}
			<-all[rank].Done()
			_ = all[rank].Close()
			names(t, all[rank].Err(), dead, ErrDied)
		})
	}
}

func TestAbortIsToldToAll(t *testing.T) {
	jobs(t, 5, func(t *testing.T, all []Job, _ func(int)) {
		all[3].Abort(errors.New("no memory left"))
		each(5, func(rank int) {
			_, err := all[rank].Recv(soon(t), 0, 1)
			names(t, err, 3, ErrAborted, "no memory left")
		})
		all[3].Abort(errors.New("again"))
	})
}

// Who leaves takes nothing away from the others but himself.
func TestLeaving(t *testing.T) {
	jobs(t, 5, func(t *testing.T, all []Job, _ func(int)) {
		each(5, func(rank int) {
			if _, err := all[rank].AllGather(soon(t), []byte{1}); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
			if rank == 2 {
				if err := all[2].Send(soon(t), 4, 9, []byte("goodbye")); err != nil {
					t.Error(err)
				}
				_ = all[2].Close()
				_ = all[2].Close()
			}
		})
		if _, err := all[2].AllGather(soon(t), nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
		if b, err := all[4].Recv(soon(t), 2, 9); err != nil || string(b) != "goodbye" {
			t.Errorf("got %q, %v", b, err)
		}
		_, err := all[4].Recv(soon(t), 2, 9)
		names(t, err, 2, ErrLeft)
		for _, rank := range []int{0, 1, 3, 4} {
			_, err := all[rank].AllGather(soon(t), nil)
			names(t, err, 2, ErrLeft, "all-gather")
		}
		names(t, all[0].Send(soon(t), 2, 1, nil), 2, ErrLeft)
		if err := all[0].Send(soon(t), 4, 1, []byte("still here")); err != nil {
			t.Error(err)
		}
		if b, err := all[4].Recv(soon(t), 0, 1); err != nil || string(b) != "still here" {
			t.Errorf("got %q, %v", b, err)
		}
	})
}

// All leave at once after a barrier, as programs end: nobody sees an error.
func TestAllLeave(t *testing.T) {
	for range 5 {
		members := overTCP(t, 4, nil)
		each(4, func(rank int) {
			if err := members[rank].Barrier(soon(t)); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
			_ = members[rank].Close()
		})
	}
}

func TestBadCalls(t *testing.T) {
	jobs(t, 2, func(t *testing.T, all []Job, _ func(int)) {
		if err := all[0].Send(soon(t), 2, 1, nil); err == nil {
			t.Error("sent to rank 2 of 2")
		}
		if _, err := all[0].Recv(soon(t), -1, 1); err == nil {
			t.Error("received from rank -1")
		}
		if _, _, err := all[0].TryRecv(2, 1); err == nil {
			t.Error("received from rank 2 of 2")
		}
		if err := all[0].Send(soon(t), 1, 1, make([]byte, 4<<20+1)); !errors.Is(err, ErrTooLong) {
			t.Errorf("got %v", err)
		}
		if _, err := all[0].AllGather(soon(t), make([]byte, 64<<10+1)); !errors.Is(err, ErrTooLong) {
			t.Errorf("got %v", err)
		}
	})
}

// A receiver that nobody empties refuses more at its limit, and only that.
func TestUnaskedMessagesAreBounded(t *testing.T) {
	members := overTCP(t, 2, func(c *Config) { c.Limits.Queued = 1000 })
	var err error
	sent := 0
	for ; err == nil && sent < 100; sent++ {
		err = members[0].Send(soon(t), 1, uint32(sent), make([]byte, 36))
	}
	names(t, err, 1, err)
	if sent != 11 {
		t.Errorf("message %d was refused: %v", sent, err)
	}
	if _, err := members[1].Recv(soon(t), 0, 0); err != nil {
		t.Error(err)
	}
	if err := members[0].Send(soon(t), 1, 50, make([]byte, 36)); err != nil {
		t.Error(err)
	}
}

func TestIPv6(t *testing.T) {
	if c, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("no IPv6 here: %v", err)
	} else {
		_ = c.Close()
	}
	members := overTCP(t, 3, func(c *Config) { c.Net = loopback(t, netip.MustParseAddrPort("[::1]:0")) })
	each(3, func(rank int) {
		if err := members[rank].Send(soon(t), (rank+1)%3, 1, []byte{byte(rank)}); err != nil {
			t.Error(err)
		}
		if b, err := members[rank].Recv(soon(t), (rank+2)%3, 1); err != nil || b[0] != byte((rank+2)%3) {
			t.Errorf("%v, %v", b, err)
		}
	})
}

func TestManyRanks(t *testing.T) {
	const n = 40
	members := overTCP(t, n, func(c *Config) { c.Net.Retry = socketboot.Retry{} })
	each(n, func(rank int) {
		for i := 1; i < n; i++ {
			if err := members[rank].Send(soon(t), (rank+i)%n, uint32(i), []byte{byte(rank)}); err != nil {
				t.Error(err)
			}
		}
		for i := 1; i < n; i++ {
			if b, err := members[rank].Recv(soon(t), (rank-i+n)%n, uint32(i)); err != nil || b[0] != byte((rank-i+n)%n) {
				t.Errorf("%v, %v", b, err)
			}
		}
	})
}

// A reason that is nil is told as none, by a rank and by the root.
func TestNoReason(t *testing.T) {
	members := overTCP(t, 2, nil)
	memory := InMemory(2, nil)
	for _, pair := range [][2]Job{{members[0], members[1]}, {memory[0], memory[1]}} {
		pair[0].Abort(nil)
		for _, job := range pair {
			<-job.Done()
			if err := job.Err(); !errors.Is(err, ErrAborted) || !strings.Contains(err.Error(), "no reason was given") {
				t.Errorf("rank %d: %v", job.Rank(), err)
			}
			job.Abort(nil) // again: nothing
			_ = job.Close()
			job.Abort(nil)
		}
	}
	r := root(t, RootConfig{Net: loopback(t, ip4)})
	r.Fail(nil)
	<-r.Met()
	if r.Err() == nil {
		t.Error("a meeting that failed for no reason has ended well")
	}
	if n := len(InMemory(-1, nil)); n != 0 {
		t.Errorf("%d ranks", n)
	}
}

package transport_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/purerdma/purerdma/internal/racetest"
	"github.com/purerdma/purerdma/transport"
)

// What is made in place is received by Recv, and what is sent by Send is read in place.
func TestInPlace(t *testing.T) {
	ways(t, func(t *testing.T, p plan) {
		c, ctx := newCrew(t, p), short(t)
		most := c[0].MaxAcquire(1)
		if most < 8000 || most > 65536 {
			t.Fatalf("%d bytes at most", most)
		}
		sizes := []int{0, 1, 24, 25, 64, 1000, most - 1, most}
		each(2, func(rank int) {
			buf := make([]byte, 4<<20)
			if rank == 0 {
				for i, n := range sizes {
					b, err := c[0].Acquire(ctx, 1, min(n+i, most))
					if err != nil || len(b) != min(n+i, most) {
						t.Error(len(b), err)
						return
					}
					if err := c[0].Send(ctx, 1, nil); !errors.Is(err, transport.ErrHeld) {
						t.Error(err)
					}
					fill(b[:n], uint64(i))
					if err := c[0].Commit(ctx, 1, n); err != nil {
						t.Error(err)
						return
					}
				}
				for i, n := range edges {
					if err := c[0].Send(ctx, 1, fill(buf[:n], uint64(i))); err != nil {
						t.Error(err)
						return
					}
				}
				return
			}
			for i, want := range sizes {
				n, err := c[1].Recv(ctx, 0, buf)
				if err != nil || n != want || !bytes.Equal(buf[:n], fill(make([]byte, n), uint64(i))) {
					t.Errorf("%d bytes, want %d, or other bytes: %v", n, want, err)
					return
				}
			}
			for i, want := range edges {
				got := buf[:0]
				for rest := 1; rest > 0; {
					b, left, err := c[1].Next(ctx, 0)
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := c[1].Recv(ctx, 0, nil); !errors.Is(err, transport.ErrHeld) {
						t.Error(err)
					}
					if _, _, err := c[1].Next(ctx, 0); !errors.Is(err, transport.ErrHeld) {
						t.Error(err)
					}
					got, rest = append(got, b...), left
					if len(got)+left != want {
						t.Errorf("%d bytes and %d to come, want %d", len(got), left, want)
						return
					}
					if err := c[1].Release(0); err != nil {
						t.Error(err)
						return
					}
				}
				if !bytes.Equal(got, fill(make([]byte, want), uint64(i))) {
					t.Errorf("other bytes in a message of %d", want)
				}
			}
		})
	})
}

func TestInPlaceRefused(t *testing.T) {
	ways(t, func(t *testing.T, p plan) {
		c, ctx := newCrew(t, p), short(t)
		for want, errs := range map[error][]error{
			transport.ErrNotHeld: {c[0].Commit(ctx, 1, 0), c[0].Release(1), c[0].Commit(ctx, 0, 0), c[0].Release(0), c[0].Release(9), c[0].Commit(ctx, -1, 0)},
			transport.ErrTooLong: {acquire(ctx, c[0], 1, c[0].MaxAcquire(1)+1), acquire(ctx, c[0], 1, -1)},
			transport.ErrSelf:    {acquire(ctx, c[0], 0, 1), next(ctx, c[0], 0)},
		} {
			for _, err := range errs {
				var peer *transport.PeerError
				if !errors.Is(err, want) || !errors.As(err, &peer) {
					t.Errorf("%v, want %v", err, want)
				}
			}
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := next(ended, c[0], 1); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		b, err := c[0].Acquire(ctx, 1, 8)
		if err != nil {
			t.Fatal(err)
		}
		if err := c[0].Commit(ctx, 1, 9); !errors.Is(err, transport.ErrTooLong) {
			t.Error(err)
		}
		if err := acquire(ctx, c[0], 1, 8); !errors.Is(err, transport.ErrHeld) {
			t.Error(err)
		}
		// Memory that is out outlives Close.
		if err := c[0].Close(); err != nil {
			t.Error(err)
		}
		copy(b, "12345678")
		if err := c[0].Commit(ctx, 1, 8); !errors.Is(err, transport.ErrClosed) {
			t.Error(err)
		}
		if err := c[0].Commit(ctx, 1, 8); !errors.Is(err, transport.ErrNotHeld) {
			t.Error(err)
		}
	})
}

func acquire(ctx context.Context, c *transport.Communicator, peer, n int) error {
	_, err := c.Acquire(ctx, peer, n)
	return err
}

func next(ctx context.Context, c *transport.Communicator, peer int) error {
	_, _, err := c.Next(ctx, peer)
	return err
}

// A reader that closes in the middle of a message keeps the part that it has.
func TestCloseUnderNext(t *testing.T) {
	ways(t, func(t *testing.T, p plan) {
		c, ctx := newCrew(t, p), short(t)
		var sent sync.WaitGroup
		sent.Go(func() {
			if err := c[0].Send(ctx, 1, fill(make([]byte, 16<<20), 1)); err == nil || ctx.Err() != nil {
				t.Error(err)
			}
		})
		b, left, err := c[1].Next(ctx, 0)
		if err != nil || len(b)+left != 16<<20 {
			t.Fatal(len(b), left, err)
		}
		if err := c[1].Close(); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(b, fill(make([]byte, 16<<20), 1)[:len(b)]) {
			t.Error("other bytes")
		}
		if err := c[1].Release(0); !errors.Is(err, transport.ErrClosed) {
			t.Error(err)
		}
		sent.Wait()
	})
}

func TestInPlaceDoesNotAllocate(t *testing.T) {
	if racetest.Enabled {
		t.Skip("pools forget under the race detector")
	}
	ways(t, func(t *testing.T, p plan) {
		c, ctx := newCrew(t, p), short(t)
		const runs = 30
		each(2, func(rank int) {
			turn := func() {
				if rank == 0 {
					_, err := c[0].Acquire(ctx, 1, 4000)
					if err == nil {
						err = c[0].Commit(ctx, 1, 4000)
					}
					if err != nil {
						t.Error(err)
					}
					return
				}
				b, left, err := c[1].Next(ctx, 0)
				if err == nil {
					err = c[1].Release(0)
				}
				if err != nil || len(b) != 4000 || left != 0 {
					t.Error(len(b), left, err)
				}
			}
			if rank == 1 {
				for range runs + 1 {
					turn()
				}
				return
			}
			if got := testing.AllocsPerRun(runs, turn); got >= 1 {
				t.Errorf("a message in place allocates %v times", got)
			}
		})
	})
}

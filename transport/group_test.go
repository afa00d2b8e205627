package transport_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/racetest"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/transport"
)

// size is that of a message, which both ends know.
func sizeOf(from, to, round int) int {
	r := rand.New(rand.NewPCG(uint64(from<<8|to), uint64(round)))
	return r.IntN(1 << r.IntN(19))
}

// Every rank with every rank, itself too, several messages each way at once, on two hosts.
func TestGroupOfAllWithAll(t *testing.T) {
	const n, rounds, each2 = 4, 5, 3
	c, ctx := newCrew(t, plan{hosts: []string{"a", "a", "b", "b"}, channels: 2, buffer: 1 << 18}), short(t)
	each(n, func(rank int) {
		g := c[rank].NewGroup()
		for round := range rounds {
			into, at := map[int][]byte{}, map[int][2]int{}
			for peer := range n {
				for i := range each2 {
					id := round*each2 + i
					g.Send(peer, fill(make([]byte, sizeOf(rank, peer, id)), uint64(rank<<16|peer<<8|id)))
					b := make([]byte, 1<<19)
					k := g.Recv(peer, b)
					into[k], at[k] = b, [2]int{peer, id}
				}
			}
			if err := g.Wait(ctx); err != nil {
				t.Error(err)
				return
			}
			for k, b := range into {
				peer, id := at[k][0], at[k][1]
				if n := g.Received(k); !bytes.Equal(b[:n], fill(make([]byte, sizeOf(peer, rank, id)), uint64(peer<<16|rank<<8|id))) {
					t.Errorf("rank %d: message %d of rank %d has %d bytes, want %d, or other bytes", rank, id, peer, n, sizeOf(peer, rank, id))
				}
			}
		}
	})
}

// One that fails leaves the others alone, and each says its own error.
func TestGroupWithFailures(t *testing.T) {
	c, ctx := newCrew(t, plan{hosts: oneHost(2)}), short(t)
	each(2, func(rank int) {
		g := c[rank].NewGroup()
		g.Send(1-rank, []byte("too long"))
		g.Send(1-rank, []byte("fits"))
		short, fits := g.Recv(1-rank, make([]byte, 4)), g.Recv(1-rank, make([]byte, 4))
		nobody := g.Send(7, nil)
		err := g.Wait(ctx)
		var size *transport.SizeError
		if !errors.As(err, &size) || !errors.As(g.Err(short), &size) || g.Err(nobody) == nil || g.Err(fits) != nil || g.Received(fits) != 4 || g.Received(short) != 0 {
			t.Errorf("%v; %v; %v; %d bytes, %v", err, g.Err(short), g.Err(nobody), g.Received(fits), g.Err(fits))
		}
		if err := g.Wait(ctx); err != nil {
			t.Error("an empty group:", err)
		}
	})
	ended, cancel := context.WithCancel(ctx)
	cancel()
	g := c[0].NewGroup()
	g.Recv(1, nil)
	g.Recv(1, nil)
	g.Recv(0, nil)
	if err := g.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestGroupsDoNotAllocate(t *testing.T) {
	if racetest.Enabled {
		t.Skip("pools forget under the race detector")
	}
	ways(t, func(t *testing.T, p plan) {
		c, ctx := newCrew(t, p), short(t)
		const runs = 30
		allocs := make([]float64, 2)
		each(2, func(rank int) {
			g, out, in := c[rank].NewGroup(), make([]byte, 5000), make([]byte, 5000)
			swap := func() {
				for range 4 {
					g.Send(1-rank, out)
					g.Recv(1-rank, in)
				}
				if err := g.Wait(ctx); err != nil {
					t.Error(err)
				}
			}
			if rank == 0 {
				allocs[0] = testing.AllocsPerRun(runs, swap)
				return
			}
			for range runs + 1 {
				swap()
			}
		})
		if allocs[0] >= 1 {
			t.Errorf("8 messages allocate %v times", allocs[0])
		}
	})
}

func TestMemoryForRDMA(t *testing.T) {
	c, ctx := newCrew(t, plan{hosts: hosts(2)}), short(t)
	each(2, func(rank int) {
		m, err := mr.Alloc(10000)
		if err != nil {
			t.Error(err)
			return
		}
		if rank == 0 {
			fill(m.Bytes(), 1)
			err = c[0].SendMemory(ctx, 1, m)
		} else {
			var n int
			n, err = c[1].RecvMemory(ctx, 0, m)
			if !bytes.Equal(m.Bytes()[:n], fill(make([]byte, 10000), 1)) {
				t.Errorf("%d bytes, or other bytes", n)
			}
		}
		if err := errors.Join(err, m.Close()); err != nil {
			t.Error(err)
		}
		var peer *transport.PeerError
		if err := c[rank].SendMemory(ctx, 1-rank, m); !errors.As(err, &peer) {
			t.Error(err)
		}
		if _, err := c[rank].RecvMemory(ctx, 1-rank, m); !errors.As(err, &peer) {
			t.Error(err)
		}
	})
	var _ ibverbs.Memory = (*mr.Buffer)(nil)
}

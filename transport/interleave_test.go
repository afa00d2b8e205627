package transport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// seededLinks is what each of n ranks wants in one interleaving: some pairs, near and far, on some channels.
func seededLinks(r *rand.Rand, n int) []Links {
	links := make([]Links, n)
	for rank := range links {
		links[rank] = Links{Send: map[int]uint64{}, Recv: map[int]uint64{}, ConnIndex: 1}
	}
	for range n {
		from, to := r.IntN(n), r.IntN(n)
		if from != to {
			mask := 1 + r.Uint64N(15)
			links[from].Send[to], links[to].Recv[from] = mask, mask
		}
	}
	// A pair in the last step, which is in the second batch, and the pair in the middle, where both peers are one.
	links[0].Send[n-1], links[n-1].Recv[0] = 1, 1
	links[1].Send[1+n/2], links[1+n/2].Recv[1] = 3, 3
	links[1].Recv[1+n/2], links[1+n/2].Send[1] = 4, 4
	return links
}

// 130 ranks, so two batches, in a thousand orders: before each call of the bootstrap a rank sleeps for a random time of a clock that only
// goes on when all sleep or wait, so that a deadlock is seen at once. In every third order a rank fails, and all try again.
// INTERLEAVINGS is another number of orders, INTERLEAVING_SEED the first.
func TestInterleavings(t *testing.T) {
	const n = 130
	orders, first := 1000, uint64(time.Now().UnixNano())
	if testing.Short() {
		orders = 50
	}
	if s := os.Getenv("INTERLEAVINGS"); s != "" {
		orders, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("INTERLEAVING_SEED"); s != "" {
		first, _ = strconv.ParseUint(s, 10, 64)
	}
	for order := range uint64(orders) {
		seed := first + order
		ok := t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { interleaving(t, n, seed, order%3 == 2) })
		})
		if !ok {
			t.Fatalf("INTERLEAVINGS=1 INTERLEAVING_SEED=%d shows it again", seed)
		}
	}
}

func interleaving(t *testing.T, n int, seed uint64, fails bool) {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 0))
	pause := func(int) {
		mu.Lock()
		d := time.Duration(r.IntN(64)) * time.Microsecond
		mu.Unlock()
		if d >= 16*time.Microsecond { // the others go on at once
			time.Sleep(d)
		}
	}
	plan := seededLinks(rand.New(rand.NewPCG(seed, 1)), n)
	links := func(rank int) Links { return plan[rank] }
	w := newWorld(t, n, pause, nil)
	defer w.close(t)
	w.f.slow = int(seed % 3)
	if fails {
		var once sync.Once
		w.f.fault = func(rank int, what string, e End) (err error) {
			if rank == n-1 && e.Peer == 0 {
				once.Do(func() { err = errBroken })
			}
			return err
		}
		for rank, err := range w.connect(t.Context(), links) {
			if e := (*RankError)(nil); !errors.As(err, &e) || e.Rank != n-1 {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		w.f.none(t)
	}
	for rank, err := range w.connect(t.Context(), links) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	w.connected(t, links)
}

// Every rank with every other.
func TestMeshOf130(t *testing.T) {
	const n = 130
	w := newWorld(t, n, nil, nil)
	defer w.close(t)
	w.f.slow = 2
	for rank, err := range w.connect(t.Context(), mesh(n, 2)) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	w.connected(t, mesh(n, 2))
}

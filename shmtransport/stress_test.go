//go:build linux

package shmtransport

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

var stress = flag.Duration("stress", 0, "how long TestStress moves random messages; 0 = not at all")

// Random messages both ways, on rings of random sizes, with the hint that the other core is far changing all the time and senders and
// receivers that stop now and then, so that the other one sleeps. Every byte is checked.
//
//	go test ./shmtransport -run TestStress -stress 10m
func TestStress(t *testing.T) {
	if *stress == 0 {
		t.Skip("takes as long as one likes: -stress 10m")
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	messages := 0
	for end := time.Now().Add(*stress); time.Now().Before(end); seed += 2 {
		a, b := pair(t, WithCells(minCells<<rnd.IntN(6)), WithData(minData<<rnd.IntN(6)))
		fence := rnd.IntN(2) == 0
		for _, c := range []*Conn{a, b} {
			c.s.gate.fenced, c.s.wait.fenced, c.r.wait.fenced = fence, fence, fence
		}
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 4)
		const count = 2000
		for i, c := range []*Conn{a, b} {
			s, r, err := c.Split()
			if err != nil {
				t.Fatal(err)
			}
			go func() { errs <- sendRandom(ctx, s, seed+uint64(i), count) }()
			go func() { errs <- recvRandom(ctx, r, seed+uint64(1-i), count) }()
		}
		for left := 4; left > 0; {
			select {
			case err := <-errs:
				if left--; err != nil {
					t.Errorf("seed %d: %v", seed, err)
					cancel()
				}
			case <-time.After(time.Duration(rnd.IntN(300)) * time.Microsecond):
				atomic.StoreUint32(&a.s.control.far, uint32(rnd.IntN(2)))
			}
		}
		cancel()
		if t.Failed() {
			return
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		messages += 2 * count
	}
	t.Logf("%d messages", messages)
}

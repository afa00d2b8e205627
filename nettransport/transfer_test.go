package nettransport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// transfer moves messages of these sizes, several in flight, and compares each.
func (p *pair) transfer(sizes []int, seed uint64) {
	t := p.t
	t.Helper()
	total := 0
	for _, n := range sizes {
		total += n + 1
	}
	smr, sb := memory(t, &p.send.Comm, total)
	rmr, rb := memory(t, &p.recv.Comm, total)
	defer closeMRs(t, smr, rmr)
	random(sb, seed)
	type part struct{ off, n int }
	var parts []part
	off := 0
	for _, n := range sizes {
		parts = append(parts, part{off, n})
		off += n + 1 // a byte between two, to see a write that is too long
	}
	var sends, recvs []Request
	sent, offered, received := 0, 0, 0
	for received < len(parts) {
		if offered < len(parts) {
			b := parts[offered]
			r, ok, err := p.recv.Irecv(Buffer{MR: rmr, Off: b.off, N: b.n, Tag: int32(offered)})
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				recvs = append(recvs, r)
				offered++
			}
		}
		if sent < len(parts) {
			b := parts[sent]
			r, ok, err := p.send.Isend(Buffer{MR: smr, Off: b.off, N: b.n, Tag: int32(sent)})
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				sends = append(sends, r)
				sent++
			}
		}
		if len(recvs) > 0 {
			var got [1]int
			done, err := recvs[0].Test(got[:])
			if err != nil {
				t.Fatal(err)
			}
			if done {
				b := parts[received]
				if got[0] != b.n || !bytes.Equal(rb[b.off:b.off+b.n], sb[b.off:b.off+b.n]) {
					t.Fatalf("message %d of %d bytes: %d came, equal: %v", received, b.n, got[0], bytes.Equal(rb[b.off:b.off+b.n], sb[b.off:b.off+b.n]))
				}
				if rb[b.off+b.n] != 0 {
					t.Fatalf("message %d of %d bytes: a byte more was written", received, b.n)
				}
				recvs = recvs[1:]
				received++
			}
		}
		for len(sends) > 0 {
			var got [1]int
			done, err := sends[0].Test(got[:])
			if err != nil {
				t.Fatal(err)
			}
			if !done {
				break
			}
			sends = sends[1:]
		}
	}
	for _, r := range sends {
		if err := r.Wait(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
}

func closeMRs(t testing.TB, ms ...*MR) {
	t.Helper()
	for _, m := range ms {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// edges is the sizes at which something changes: pieces of 128 bytes, path MTUs, the threshold of adaptive routing.
func edges(qps int) []int {
	sizes := []int{0, 1, 127, 128, 129, 255, 256, 257, 4095, 4096, 4097, 8191, 8192, 8193}
	for _, n := range []int{128 * qps, 256 * qps, 4096 * qps} {
		sizes = append(sizes, n-1, n, n+1)
	}
	return sizes
}

func TestTransfer(t *testing.T) {
	for _, qps := range []int{1, 2, 4, 8, 16} {
		for _, split := range []bool{false, true} {
			t.Run(fmt.Sprintf("qps=%d/split=%v", qps, split), func(t *testing.T) {
				seed := rand.Uint64()
				f := newFabric(t, 1, 1, memdriver.Config{}, nil)
				p := connect(t, f, Config{QPsPerConn: qps, Split: split}, Config{Split: split})
				p.transfer(edges(qps), seed)
				r := rand.New(rand.NewPCG(seed, 2))
				var sizes []int
				for range 60 {
					sizes = append(sizes, r.IntN(64<<10))
				}
				p.transfer(append(sizes, 1<<20+1), seed)
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			})
		}
	}
}

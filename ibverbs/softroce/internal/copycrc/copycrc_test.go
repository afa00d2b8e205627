package copycrc

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/purerdma/purerdma/internal/racetest"
)

// way is one of the implementations.
type way struct {
	name string
	f    func(crc uint32, dst, src []byte) uint32
}

// check runs a way on src at an offset of dst, with guards around it.
func check(t *testing.T, w way, crc uint32, src []byte, offset int) {
	t.Helper()
	const guard = 64
	room := make([]byte, guard+offset+len(src)+guard)
	for i := range room {
		room[i] = 0xa5
	}
	dst := room[guard+offset:]
	before := bytes.Clone(src)
	got := w.f(crc, dst[:len(src)], src)
	switch want := crc32.Update(crc, crc32.IEEETable, src); {
	case got != want:
		t.Fatalf("%s: CRC %#x of %d bytes after %#x, want %#x", w.name, got, len(src), crc, want)
	case !bytes.Equal(src, before):
		t.Fatalf("%s: the source of %d bytes was changed", w.name, len(src))
	case !bytes.Equal(dst[:len(src)], src):
		t.Fatalf("%s: %d bytes were not copied", w.name, len(src))
	}
	for i, b := range room {
		if (i < guard+offset || i >= guard+offset+len(src)) && b != 0xa5 {
			t.Fatalf("%s: byte %d beside the %d was written", w.name, i-guard-offset, len(src))
		}
	}
}

func random(g *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

// TestUpdate takes every length up to a bit more than a path MTU of 4096, at every
// alignment of both sides.
func TestUpdate(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	g := rand.New(rand.NewPCG(seed, 0))
	src := random(g, 64+4200)
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			for n := range 4200 {
				check(t, w, g.Uint32(), src[n%64:][:n], n/64%64)
			}
			for n := range 700 {
				for off := range 64 {
					check(t, w, uint32(n), src[off:][:n], 63-off)
				}
			}
		})
	}
}

// A CRC goes on from one piece to the next, and is right from the start that
// package wire has it begin with.
func TestUpdateContinues(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	src := random(g, 5000)
	for _, w := range ways() {
		for range 200 {
			crc, at := uint32(0), 0
			for at < len(src) {
				n := min(1+g.IntN(1500), len(src)-at)
				crc = w.f(crc, make([]byte, n), src[at:at+n])
				at += n
			}
			if want := crc32.ChecksumIEEE(src); crc != want {
				t.Fatalf("%s: %#x, want %#x", w.name, crc, want)
			}
		}
	}
}

func TestUpdateNeedsRoom(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a destination that is too short was taken")
		}
	}()
	Update(0, make([]byte, 99), make([]byte, 100))
}

func TestUpdateAllocatesNothing(t *testing.T) {
	dst, src := make([]byte, 4096), make([]byte, 4096)
	for _, w := range ways() {
		for _, n := range []int{7, 100, 4096} {
			if got := testing.AllocsPerRun(100, func() { w.f(1, dst[:n], src[:n]) }); got != 0 && !racetest.Enabled {
				t.Errorf("%s, %d bytes: %v allocations", w.name, n, got)
			}
		}
	}
}

func FuzzUpdate(f *testing.F) {
	for _, n := range []int{0, 1, 15, 16, 63, 64, 65, 255, 256, 257, 1024, 4096} {
		f.Add(uint32(n), bytes.Repeat([]byte{0xff, byte(n)}, n)[:n], uint8(n))
	}
	f.Fuzz(func(t *testing.T, crc uint32, src []byte, offset uint8) {
		for _, w := range ways() {
			check(t, w, crc, src, int(offset))
		}
	})
}

// BenchmarkUpdate has beside each length what copy and hash/crc32 take for it.
func BenchmarkUpdate(b *testing.B) {
	all := append(ways(), way{"copy, then hash/crc32", func(crc uint32, dst, src []byte) uint32 {
		copy(dst, src)
		return crc32.Update(crc, crc32.IEEETable, dst[:len(src)])
	}})
	for _, n := range []int{64, 256, 1024, 4096} {
		for _, w := range all {
			b.Run(fmt.Sprintf("%s/%d", w.name, n), func(b *testing.B) {
				dst, src := make([]byte, n), make([]byte, n)
				b.SetBytes(int64(n))
				for b.Loop() {
					w.f(0, dst, src)
				}
			})
		}
	}
}

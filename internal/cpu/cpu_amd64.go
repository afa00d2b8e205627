package cpu

import "golang.org/x/sys/cpu"

// Streams tells that CopyPast goes past the caches.
const Streams = true

// PollHigh looks at *p until its upper half is want, at most looks times with a PAUSE after each that failed, and gives back what
// it saw last. What was stored before that word is visible after. PAUSE is worth a third of the latency: without it loads that were
// started ahead of time are thrown away when the line is taken.
//
//go:noescape
func PollHigh(p *uint64, want uint32, looks int) uint64

// CopyPast copies n bytes by stores that go past the caches (MOVNTDQ, then SFENCE), for a reader on a distant core: there a line that
// is modified in another core's cache costs several times what it costs in memory or in the last-level cache. n is a multiple of 64,
// dst is aligned to 64 bytes, src need not be aligned.
//
//go:noescape
func CopyPast(dst, src *byte, n int)

// CopyDistant copies the first bytes of src, which come from memory or a distant core's cache, to dst, and reports how many: all but
// fewer than 128, or none where the processor has no registers of a line's size (AVX-512). Up to 8 KiB it copies both halves at once,
// since a processor fetches two runs of lines sooner than one that is as long as both.
func CopyDistant(dst, src []byte) int {
	const pair, halves = 2 * Line, 8 << 10
	n := min(len(dst), len(src)) &^ (pair - 1)
	switch {
	case n == 0 || !wide:
		return 0
	case n <= halves:
		copyHalves(&dst[0], &src[0], n)
	default:
		copyLines(&dst[0], &src[0], n)
	}
	return n
}

var wide = cpu.X86.HasAVX512F

// copyHalves copies n bytes, a multiple of 128, a line of either half at a time.
//
//go:noescape
func copyHalves(dst, src *byte, n int)

// copyLines copies n bytes, a multiple of 128, two lines at a time.
//
//go:noescape
func copyLines(dst, src *byte, n int)

// Evicts tells that Evict does something: this processor has CLFLUSHOPT (CPUID leaf 7, EBX bit 23).
var Evicts = hasEvict()

// Evict moves the n bytes at p, whole lines, out of every cache of the machine into memory, in its own time and without waiting. It
// changes no byte. p is aligned to 64 bytes.
//
//go:noescape
func Evict(p *byte, n int)

func hasEvict() bool

// TimeLoad is how many ticks of the time stamp counter one load of *p takes.
//
//go:noescape
func TimeLoad(p *uint64) uint64

// Pause lets n PAUSEs pass.
func Pause(n int)

// Ticks is the time stamp counter.
func Ticks() uint64

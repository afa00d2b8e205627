//go:build !amd64 && !arm64

package cpu

import (
	"sync/atomic"
	"unsafe"
)

// Streams tells that CopyPast goes past the caches. Here it does not.
const Streams = false

// PollHigh looks at *p until its upper half is want, at most looks times, and gives back what it saw last. What was stored before
// that word is visible after.
func PollHigh(p *uint64, want uint32, looks int) (seen uint64) {
	for range max(looks, 1) {
		if seen = atomic.LoadUint64(p); uint32(seen>>32) == want {
			break
		}
	}
	return seen
}

// Pause does nothing.
func Pause(int) {}

// CopyPast copies n bytes.
func CopyPast(dst, src *byte, n int) { copy(unsafe.Slice(dst, n), unsafe.Slice(src, n)) }

// CopyDistant copies nothing: copy does as well.
func CopyDistant(_, _ []byte) int { return 0 }

// Evicts tells that Evict does something. Here it does not.
const Evicts = false

// Evict does nothing.
func Evict(*byte, int) {}

// TimeLoad is 0: no counter is known that is fine enough.
func TimeLoad(*uint64) uint64 { return 0 }

// Ticks is 0.
func Ticks() uint64 { return 0 }

package cpu

import "unsafe"

// Streams tells that CopyPast goes past the caches. Here it does not.
const Streams = false

// PollHigh looks at *p until its upper half is want, at most looks times with an ISB after each that failed, which on these processors
// is the pause that YIELD is not, and gives back what it saw last. What was stored before that word is visible after (LDAR).
//
//go:noescape
func PollHigh(p *uint64, want uint32, looks int) uint64

// Pause lets n ISBs pass.
func Pause(n int)

// CopyPast copies n bytes.
func CopyPast(dst, src *byte, n int) { copy(unsafe.Slice(dst, n), unsafe.Slice(src, n)) }

// CopyDistant copies nothing: copy does as well.
func CopyDistant(_, _ []byte) int { return 0 }

// Evicts tells that Evict does something. Here it does not.
const Evicts = false

// Evict does nothing.
func Evict(*byte, int) {}

// TimeLoad is 0: the counter of these processors ticks too slowly to time a load.
func TimeLoad(*uint64) uint64 { return 0 }

// Ticks is 0.
func Ticks() uint64 { return 0 }

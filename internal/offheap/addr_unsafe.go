package offheap

import "unsafe"

// Addr is the address of the first byte, 0 for an empty Span. Off-heap memory
// does not move, so the number stays right as long as the memory is mapped.
func (s Span) Addr() uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.b)))) }

// Pointer is the first byte, for the views that drivers lay over their queues.
func (s Span) Pointer() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s.b)) }

// Adopt makes a Span of memory that another library mapped. p must not be Go
// memory, which nobody can check. release, which may be nil, runs after the
// last Release.
func Adopt(p unsafe.Pointer, n int, release func() error) (Span, error) {
	if p == nil || n <= 0 {
		return Span{}, errEmpty
	}
	if release == nil {
		release = func() error { return nil }
	}
	return newSpan(unsafe.Slice((*byte)(p), n), n, Adopted, release), nil
}

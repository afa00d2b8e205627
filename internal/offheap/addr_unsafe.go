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
	return newSpan(unsafe.Slice((*byte)(p), n), n, 0, Adopted, release), nil
}

// pages is the offset in the mapping of the first page that s touches, and how
// many bytes the pages of s have.
func (s Span) pages() (first, n int) {
	off := int(uintptr(unsafe.Pointer(unsafe.SliceData(s.b))) - uintptr(unsafe.Pointer(unsafe.SliceData(s.m.all))))
	page := s.m.page
	if page == 0 {
		return off, len(s.b)
	}
	first = off / page * page
	return first, min((off+len(s.b)-first+page-1)/page*page, len(s.m.all)-first)
}

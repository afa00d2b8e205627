// Package offheap maps memory outside the Go heap and counts its users.
//
// A device that is told an address keeps using it whatever the collector does,
// so memory that a device touches never comes from the Go heap. The package is
// internal: only this module can make a Span that is not empty, and only Spans
// can be registered.
package offheap

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"syscall"
)

// Span is a range of one mapping. The zero Span is empty. A copy of a Span is
// the same range and holds no reference of its own: Retain and Release count.
type Span struct {
	b []byte
	m *mapping
}

// mapping is what Spans are ranges of. It is unmapped when refs falls to zero,
// and never by the collector: a peer may write into it without a Go reference.
type mapping struct {
	refs    atomic.Int64
	all     []byte
	release func() error
	page    int
	kind    Kind
}

// Kind is where the memory of a mapping comes from.
type Kind uint8

// Kinds of mappings.
const (
	Anonymous Kind = iota // Map
	File                  // MapFile
	Adopted               // Adopt
	Ring                  // MapRing: queues of a device, which must not be registered
)

// Options of Map. The zero value is ordinary pages.
type Options struct {
	// HugePage is the size of the pages in bytes, 2 MiB or 1 GiB for example; 0
	// is ordinary pages, with transparent huge pages asked for.
	HugePage int
}

var (
	errReleased = fmt.Errorf("memory is unmapped: %w", fs.ErrClosed)
	errEmpty    = fmt.Errorf("memory needs a size of at least 1 byte: %w", syscall.EINVAL)
	errNoMemory = errors.New("memory is empty")
)

// newSpan takes over all, of which size bytes are the Span, with one reference.
func newSpan(all []byte, size, page int, kind Kind, release func() error) Span {
	m := &mapping{all: all, release: release, page: page, kind: kind}
	m.refs.Store(1)
	return Span{b: all[:size:size], m: m}
}

// Bytes aliases the memory, with capacity equal to length. It keeps nothing
// mapped.
func (s Span) Bytes() []byte { return s.b[:len(s.b):len(s.b)] }

// Len is the size in bytes.
func (s Span) Len() int { return len(s.b) }

// PageSize is the size in bytes of the pages that were asked for, 0 where
// somebody else mapped them.
func (s Span) PageSize() int {
	if s.m == nil {
		return 0
	}
	return s.m.page
}

// Kind is where the memory comes from.
func (s Span) Kind() Kind {
	if s.m == nil {
		return Anonymous
	}
	return s.m.kind
}

// Slice is the n bytes from off on. It takes no reference.
func (s Span) Slice(off, n int) (Span, error) {
	if off < 0 || n < 0 || off > len(s.b) || n > len(s.b)-off {
		return Span{}, fmt.Errorf("bytes %d to %d+%d are outside memory of %d bytes", off, off, n, len(s.b))
	}
	return Span{b: s.b[off : off+n : off+n], m: s.m}, nil
}

// Retain adds a reference. It fails after the last Release.
func (s Span) Retain() error {
	if s.m == nil {
		return errNoMemory
	}
	for {
		n := s.m.refs.Load()
		if n <= 0 {
			return errReleased
		}
		if s.m.refs.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

// Release drops a reference; the last unmaps.
func (s Span) Release() error {
	if s.m == nil {
		return nil
	}
	switch n := s.m.refs.Add(-1); {
	case n > 0:
		return nil
	case n < 0:
		s.m.refs.Add(1)
		return errReleased
	}
	return s.m.release()
}

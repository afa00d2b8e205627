package mr

import (
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"unsafe"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/offheap"
)

// Buffer is off-heap memory that can be registered. Its methods may be called
// from any goroutine; what Bytes gives is shared memory like any other slice.
type Buffer struct {
	mu      sync.Mutex
	s       offheap.Span // empty after Close
	log     *slog.Logger
	why     error
	dropped runtime.Cleanup
}

// Alloc maps n zeroed bytes, aligned to a page. Pages are made when they are
// first touched or registered, so a large Buffer costs nothing yet.
func Alloc(n int, opts ...Option) (*Buffer, error) {
	o := newOptions(opts)
	s, why, err := o.alloc(n)
	if err != nil {
		return nil, mapError("allocate memory", n, o.hugePage, err)
	}
	return o.finish("allocate memory", s, why)
}

// MapFile maps n bytes of a file from off on, shared with everybody who maps
// the file: a memfd, a file in /dev/shm, in hugetlbfs. off is a multiple of the
// page size. fd is borrowed and may be closed afterwards. The file must not be
// made shorter while the Buffer is in use: touching what is gone kills the
// process.
func MapFile(fd int, off int64, n int, opts ...Option) (*Buffer, error) {
	o := newOptions(opts)
	if o.hugePage != 0 {
		return nil, &ibverbs.Error{Op: "map file", Err: errHugeFile, Hint: "put the file into a hugetlbfs with pages of that size"}
	}
	s, err := offheap.MapFile(fd, off, n)
	if err != nil {
		return nil, mapError("map file", n, 0, err)
	}
	return o.finish("map file", s, nil)
}

// Foreign is n bytes at p that another library mapped. p must not be Go memory,
// which nobody can check at run time: a device would write to where something
// else lives by then. The memory stays until release runs, which happens once,
// when the Buffer, its slices and all MRs of it are closed. A nil release says
// that the caller keeps the memory longer than that.
func Foreign(p unsafe.Pointer, n int, release func() error) (*Buffer, error) {
	s, err := offheap.Adopt(p, n, release)
	if err != nil {
		return nil, mapError("adopt memory", n, 0, err)
	}
	return newBuffer(s, slog.Default()), nil
}

func newBuffer(s offheap.Span, log *slog.Logger) *Buffer {
	b := &Buffer{s: s, log: log}
	b.dropped = runtime.AddCleanup(b, func(size int) {
		log.Debug("mr: a buffer was dropped without Close and stays mapped", "bytes", size)
	}, s.Len())
	return b
}

// Bytes aliases the memory, with capacity equal to length; nil after Close. It
// does not keep the memory mapped.
func (b *Buffer) Bytes() []byte { return b.Span().Bytes() }

// Len is the size in bytes, 0 after Close.
func (b *Buffer) Len() int { return b.Span().Len() }

// Addr is the address of the first byte, 0 after Close. The memory does not
// move. It is the IO virtual address too, unless registered with another.
func (b *Buffer) Addr() uint64 { return b.Span().Addr() }

// Span is what PD.RegMR registers, empty after Close and of a nil Buffer.
func (b *Buffer) Span() offheap.Span {
	if b == nil {
		return offheap.Span{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.s
}

// PageSize is the size in bytes of the pages that were asked for; transparent
// huge pages do not show. It is 0 for Foreign memory.
func (b *Buffer) PageSize() int { return b.Span().PageSize() }

// WhyOrdinaryPages is why a Buffer asked for WithHugePagesIfAvailable has
// ordinary pages, nil if it has huge ones or was not asked to.
func (b *Buffer) WhyOrdinaryPages() error { return b.why }

// Slice is the n bytes from off on as a Buffer of its own, which shares the
// memory and is closed by itself.
func (b *Buffer) Slice(off, n int) (*Buffer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	const op = "slice buffer"
	if b.s.Len() == 0 {
		return nil, &ibverbs.Error{Op: op, Err: ibverbs.ErrClosed}
	}
	s, err := b.s.Slice(off, n)
	if err != nil {
		return nil, &ibverbs.Error{Op: op, Err: err}
	}
	if n == 0 {
		return nil, &ibverbs.Error{Op: op, Err: errNoBytes}
	}
	if err := s.Retain(); err != nil {
		return nil, &ibverbs.Error{Op: op, Err: err}
	}
	sub := newBuffer(s, b.log)
	sub.why = b.why
	return sub, nil
}

// Close gives the memory up. It is unmapped now, or when the last slice and MR
// of it are closed. A second Close is nil.
func (b *Buffer) Close() error {
	b.mu.Lock()
	s := b.s
	b.s = offheap.Span{}
	b.mu.Unlock()
	if s.Len() == 0 {
		return nil
	}
	b.dropped.Stop()
	if err := s.Release(); err != nil {
		return &ibverbs.Error{Op: "close buffer", Object: fmt.Sprintf("%d bytes", s.Len()), Err: err}
	}
	return nil
}

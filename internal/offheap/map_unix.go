//go:build unix

package offheap

import (
	"fmt"

	"golang.org/x/sys/unix"
)


// Map maps size zeroed bytes, private to this process. Pages are made when
// first touched or registered.
func Map(size int, o Options) (Span, error) {
	if size <= 0 {
		return Span{}, errEmpty
	}
	page := unix.Getpagesize()
	flags := unix.MAP_PRIVATE | unix.MAP_ANON
	if o.HugePage != 0 {
		huge, err := hugeFlags(o.HugePage)
		if err != nil {
			return Span{}, err
		}
		flags, page = flags|huge, o.HugePage
	}
	all, err := roundUp(size, page)
	if err != nil {
		return Span{}, err
	}
	b, err := unix.Mmap(-1, 0, all, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return Span{}, fmt.Errorf("mmap of %d bytes in pages of %d: %w", all, page, err)
	}
	if o.HugePage == 0 {
		adviseHuge(b)
	}
	return newSpan(b, size, Anonymous, func() error { return unix.Munmap(b) }), nil
}

// MapFile maps size bytes of a file from off on, shared. off is a multiple of
// the page size. fd may be closed afterwards.
func MapFile(fd int, off int64, size int) (Span, error) { return mapShared(fd, off, size, File) }

// MapRing maps a queue that a kernel driver offers at off.
func MapRing(fd int, off int64, size int) (Span, error) { return mapShared(fd, off, size, Ring) }

func mapShared(fd int, off int64, size int, kind Kind) (Span, error) {
	if size <= 0 {
		return Span{}, errEmpty
	}
	b, err := unix.Mmap(fd, off, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return Span{}, fmt.Errorf("mmap of %d bytes of a file at %d: %w", size, off, err)
	}
	return newSpan(b, size, kind, func() error { return unix.Munmap(b) }), nil
}

func roundUp(n, to int) (int, error) {
	r := (n + to - 1) / to * to
	if r < n {
		return 0, fmt.Errorf("memory of %d bytes is more than can be addressed", n)
	}
	return r, nil
}

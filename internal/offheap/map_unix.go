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
	return newSpan(b, size, page, Anonymous, func() error { return unix.Munmap(b) }), nil
}

// MapFile maps size bytes of a file from off on, shared. off is a multiple of
// the file's page size. fd may be closed afterwards. A file that is shorter is
// refused: touching what lies past its end would kill the process.
func MapFile(fd int, off int64, size int) (Span, error) {
	if size <= 0 {
		return Span{}, errEmpty
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Span{}, fmt.Errorf("fstat of the file to map: %w", err)
	}
	if regular := st.Mode&unix.S_IFMT == unix.S_IFREG; off < 0 || regular && int64(size) > st.Size-off {
		return Span{}, fmt.Errorf("%d bytes from %d on are more than the file has, which is %d bytes long: %w", size, off, st.Size, unix.EINVAL)
	}
	page := filePage(fd)
	if off%int64(page) != 0 {
		return Span{}, fmt.Errorf("offset %d in the file is not a multiple of its page size, %d: %w", off, page, unix.EINVAL)
	}
	all := size
	if page != unix.Getpagesize() { // the kernel unmaps whole huge pages only
		var err error
		if all, err = roundUp(size, page); err != nil {
			return Span{}, err
		}
	}
	return mapShared(fd, off, all, size, page, File)
}

// MapRing maps a queue that a kernel driver offers at off.
func MapRing(fd int, off int64, size int) (Span, error) {
	if size <= 0 {
		return Span{}, errEmpty
	}
	return mapShared(fd, off, size, size, unix.Getpagesize(), Ring)
}

func mapShared(fd int, off int64, all, size, page int, kind Kind) (Span, error) {
	b, err := unix.Mmap(fd, off, all, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return Span{}, fmt.Errorf("mmap of %d bytes of a file at %d: %w", all, off, err)
	}
	return newSpan(b, size, page, kind, func() error { return unix.Munmap(b) }), nil
}

func roundUp(n, to int) (int, error) {
	r := (n + to - 1) / to * to
	if r < n {
		return 0, fmt.Errorf("memory of %d bytes is more than can be addressed", n)
	}
	return r, nil
}

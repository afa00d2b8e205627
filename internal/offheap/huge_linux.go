package offheap

import (
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

// hugeFlags asks mmap for pages of one size: its logarithm from bit 26 on
// (MAP_HUGE_SHIFT).
func hugeFlags(size int) (int, error) {
	if size <= unix.Getpagesize() || size&(size-1) != 0 {
		return 0, fmt.Errorf("%d is not the size of a huge page: %w", size, unix.EINVAL)
	}
	return unix.MAP_HUGETLB | bits.TrailingZeros(uint(size))<<unix.MAP_HUGE_SHIFT, nil
}

// adviseHuge asks for transparent huge pages. Where the kernel has none the
// memory is as good in ordinary pages.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

// filePage is the size of the pages that a file is mapped in: a file of
// hugetlbfs has huge ones.
func filePage(fd int) int {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err == nil && st.Type == unix.HUGETLBFS_MAGIC {
		return int(st.Bsize)
	}
	return unix.Getpagesize()
}

// Populate makes all pages now. Where memory is short it says so, while a first
// touch later would kill the process (SIGBUS in a full /dev/shm). It needs Linux
// 5.14.
func (s Span) Populate() error {
	if len(s.b) == 0 {
		return errNoMemory
	}
	first, all := s.pages()
	if err := unix.Madvise(s.m.all[first:first+all], unix.MADV_POPULATE_WRITE); err != nil {
		return fmt.Errorf("making the pages of %d bytes: %w", len(s.b), err)
	}
	return nil
}

package offheap

import (
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

// hugeFlags asks mmap for pages of one size: its logarithm from bit 26 on
// (MAP_HUGE_SHIFT).
func hugeFlags(size int) (int, error) {
	if size < unix.Getpagesize() || size&(size-1) != 0 {
		return 0, fmt.Errorf("%d is not the size of a huge page", size)
	}
	return unix.MAP_HUGETLB | bits.TrailingZeros(uint(size))<<unix.MAP_HUGE_SHIFT, nil
}

// adviseHuge asks for transparent huge pages. Where the kernel has none the
// memory is as good in ordinary pages.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

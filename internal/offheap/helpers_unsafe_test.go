//go:build unix

package offheap

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// adopt is Adopt of Go memory, which tests may hand over since no device sees
// it.
func adopt(b []byte, release func() error) (Span, error) {
	return Adopt(unsafe.Pointer(unsafe.SliceData(b)), len(b), release)
}

// startsAt says that a Span's pointer and address are those of b.
func startsAt(s Span, b []byte) bool {
	p := unsafe.Pointer(unsafe.SliceData(b))
	return s.Pointer() == p && s.Addr() == uint64(uintptr(p))
}

// present is which pages of b are there.
func present(b []byte) ([]byte, error) {
	pages := make([]byte, (len(b)+unix.Getpagesize()-1)/unix.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		uintptr(unsafe.Pointer(unsafe.SliceData(pages))))
	if errno != 0 {
		return nil, errno
	}
	return pages, nil
}

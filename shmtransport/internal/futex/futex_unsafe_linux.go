package futex

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// futex is futex(2), without FUTEX_PRIVATE_FLAG: the word is found by its place in the file, not by its address.
func futex(p *uint32, op int, value uint32, ts *unix.Timespec) syscall.Errno {
	_, _, errno := syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(p)), uintptr(op), uintptr(value), uintptr(unsafe.Pointer(ts)), 0, 0)
	return errno
}

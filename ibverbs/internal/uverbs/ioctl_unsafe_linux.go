package uverbs

import (
	"unsafe"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// Ioctl implements Kernel. The address goes into the system call as a pointer
// conversion within its argument list, as package unsafe demands; the addresses
// within the frame are of the same off-heap memory.
func (Linux) Ioctl(fd int, frame []byte) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uapi.VerbsIoctl,
			uintptr(unsafe.Pointer(unsafe.SliceData(frame))))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

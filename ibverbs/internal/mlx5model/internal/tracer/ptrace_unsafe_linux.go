package tracer

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// info is the beginning of siginfo_t of a signal about an address.
type info struct {
	signal, errno, code int32
	_                   int32
	address             uint64
	_                   [104]byte
}

// signalInfo is about the signal that a task was stopped by: EINVAL if there is none.
func signalInfo(tid int) (*info, error) {
	i := &info{}
	if err := ptrace(unix.PTRACE_GETSIGINFO, tid, 0, unsafe.Pointer(i)); err != nil {
		return nil, err
	}
	return i, nil
}

// vectors reads the floating point and vector registers.
func vectors[T any](tid int, to *T) error {
	v := unix.Iovec{Base: (*byte)(unsafe.Pointer(to)), Len: uint64(unsafe.Sizeof(*to))}
	return ptrace(unix.PTRACE_GETREGSET, tid, unix.NT_PRFPREG, unsafe.Pointer(&v))
}

func ptrace(request, tid int, address uintptr, data unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), address, uintptr(data), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

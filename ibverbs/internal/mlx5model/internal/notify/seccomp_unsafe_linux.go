package notify

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif.
type notification struct {
	id     uint64
	tid    uint32
	_      uint32
	number int32
	_      uint32
	_      uint64
	args   [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	value int64
	error int32
	flags uint32
}

// descriptor is struct seccomp_notif_addfd.
type descriptor struct {
	id     uint64
	_      uint32
	source uint32
	_      uint32
	flags  uint32
}

// goOn is SECCOMP_USER_NOTIF_FLAG_CONTINUE.
const goOn = 1

// install puts a filter on the calling thread and on what it starts, and returns the
// file of notifications. The thread gains no privileges any more, which the kernel asks
// of those who may not filter others.
func install(filter []unix.SockFilter) (int, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return -1, errno
	}
	unix.CloseOnExec(int(fd))
	return int(fd), nil
}

func control[T any](fd int, request uintptr, v *T) (int, error) {
	r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(v)))
	if errno != 0 {
		return -1, errno
	}
	return int(r), nil
}

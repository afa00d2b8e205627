//go:build unix

package socketboot

import "syscall"

const tryIO = true

func tryRead(fd uintptr, b []byte) (int, error)  { return try(syscall.Read, fd, b) }
func tryWrite(fd uintptr, b []byte) (int, error) { return try(syscall.Write, fd, b) }

func try(call func(int, []byte) (int, error), fd uintptr, b []byte) (int, error) {
	for {
		n, err := call(int(fd), b)
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return 0, errWouldBlock
		}
		return max(n, 0), err
	}
}

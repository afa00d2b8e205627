package uverbs

import (
	"os"
	"strconv"
	"syscall"

	"github.com/purerdma/purerdma/internal/offheap"
	"golang.org/x/sys/unix"
)

// Linux is the kernel of this machine.
type Linux struct{}

// Open implements Kernel.
func (Linux) Open(path string) (int, uint64, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0) })
	if err != nil {
		return -1, 0, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return -1, 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return fd, 0, nil
	}
	return fd, st.Rdev, nil
}

// MapRing implements Kernel.
func (Linux) MapRing(fd int, off int64, size int) (offheap.Span, error) {
	return offheap.MapRing(fd, off, size)
}

// OpenEvents implements Kernel. The descriptor is made non-blocking before the
// runtime sees it: only then does a read wait in the netpoller.
func (Linux) OpenEvents(fd int) (EventFile, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	f := &eventFile{File: os.NewFile(uintptr(fd), "uverbs events "+strconv.Itoa(fd))}
	conn, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	f.conn, f.try = conn, f.tryRead
	return f, nil
}

// Close implements Kernel. EINTR is not retried: Linux has closed it then.
func (Linux) Close(fd int) error { return unix.Close(fd) }

// eventFile adds TryRead to a file. The closure and the result of the system
// call are kept here, so that no call allocates; there is one reader at a time.
type eventFile struct {
	*os.File
	conn syscall.RawConn
	try  func(fd uintptr) (done bool)
	p    []byte
	n    int
	err  error
}

// TryRead implements EventFile.
func (f *eventFile) TryRead(p []byte) (int, error) {
	f.p = p
	err := f.conn.Read(f.try)
	f.p = nil
	if err != nil { // an unexported one: without a deadline it can only be that
		return 0, os.ErrClosed
	}
	return f.n, f.err
}

func (f *eventFile) tryRead(fd uintptr) bool {
	f.n, f.err = retry(func() (int, error) { return unix.Read(int(fd), f.p) })
	return true
}

// retry repeats a call while a signal interrupts it.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

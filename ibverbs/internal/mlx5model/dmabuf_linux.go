package mlx5model

import (
	"fmt"
	"io"
	"math/bits"
	"os"
	"syscall"

	"github.com/purerdma/purerdma/internal/offheap"
	"golang.org/x/sys/unix"
)

// mappedFile is a range of a file. It implements exported. Addresses count from its
// beginning.
type mappedFile struct {
	mem  offheap.Span // from the page that the range begins in
	skip uint64       // bytes in front of the range
	n    uint64
}

// export implements memory.
func (p process) export(fd int32, off, n uint64) (exported, error) {
	f, err := p.file(int(fd))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := fileSize(f)
	if err != nil {
		return nil, syscall.EINVAL
	}
	if end, over := bits.Add64(off, n, 0); over != 0 || end > size {
		return nil, syscall.EINVAL
	}
	skip := off % pageSize
	mem, err := offheap.MapRing(int(f.Fd()), int64(off-skip), int(n+skip))
	if err != nil {
		return nil, syscall.EINVAL
	}
	return &mappedFile{mem, skip, n}, nil
}

// file is an open file of the process, EBADF if there is none of the number.
func (p process) file(fd int) (*os.File, error) {
	if fd < 0 {
		return nil, syscall.EBADF
	}
	name := fmt.Sprintf("/proc/%d/fd/%d", p, fd)
	if pidfd, err := unix.PidfdOpen(int(p), 0); err == nil {
		defer unix.Close(pidfd)
		if own, err := unix.PidfdGetfd(pidfd, fd, 0); err == nil {
			return os.NewFile(uintptr(own), name), nil
		}
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, syscall.EBADF
	}
	return f, nil
}

// fileSize is the bytes of a file. A dma-buf tells them by its end only.
func fileSize(f *os.File) (uint64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if st.Mode().IsRegular() {
		return uint64(st.Size()), nil
	}
	n, err := f.Seek(0, io.SeekEnd)
	return uint64(n), err
}

func (m *mappedFile) at(at uint64, n int) ([]byte, error) {
	if at > m.n || uint64(n) > m.n-at {
		return nil, syscall.EFAULT
	}
	return m.mem.Bytes()[m.skip+at:][:n], nil
}

// read implements storage.
func (m *mappedFile) read(at uint64, b []byte) error {
	from, err := m.at(at, len(b))
	copy(b, from)
	return err
}

// write implements storage.
func (m *mappedFile) write(at uint64, b []byte) error {
	to, err := m.at(at, len(b))
	copy(to, b)
	return err
}

func (m *mappedFile) release() { _ = m.mem.Release() }

package mlx5model

import (
	"os"
	"sync"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"golang.org/x/sys/unix"
)

// Local is a kernel whose only device is a Model in the same process, for drivers in Go.
// It implements uverbs.Kernel.
type Local struct {
	uverbs.Linux
	m       *Model
	trapped bool // somebody catches stores, and tells the contexts

	mu   sync.Mutex
	open map[int]*localFile
}

// NewLocal makes one.
func NewLocal(m *Model) *Local { return &Local{m: m, open: map[int]*localFile{}} }

// localFile is an open file of the process. It implements files.
type localFile struct {
	*context
	mu      sync.Mutex // of calls, and what they make
	pages   *filePages
	number  map[uint32]eventFile
	pending *pendingFile
}

// Open implements uverbs.Kernel.
func (l *Local) Open(string) (int, uint64, error) {
	pages, err := newPages()
	if err != nil {
		return -1, 0, err
	}
	f := &localFile{pages: pages, number: map[uint32]eventFile{}}
	f.context = l.m.open(process(os.Getpid()), f, pages, l.trapped)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[pages.fd] = f
	return pages.fd, unix.Mkdev(deviceMajor, deviceMinor), nil
}

// Ioctl implements uverbs.Kernel.
func (l *Local) Ioctl(fd int, frame []byte) error {
	l.mu.Lock()
	f := l.open[fd]
	l.mu.Unlock()
	if f == nil {
		return syscall.EBADF
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.ioctl(addressOf(frame))
	p := f.pending
	f.pending = nil
	if p == nil || err != nil {
		return err
	}
	fd, err = unix.FcntlInt(uintptr(p.theirs), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f.number[uint32(fd)] = p.eventSocket
	b := u64(uint64(fd))
	return f.mem.write(p.at, b[:p.size])
}

// Close implements uverbs.Kernel.
func (l *Local) Close(fd int) error {
	l.mu.Lock()
	f := l.open[fd]
	delete(l.open, fd)
	l.mu.Unlock()
	if f == nil {
		return syscall.EBADF
	}
	f.close()
	f.pages.close()
	return nil
}

// events implements files.
func (f *localFile) events(at uint64, size int) (eventFile, error) {
	e, err := newEventSocket()
	if err != nil {
		return nil, err
	}
	f.pending = &pendingFile{e, at, size}
	return e, nil
}

// named implements files.
func (f *localFile) named(fd uint32) eventFile { return f.number[fd] }

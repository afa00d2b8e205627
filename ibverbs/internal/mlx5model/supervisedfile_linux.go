package mlx5model

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/mlx5model/internal/notify"
	"golang.org/x/sys/unix"
)

// supervisedFile is an open device of a supervised program.
type supervisedFile struct {
	*supervisor
	pid   int
	pages *os.File

	mu   sync.Mutex // of a request with its reply
	conn *net.UnixConn
}

// open asks for the file of pages.
func (f *supervisedFile) open() error {
	trap := uint64(0)
	if f.Trap {
		trap = 1
	}
	r, fd, err := f.ask(request{Op: opOpen, B: uint64(f.pid), C: trap})
	switch {
	case err != nil:
		return err
	case r.Result < 0:
		return syscall.Errno(-r.Result)
	case fd < 0:
		return errors.New("the model has opened nothing")
	}
	f.pages = os.NewFile(uintptr(fd), "pages")
	if err := f.number(uint64(fd)); err != nil {
		return errors.Join(err, f.pages.Close())
	}
	return nil
}

// close may be called during a call, which fails then.
func (f *supervisedFile) close() { _, _ = f.conn.Close(), f.pages.Close() }

// ask sends a request, and returns its reply and the descriptor that came with it, -1 if
// none did.
func (f *supervisedFile) ask(q request) (r reply, fd int, err error) {
	if _, err := f.conn.Write(bytesOf(&q)); err != nil {
		return r, -1, err
	}
	control := make([]byte, unix.CmsgSpace(4))
	n, with, _, _, err := f.conn.ReadMsgUnix(bytesOf(&r), control)
	if err != nil {
		return r, -1, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:with])
	switch {
	case err != nil:
		return r, -1, fmt.Errorf("a reply of the model: %w", err)
	case n != len(bytesOf(&r)):
		return r, -1, fmt.Errorf("a reply of the model has %d bytes, want %d", n, len(bytesOf(&r)))
	case r.FDSize > wordSize:
		return r, -1, fmt.Errorf("a reply of the model has a descriptor's number of %d bytes, at most %d", r.FDSize, wordSize)
	}
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) == 1 {
			return r, fds[0], nil
		}
	}
	return r, -1, nil
}

// number tells by which number the program knows a descriptor.
func (f *supervisedFile) number(n uint64) error {
	q := request{Op: opDescriptor, A: n}
	_, err := f.conn.Write(bytesOf(&q))
	return err
}

// call does a request of a system call. A descriptor of the reply becomes the program's.
func (f *supervisedFile) call(c *notify.Call, q request) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, fd, err := f.ask(q)
	if err != nil || fd < 0 {
		return r.Result, err
	}
	defer unix.Close(fd)
	n, err := c.Give(fd, unix.O_CLOEXEC)
	if err == nil {
		err = process(f.pid).write(r.FDAt, u64(uint64(n))[:r.FDSize])
	}
	return r.Result, errors.Join(err, f.number(uint64(n)))
}

// store does a store into the pages, and tells the model: word by word, since one
// instruction may store several, of which each is a doorbell or a part of a copy.
func (f *supervisedFile) store(data []byte, off int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(data) > 0 {
		n := min(len(data), wordSize-int(off%wordSize))
		if err := f.storeWord(data[:n], off); err != nil {
			f.logf("a store of process %d into its pages of doorbells: %v", f.pid, err)
			return
		}
		data, off = data[n:], off+int64(n)
	}
}

func (f *supervisedFile) storeWord(data []byte, off int64) error {
	if _, err := f.pages.WriteAt(data, off); err != nil {
		return err
	}
	_, _, err := f.ask(request{Op: opStore, A: uint64(off)})
	return err
}

package mlx5model

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/mlx5model/internal/notify"
	"github.com/purerdma/purerdma/ibverbs/internal/mlx5model/internal/tracer"
	"golang.org/x/sys/unix"
)

// supervisor answers the calls of programs about the device, by the tree of files of a
// Server and by its socket. It is to those programs what the preload library is to its
// own.
type supervisor struct {
	Supervised
	closes *os.File // inotify of the files of pages
	done   sync.WaitGroup

	mu    sync.Mutex
	open  map[fileID]*supervisedFile
	watch map[int32]fileID
}

// fileID tells files apart, as stat and /proc/<pid>/maps have it.
type fileID struct{ dev, inode uint64 }

func newSupervisor(s Supervised) (*supervisor, error) {
	var err error
	if s.Dir, err = filepath.Abs(s.Dir); err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	sup := &supervisor{Supervised: s, closes: os.NewFile(uintptr(fd), "inotify"), open: map[fileID]*supervisedFile{}, watch: map[int32]fileID{}}
	sup.done.Go(sup.watchCloses)
	return sup, nil
}

func (s *supervisor) close() {
	_ = s.closes.Close()
	s.done.Wait()
	for _, f := range s.open {
		f.close()
	}
}

func (s *supervisor) logf(format string, args ...any) {
	if s.Log != nil {
		s.Log(fmt.Sprintf(format, args...))
	}
}

// watchCloses waits for files that no program has any more, neither open nor mapped.
func (s *supervisor) watchCloses() {
	event := make([]byte, unix.SizeofInotifyEvent+unix.NAME_MAX+1)
	for {
		n, err := s.closes.Read(event)
		if err != nil || n < unix.SizeofInotifyEvent {
			return
		}
		for b := event[:n]; len(b) >= unix.SizeofInotifyEvent; b = b[unix.SizeofInotifyEvent:] { // events of a file have no name
			s.closed(structOf[unix.InotifyEvent](b).Wd)
		}
	}
}

func (s *supervisor) closed(wd int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := s.watch[wd]
	if !ok {
		return
	}
	s.open[id].close()
	delete(s.open, id)
	delete(s.watch, wd)
}

// answer answers a call.
func (s *supervisor) answer(c *notify.Call) notify.Reply {
	switch c.Number {
	case unix.SYS_IOCTL:
		return s.request(c, opIoctl)
	case unix.SYS_WRITE:
		return s.request(c, opWrite)
	}
	return fileCalls[c.Number](s, c)
}

// fails is the answer for an error that a system call of ours has met.
func fails(err error) notify.Reply {
	var no syscall.Errno
	if !errors.As(err, &no) {
		no = syscall.EIO
	}
	return notify.Fails(no)
}

// file is the open device that a descriptor of a program stands for, nil if it is
// another file.
func (s *supervisor) file(tid int, fd int32) *supervisedFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) == 0 {
		return nil
	}
	id, err := identify(fmt.Sprintf("/proc/%d/fd/%d", tid, fd))
	if err != nil {
		return nil
	}
	return s.open[id]
}

func identify(path string) (fileID, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return fileID{st.Dev, st.Ino}, err
}

// openDevice answers an open of the device's node.
func (s *supervisor) openDevice(c *notify.Call, flags int) notify.Reply {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(s.Dir, "model"), Net: "unixpacket"})
	if err != nil {
		return fails(err)
	}
	f := &supervisedFile{supervisor: s, conn: conn, pid: processOf(c.TID)}
	if err := f.open(); err != nil {
		_ = conn.Close()
		return fails(err)
	}
	// What the program gets is an open file of its own, so that the last close of it is
	// an event.
	path := fmt.Sprintf("/proc/self/fd/%d", f.pages.Fd())
	theirs, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		f.close()
		return fails(err)
	}
	defer unix.Close(theirs)
	id, err := identify(path)
	if err == nil {
		err = s.add(path, id, f)
	}
	if err != nil {
		f.close()
		return fails(err)
	}
	number, err := c.Give(theirs, flags&unix.O_CLOEXEC)
	if err != nil { // the close of theirs ends it
		return fails(err)
	}
	return notify.Value(int64(number))
}

func (s *supervisor) add(path string, id fileID, f *supervisedFile) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	wd, err := unix.InotifyAddWatch(int(s.closes.Fd()), path, unix.IN_CLOSE_WRITE|unix.IN_ONESHOT)
	if err != nil {
		return err
	}
	s.open[id], s.watch[int32(wd)] = f, id
	return nil
}

// request has the model answer a call about an open device: op, and the arguments behind
// the descriptor.
func (s *supervisor) request(c *notify.Call, op uint64) notify.Reply {
	f := s.file(c.TID, int32(c.Args[0]))
	if f == nil {
		return notify.GoOn
	}
	if pid := processOf(c.TID); pid != f.pid {
		s.logf("process %d uses the device of process %d", pid, f.pid)
		return notify.Fails(unix.EACCES)
	}
	result, err := f.call(c, request{Op: op, A: c.Args[1], B: c.Args[2]})
	switch {
	case err != nil:
		return fails(err)
	case result < 0:
		return notify.Fails(syscall.Errno(-result))
	}
	return notify.Value(result)
}

// hooks are those of a tracer of the programs.
func (s *supervisor) hooks() tracer.Hooks {
	return tracer.Hooks{
		Guarded: func(tid, fd int) bool { return s.file(tid, int32(fd)) != nil },
		Page: func(tid int, at uint64) func([]byte) {
			id, off := mappedAt(tid, at)
			s.mu.Lock()
			defer s.mu.Unlock()
			if f := s.open[id]; f != nil {
				return func(data []byte) { f.store(data, off) }
			}
			return nil
		},
		Unknown: func(tid int, err error) { s.logf("a store of thread %d into a page of doorbells: %v", tid, err) },
	}
}

package mlx5model

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/offheap"
	"golang.org/x/sys/unix"
)

// Server lets programs that carry the preload library reach a Model.
type Server struct {
	m        *Model
	dir      string
	listener *net.UnixListener
	done     sync.WaitGroup
	mu       sync.Mutex
	conns    map[*net.UnixConn]struct{}
	closed   bool
}

// Serve makes a socket and a tree of sysfs files in dir, which must be short enough for
// the name of a socket, and answers until Close. Programs have to be children of this
// process, or it must have the right to trace them.
func Serve(m *Model, dir string) (*Server, error) {
	if err := m.config.writeTree(dir); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, "model"), Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	s := &Server{m: m, dir: dir, listener: l, conns: map[*net.UnixConn]struct{}{}}
	s.done.Go(s.accept)
	return s, nil
}

// Env is what a program's environment has in addition, given the file of the preload
// library that preload/shim.c was built to.
func (s *Server) Env(library string) []string {
	return []string{"LD_PRELOAD=" + library, "MLX5MODEL_SOCKET=" + s.listener.Addr().String(), "SYSFS_PATH=" + filepath.Join(s.dir, "sys")}
}

// Close takes the device away from programs that have it open, and returns when nothing
// of theirs is left.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	err := s.listener.Close()
	for c := range s.conns {
		err = errors.Join(err, c.Close())
	}
	s.mu.Unlock()
	s.done.Wait()
	return err
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			_ = conn.Close()
		} else {
			s.conns[conn] = struct{}{}
			s.done.Go(func() { s.serve(conn) })
		}
		s.mu.Unlock()
	}
}

// serve is the life of an open file.
func (s *Server) serve(conn *net.UnixConn) {
	c := &client{conn: conn, byNumber: map[uint32]eventFile{}}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, open := s.conns[conn]; open {
			delete(s.conns, conn)
			_ = conn.Close()
		}
	}()
	q, err := c.receive()
	if err != nil || q.Op != opOpen {
		return
	}
	pages, err := newPages()
	if err != nil {
		_ = c.answer(err)
		return
	}
	defer pages.close()
	context := s.m.open(process(q.B), c, pages, q.C != 0)
	defer context.close()
	if _, err := c.give(0, pages.fd, 0, 0); err != nil {
		return
	}
	for {
		q, err := c.receive()
		if err != nil {
			return
		}
		switch {
		case q.Op == opIoctl && q.A == uapi.VerbsIoctl:
			err = context.ioctl(q.B)
		case q.Op == opIoctl:
			err = syscall.ENOTTY
		case q.Op == opStore:
			context.store(q.A)
		default:
			s.m.warn("a write of %d bytes to the device's file", q.B)
			err = syscall.EINVAL
		}
		if err := c.answer(err); err != nil {
			return
		}
	}
}

// client is the connection of an open file. It implements files.
type client struct {
	conn     *net.UnixConn
	pending  *pendingFile
	byNumber map[uint32]eventFile
}

// pendingFile is a descriptor that goes with the next reply.
type pendingFile struct {
	*eventSocket
	at   uint64
	size int
}

func (c *client) receive() (request, error) {
	var q request
	n, err := c.conn.Read(bytesOf(&q))
	if err == nil && n != len(bytesOf(&q)) {
		err = fmt.Errorf("a request of %d bytes", n)
	}
	return q, err
}

// answer replies with the result of a call. A descriptor that the call made goes
// with it.
func (c *client) answer(err error) error {
	p := c.pending
	c.pending = nil
	result := int64(0)
	if err != nil {
		var no syscall.Errno
		if !errors.As(err, &no) {
			no = syscall.EIO
		}
		result = -int64(no)
	}
	if p == nil || result < 0 {
		r := reply{Result: result}
		_, err := c.conn.Write(bytesOf(&r))
		return err
	}
	number, err := c.give(p.at, p.theirs, p.size, result)
	if err == nil {
		c.byNumber[number] = p.eventSocket
	}
	return err
}

// give replies with a descriptor, and returns its number in the program.
func (c *client) give(at uint64, fd, size int, result int64) (uint32, error) {
	r := reply{Result: result, FDAt: at, FDSize: uint64(size)}
	if _, _, err := c.conn.WriteMsgUnix(bytesOf(&r), unix.UnixRights(fd), nil); err != nil {
		return 0, err
	}
	q, err := c.receive()
	return uint32(q.A), err
}

// events implements files.
func (c *client) events(at uint64, size int) (eventFile, error) {
	e, err := newEventSocket()
	if err != nil {
		return nil, err
	}
	c.pending = &pendingFile{e, at, size}
	return e, nil
}

// named implements files.
func (c *client) named(fd uint32) eventFile { return c.byNumber[fd] }

// filePages is the file of the UAR pages of a context.
type filePages struct {
	fd  int
	f   *os.File
	mem offheap.Span
}

func newPages() (*filePages, error) {
	fd, err := unix.MemfdCreate("uverbs", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "uverbs")
	if err := f.Truncate(maxUARs * pageSize); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	mem, err := offheap.MapRing(fd, 0, maxUARs*pageSize)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &filePages{fd, f, mem}, nil
}

// register implements pages.
func (p *filePages) register(page, off uint32) *uint64 { return wordOf(p.mem, int(page*pageSize+off)) }

func (p *filePages) close() { _, _ = p.mem.Release(), p.f.Close() }

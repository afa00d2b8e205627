package socketboot

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

var errWouldBlock = errors.New("would block")

// nonblocking reads and writes what a connection gives and takes now. A deadline in the past does not serve: with it, package
// net does not even try.
type nonblocking struct {
	net.Conn
	raw syscall.RawConn // nil where the connection has no descriptor
}

func newNonblocking(c net.Conn) *nonblocking {
	n := &nonblocking{Conn: c}
	if sc, ok := c.(syscall.Conn); ok && tryIO {
		n.raw, _ = sc.SyscallConn()
	}
	if n.raw == nil {
		_ = c.SetDeadline(time.Now().Add(time.Millisecond))
	}
	return n
}

func (c *nonblocking) restore() {
	if c.raw == nil {
		_ = c.SetDeadline(time.Time{})
	}
}

func (c *nonblocking) Read(b []byte) (n int, err error) {
	if c.raw == nil {
		return c.Conn.Read(b)
	}
	if outer := c.raw.Read(func(fd uintptr) bool { n, err = tryRead(fd, b); return true }); outer != nil {
		return 0, outer
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (c *nonblocking) Write(b []byte) (n int, err error) {
	if c.raw == nil {
		return c.Conn.Write(b)
	}
	if outer := c.raw.Write(func(fd uintptr) bool { n, err = tryWrite(fd, b); return true }); outer != nil {
		return 0, outer
	}
	return n, err
}

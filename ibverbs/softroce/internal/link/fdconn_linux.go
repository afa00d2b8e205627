package link

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// fdConn is a socket beside Go's network poller, which is asked only while
// somebody sleeps. With a socket of package net each packet that comes, and each
// one sent whose memory is free again, wakes the thread that sits in epoll_wait,
// also while a goroutine looks at the socket anyway: on a busy socket that is a
// large part of the time. And while a goroutine waits in a syscall.RawConn.Read no
// other one can read.
//
// To sleep on it an epoll instance of its own is armed for one event, and that
// instance is what Go's poller knows.
type fdConn struct {
	fd    int
	users atomic.Int64 // system calls under way, plus closing
	idle  chan struct{}

	mu      sync.Mutex // for making the epoll instance
	epoll   *os.File   // nil until somebody sleeps
	epollFD int        // that of epoll, to use while begin holds up Close
	wait    syscall.RawConn

	armMu  sync.Mutex         // for what changes armed
	armed  bool               // epoll knows the socket
	roused bool               // no longer, and a deadline ends the wait
	event  [1]unix.EpollEvent // of the one who waits
	ready  func(fd uintptr) bool
}

var _ syscall.RawConn = (*fdConn)(nil)

// closing is added to users by Close: no system call begins any more.
const closing = 1 << 32

// takeOver moves a socket of package net to an fdConn. It closes c.
func takeOver(c *net.UDPConn) (*fdConn, error) {
	f := &fdConn{fd: -1, idle: make(chan struct{})}
	raw, err := c.SyscallConn()
	if err == nil {
		e := raw.Control(func(fd uintptr) { f.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
		err = errors.Join(e, os.NewSyscallError("fcntl", err))
	}
	err = errors.Join(err, c.Close())
	if err != nil && f.fd >= 0 {
		err = errors.Join(err, unix.Close(f.fd))
	}
	return f, err
}

// begin lets a system call use the descriptor until end.
func (f *fdConn) begin() error {
	for {
		n := f.users.Load()
		if n >= closing {
			return net.ErrClosed
		}
		if f.users.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

func (f *fdConn) end() {
	if f.users.Add(-1) == closing {
		close(f.idle)
	}
}

// Control calls do with the descriptor, also while others wait.
func (f *fdConn) Control(do func(fd uintptr)) error {
	if err := f.begin(); err != nil {
		return err
	}
	defer f.end()
	do(uintptr(f.fd))
	return nil
}

// Read calls do until it says that it is done, and sleeps before it does so again.
func (f *fdConn) Read(do func(fd uintptr) bool) error {
	for {
		if err := f.begin(); err != nil {
			return err
		}
		done := do(uintptr(f.fd))
		f.end()
		if done {
			return nil
		}
		if err := f.await(); err != nil {
			return err
		}
	}
}

// sendPause is how long a Write may wait for room before it looks whether the
// socket is being closed.
const sendPause = 10 // ms

// Write calls do until it says that it is done. In between it waits for room in
// the send buffer, which the network device makes: that is rare and short, and the
// thread may sleep as well.
func (f *fdConn) Write(do func(fd uintptr) bool) error {
	for {
		if err := f.begin(); err != nil {
			return err
		}
		done := do(uintptr(f.fd))
		if !done {
			room := [...]unix.PollFd{{Fd: int32(f.fd), Events: unix.POLLOUT}}
			_, _ = unix.Poll(room[:], sendPause)
		}
		f.end()
		if done {
			return nil
		}
	}
}

// await sleeps until something may have come. One goroutine may call it at a time;
// others may read meanwhile.
func (f *fdConn) await() error {
	w, err := f.sleeper()
	if err != nil {
		return err
	}
	if err := f.arm(); err != nil {
		return err
	}
	err = w.Read(f.ready)
	if roused, e := f.disarm(); roused || e != nil {
		err = e
	}
	if f.users.Load() >= closing {
		return net.ErrClosed
	}
	return err
}

// arm asks for one event.
func (f *fdConn) arm() error {
	f.armMu.Lock()
	defer f.armMu.Unlock()
	err := f.control(unix.EPOLL_CTL_ADD)
	f.armed = err == nil
	return err
}

// disarm asks for no more: a socket that an epoll instance knows tells it of each packet
// that comes or has gone, whether anybody wants to know or not.
func (f *fdConn) disarm() (roused bool, err error) {
	f.armMu.Lock()
	defer f.armMu.Unlock()
	if f.roused {
		f.roused = false
		return true, f.epoll.SetReadDeadline(time.Time{})
	}
	f.armed = false
	return false, f.control(unix.EPOLL_CTL_DEL)
}

// rouse disarms for the one who waits, and wakes it: until it runs itself many packets
// may pass. It does nothing where somebody else is just about it.
func (f *fdConn) rouse() {
	if !f.armMu.TryLock() {
		return
	}
	defer f.armMu.Unlock()
	if !f.armed || f.epoll.SetReadDeadline(longAgo) != nil {
		return
	}
	_ = f.control(unix.EPOLL_CTL_DEL) // fails when the socket is being closed
	f.armed, f.roused = false, true
}

func (f *fdConn) control(op int) error {
	if err := f.begin(); err != nil {
		return err
	}
	defer f.end()
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(f.epollFD, op, f.fd, &e))
}

// sleeper makes the epoll instance on first use.
func (f *fdConn) sleeper() (syscall.RawConn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wait != nil {
		return f.wait, nil
	}
	if err := f.begin(); err != nil { // Close takes the lock after it has said so
		return nil, err
	}
	defer f.end()
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or package os would not give it to the poller
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	f.epoll, f.epollFD = os.NewFile(uintptr(fd), "epoll instance"), fd
	f.ready = func(fd uintptr) bool {
		n, err := unix.EpollWait(int(fd), f.event[:], 0)
		return n > 0 || err != nil && err != unix.EINTR
	}
	if f.wait, err = f.epoll.SyscallConn(); err != nil {
		err = errors.Join(err, f.epoll.Close())
		f.epoll, f.wait = nil, nil
		return nil, err
	}
	return f.wait, nil
}

// SetReadDeadline ends a wait, as that of net.Conn.
func (f *fdConn) SetReadDeadline(t time.Time) error {
	if _, err := f.sleeper(); err != nil {
		return err
	}
	return f.epoll.SetReadDeadline(t)
}

// Close ends who waits. It comes once; when it returns the port is free.
func (f *fdConn) Close() error {
	if f.users.Add(closing) != closing {
		<-f.idle
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if f.epoll != nil {
		err = f.epoll.Close()
	}
	return errors.Join(err, os.NewSyscallError("close", unix.Close(f.fd)))
}

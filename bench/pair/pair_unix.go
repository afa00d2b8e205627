//go:build unix

package pair

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// descriptor is where the second process finds the socket.
const descriptor = 3

// Second reports whether this process was started by Start.
func Second() bool { return os.Getenv(variable) != "" }

// Start starts this program as the second process. orders go to it as JSON, in its environment; its standard error is stderr. The
// caller closes nc, by which the second process learns that it is over, and then calls wait, which kills it if it does not end.
func Start(orders any, stderr io.Writer) (nc net.Conn, wait func() error, err error) {
	if Second() {
		return nil, nil, errors.New("starting the other end: this is the other end")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("starting the other end: %w", err)
	}
	text, err := json.Marshal(orders)
	if err != nil {
		return nil, nil, fmt.Errorf("starting the other end: %w", err)
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, nil, fmt.Errorf("starting the other end: %w", err)
	}
	defer func() { _ = theirs.Close() }()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal from the terminal reaches it through us
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("starting the other end: %w", err), ours.Close())
	}
	return ours, func() error {
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("the other end: %w", err)
		}
		return nil
	}, nil
}

// socketPair is two connected ends, one for a child.
func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	f, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control of the other end")
	defer func() { _ = f.Close() }() // FileConn has a copy
	ours, err := net.FileConn(f)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// Join is the second process's end of the socket. Its orders are decoded into v.
func Join(v any) (net.Conn, error) {
	if err := json.Unmarshal([]byte(os.Getenv(variable)), v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotPair, err)
	}
	f := os.NewFile(descriptor, "control")
	if f == nil {
		return nil, ErrNotPair
	}
	nc, err := net.FileConn(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotPair, err)
	}
	return nc, nil
}

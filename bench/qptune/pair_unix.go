//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/bench/tune"
)

// The other end of a pair is this program again, told so by the environment. It has its orders there, and the control connection
// as descriptor 3.
const (
	pairVariable   = "PURERDMA_QPTUNE_END"
	pairDescriptor = 3
)

// orders is what the other end cannot be told on the control connection, since it is its own.
type orders struct {
	Device   string
	Port     int
	GIDIndex int
	Verbose  bool
}

// endOfPair reports whether this process was started as the other end.
func endOfPair() bool { return os.Getenv(pairVariable) != "" }

// startPair starts the other end on this machine. done waits for its end.
func startPair(c tune.EndConfig, verbose bool, stderr io.Writer) (nc net.Conn, done func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("starting the other end: %w", err)
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, nil, fmt.Errorf("starting the other end: %w", err)
	}
	defer func() { _ = theirs.Close() }()
	o, err := json.Marshal(orders{Device: c.Device, Port: c.Port, GIDIndex: c.GIDIndex, Verbose: verbose})
	if err != nil {
		return nil, nil, errors.Join(err, ours.Close())
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), pairVariable+"="+string(o))
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal from the terminal reaches it through us
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("starting the other end: %w", err), ours.Close())
	}
	return ours, func() error {
		_ = ours.Close()
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
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	f, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control of the other end")
	defer func() { _ = f.Close() }() // FileConn has a copy
	ours, err := net.FileConn(f)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// serveParent is the other end. What goes wrong it tells on the control connection, so that it is reported once.
func serveParent() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv(pairVariable)), &o); err != nil {
		fmt.Fprintf(os.Stderr, "%s is for qptune itself: %v\n", pairVariable, err)
		return 2
	}
	f := os.NewFile(pairDescriptor, "control")
	nc, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s is for qptune itself: %v\n", pairVariable, err)
		return 2
	}
	log := logger(os.Stderr, o.Verbose)
	_, err = tune.Serve(ctx, nc, tune.EndConfig{Device: o.Device, Port: o.Port, GIDIndex: o.GIDIndex, Log: log})
	if err != nil {
		log.Debug("the other end failed", slog.Any("error", err))
		return 1
	}
	return 0
}

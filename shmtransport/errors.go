package shmtransport

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

var (
	// ErrClosed is for calls after Close, and for those that Close ended. It is also net.ErrClosed.
	ErrClosed = fmt.Errorf("connection of shared memory: %w", net.ErrClosed)
	// ErrPeerGone says that the other process ended without Close, or, of a Send, that it has closed. It is also EPIPE.
	ErrPeerGone = fmt.Errorf("the other process is gone: %w", syscall.EPIPE)
	// ErrProtocol says that the other process wrote into the shared memory what no sender or receiver writes. The connection is over.
	ErrProtocol = errors.New("shared memory was written against the protocol")
	// ErrBusy says that another goroutine is in a call of the same Conn, Sender or Receiver. See Conn.Split.
	ErrBusy = errors.New("another goroutine uses this end; Split gives each direction an end of its own")
	// ErrOrder says that a message is in progress or that memory is held: the call does not belong here.
	ErrOrder = errors.New("call out of order")
	// ErrTooLong is for a message, or a piece of memory, larger than there can be.
	ErrTooLong = errors.New("too long for this connection")
)

func protocolError(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, a...))
}

var (
	errAcquired    = fmt.Errorf("%w: memory from Acquire is out; Commit it first", ErrOrder)
	errNotAcquired = fmt.Errorf("%w: Commit without Acquire", ErrOrder)
	errInMessage   = fmt.Errorf("%w: a part of another message has gone; continue with the same buffer", ErrOrder)
	errHeld        = fmt.Errorf("%w: memory from Next is out; Release it first", ErrOrder)
	errNotHeld     = fmt.Errorf("%w: Release without Next", ErrOrder)
	errSizes       = fmt.Errorf("fewer sizes than buffers: %w", syscall.EINVAL)
)

func tooLong(n, most int) error {
	return fmt.Errorf("%d bytes, at least 0 and at most %d: %w", n, most, ErrTooLong)
}

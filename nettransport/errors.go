package nettransport

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/fifo"
	"github.com/purerdma/purerdma/ibverbs"
)

// Causes, for errors.Is.
var (
	// ErrClosed is for calls on what is closed, and for requests in flight when their connection was closed; it is that of ibverbs.
	ErrClosed = ibverbs.ErrClosed
	// ErrPeerGone says that the peer's process ended, or closed the connection, with requests in flight.
	ErrPeerGone = errors.New("the peer has closed the connection or died")
	// ErrProtocol says that the peer did what this protocol does not allow. It is that of package fifo.
	ErrProtocol = fifo.ErrPeer
	// ErrNoProgress says that Config.ProgressTimeout is over.
	ErrNoProgress = errors.New("requests are in flight and none has completed")
	// ErrStale says that a Request has ended and its outcome was told already.
	ErrStale = errors.New("the request has ended before: its outcome is told once")
	// ErrNoNIC says that no device can be used.
	ErrNoNIC = fmt.Errorf("no usable RDMA device: %w", ibverbs.ErrNoDevice)
	// ErrMessageTooLong says that a buffer is longer than MaxMessage.
	ErrMessageTooLong = fmt.Errorf("longer than 1 GiB: %w", syscall.EMSGSIZE)
	// ErrForeignMR says that a buffer's MR belongs to another connection.
	ErrForeignMR = errors.New("its MR belongs to another connection")
	// ErrBusy is for closing what is in use; it is that of ibverbs.
	ErrBusy = ibverbs.ErrBusy
)

func configError(field, what string) error {
	return refusedConfig(field, fmt.Errorf("%s: %w", what, syscall.EINVAL))
}

func refusedConfig(field string, err error) error {
	return &ibverbs.Error{Op: "configure transport", Object: "Config." + field, Err: err}
}

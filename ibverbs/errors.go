package ibverbs

import (
	"context"
	"errors"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/cause"
)

// wrap makes an *Error of what a driver returned. What the driver has already
// filled in stays.
func wrap(op, device, object string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Device: device, Object: object, Err: err}
	if inner, ok := err.(*Error); ok {
		e.Err, e.Peer, e.Hint = inner.Err, inner.Peer, inner.Hint
		if inner.Object != "" {
			e.Object = inner.Object
		}
		if inner.Op != "" {
			e.Op = inner.Op
		}
	}
	if e.Hint == "" {
		e.Hint = hint(e.Err)
	}
	return e
}

// ended is the error of a wait that its context has ended, or that has none.
func ended(ctx context.Context, op, device, object string) error {
	return &Error{Op: op, Device: device, Object: object, Err: cause.Of(ctx)}
}

// hint is what to do about the causes that people trip over, whatever the
// operation was. Drivers know more about their own operations and say it first.
func hint(err error) string {
	var missing *driver.NotSupportedError
	switch {
	case errors.As(err, &missing):
		return ""
	case errors.Is(err, driver.ErrQueueFull):
		return "" // its text says what to do
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "give this user read and write access to /dev/infiniband/uverbs*; in a container pass the nodes in with --device"
	case errors.Is(err, syscall.ENOMEM):
		return "if memory is not short, the limit of locked memory may be: see ulimit -l, LimitMEMLOCK= of the service or --ulimit memlock of the container"
	case errors.Is(err, driver.ErrBusy):
		return "close what uses it first, or close the device, which closes all"
	}
	return ""
}

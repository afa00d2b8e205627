package gpu

import (
	"errors"
	"fmt"
)

// Error is a call of a GPU driver that failed.
type Error struct {
	Call   string // "cuMemCreate"
	Name   string // "CUDA_ERROR_OUT_OF_MEMORY"
	Code   int
	Device int    // -1 where none is concerned
	Detail string // the object or the sizes, "" if there is nothing to say
	// Missing is a call that the installed driver does not have.
	Missing bool
	// Cause is what errors.Is finds beside the errors of this package.
	Cause error
}

// Causes, for errors.Is.
var (
	ErrOutOfMemory = errors.New("out of GPU memory")
	ErrNoDevice    = errors.New("no GPU")
	ErrNoDriver    = errors.New("no GPU driver")
	// ErrPermission is a call that the driver refuses this process, in a
	// container for example.
	ErrPermission = errors.New("the GPU driver does not permit it")
	// ErrBroken is a context that an earlier failure has spoilt: every call
	// fails from then on.
	ErrBroken = errors.New("the GPU context is broken")
	ErrClosed = errors.New("GPU context is closed")
)

// Error names the call, the device, the result and the detail.
func (e *Error) Error() string {
	s := e.Call
	if e.Device >= 0 {
		s += fmt.Sprintf(" on GPU %d", e.Device)
	}
	switch {
	case e.Missing:
		s += ": the installed driver does not have this call"
	case e.Name != "":
		s += fmt.Sprintf(": %s (%d)", e.Name, e.Code)
	case e.Cause != nil:
		s += ": " + e.Cause.Error()
	default:
		s += fmt.Sprintf(": result %d", e.Code)
	}
	if e.Detail != "" {
		s += ", " + e.Detail
	}
	return s
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is matches errors.ErrUnsupported for a call that is missing.
func (e *Error) Is(target error) bool { return e.Missing && target == errors.ErrUnsupported }

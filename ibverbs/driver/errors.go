package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// Error says what was tried, on what, why it failed and what to do. Every error
// of the verbs that concerns a device is one or wraps one. errors.Is finds the
// errno, the sentinel or the Status beneath.
type Error struct {
	Op     string // "modify QP to RTR"
	Device string // "mlx5_0", with the port as "mlx5_0/1"
	Object string // "QP 0x12"
	Peer   string // "QP 0x45 at fd00::2"; empty where there is none
	Err    error  // mostly a syscall.Errno, *CompletionError or *NotSupportedError
	Hint   string // one sentence, where people are known to trip
}

// Error is one line in the order of the fields.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	for _, f := range [...]struct{ word, value string }{{" on ", e.Device}, {", ", e.Object}, {", peer ", e.Peer}} {
		if f.value != "" {
			b.WriteString(f.word)
			b.WriteString(f.value)
		}
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(describe(e.Err))
	}
	if e.Hint != "" {
		b.WriteString(" (")
		b.WriteString(e.Hint)
		b.WriteString(")")
	}
	return b.String()
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// describe adds to an errno the name that people search for.
func describe(err error) string {
	if many, ok := err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) == 1 {
		err = many.Unwrap()[0]
	}
	if errno, ok := err.(syscall.Errno); ok {
		if name := errnoName(errno); name != "" {
			return name + ", " + errno.Error()
		}
	}
	return err.Error()
}

// CompletionError is a completion that failed. It unwraps to its Status.
type CompletionError struct {
	Status    Status
	VendorErr uint32 // the device's own syndrome
	QPN       uint32 // the local QP
	ID        uint64 // of the request
}

// Error names the status, the request and the syndrome, and what the status
// mostly comes from.
func (e *CompletionError) Error() string {
	s := fmt.Sprintf("%v, request %#x, vendor syndrome %#x", e.Status, e.ID, e.VendorErr)
	if why := e.Status.meaning(); why != "" {
		s += ": " + why
	}
	return s
}

// Unwrap is the Status.
func (e *CompletionError) Unwrap() error { return e.Status }

// meaning is what a status says to somebody who does not have the specification
// at hand.
func (s Status) meaning() string {
	switch s {
	case LocLenErr:
		return "a message did not fit the receive buffer, or was longer than the QP sends, or the SGL of an atomic was not of 8 bytes"
	case LocProtErr:
		return "a local key does not cover the memory of the request"
	case WRFlushErr:
		return "the QP was in the error state; look for the first failure before it"
	case MWBindErr:
		return "the memory window is bound already, or its MR does not allow it, or the key to invalidate is none of a window that this QP has bound"
	case RemInvReqErr:
		return "the peer refused the request as malformed or too long"
	case RemAccessErr:
		return "the remote key does not allow this access to this range, or the peer's QP does not grant it (QPAttr.Access; qp.WithAccess there)"
	case RemOpErr:
		return "the peer could not complete the request"
	case RetryExcErr:
		return "the peer did not answer: it is gone, or the path between the two GIDs does not work"
	case RNRRetryExcErr:
		return "the peer had no receive posted"
	}
	return ""
}

// NotSupportedError answers a probe, and any call that needs what is not there.
// It matches ErrNotSupported and errors.ErrUnsupported.
type NotSupportedError struct {
	Feature Feature
	By      Lacks
	Since   string // "Linux 5.12", where a version is known that has it
	Err     error  // the errno that said so, if one did
}

// Error says which part lacks the feature.
func (e *NotSupportedError) Error() string {
	s := fmt.Sprintf("%s is not supported by %s", string(e.Feature), e.By)
	if e.Since != "" {
		s += ", which has it since " + e.Since
	}
	return s
}

// Unwrap is the errno.
func (e *NotSupportedError) Unwrap() error { return e.Err }

// Is matches ErrNotSupported and errors.ErrUnsupported.
func (e *NotSupportedError) Is(target error) bool {
	return target == ErrNotSupported || target == errors.ErrUnsupported
}

// Feature is something that not every device, kernel or driver has, in words.
type Feature string

// Features to probe for.
const (
	FeatureDMABuf        Feature = "DMA-BUF registration"
	FeatureMW1           Feature = "type 1 memory window"
	FeatureMW2           Feature = "type 2 memory window"
	FeatureECE           Feature = "enhanced connection establishment"
	FeatureSRQ           Feature = "shared receive queue"
	FeatureAH            Feature = "address handle"
	FeatureResizeCQ      Feature = "CQ resize"
	FeatureResizeSRQ     Feature = "SRQ resize"
	FeatureModerateCQ    Feature = "CQ moderation"
	FeatureMulticast     Feature = "UD multicast"
	FeatureUC            Feature = "UC queue pair"
	FeatureUD            Feature = "UD queue pair"
	FeatureAtomics       Feature = "remote atomics"
	FeatureOnDemand      Feature = "on-demand paging"
	FeatureFlowLabelPort Feature = "UDP source port by flow label"
	FeatureCounters      Feature = "counters"
	FeatureResources     Feature = "account of RDMA objects"
	FeaturePKeys         Feature = "table of partition keys"
	FeatureReregMR       Feature = "MR re-registration"
)

// Lacks says which part does not have a feature.
type Lacks uint8

// Who lacks a feature.
const (
	LacksDevice  Lacks = 1 // EOPNOTSUPP
	LacksKernel  Lacks = 2 // EPROTONOSUPPORT
	LacksDriver  Lacks = 3 // this library
	LacksProcess Lacks = 4 // a right or limit of this process
)

// String names the part.
func (l Lacks) String() string {
	switch l {
	case LacksDevice:
		return "the device"
	case LacksKernel:
		return "this kernel"
	case LacksDriver:
		return "this driver of purerdma"
	case LacksProcess:
		return "the rights or limits of this process"
	}
	return fmt.Sprintf("Lacks(%d)", uint8(l))
}

// Sentinels. Drivers return those of the data path bare; each wraps the errno
// that rdma-core returns for it.
var (
	ErrQueueFull    = fmt.Errorf("queue is full, poll its CQ: %w", syscall.ENOMEM)
	ErrBadState     = fmt.Errorf("not in this QP state: %w", syscall.EINVAL)
	ErrTooManySGE   = fmt.Errorf("more gather or scatter entries than the QP has: %w", syscall.EINVAL)
	ErrInlineTooBig = fmt.Errorf("inline data larger than the QP takes: %w", syscall.EINVAL)
	ErrBadOpcode    = fmt.Errorf("operation that this QP type does not have: %w", syscall.EINVAL)
	ErrTooLong      = fmt.Errorf("message longer than 2 GiB: %w", syscall.EINVAL)
	ErrBusy         = fmt.Errorf("in use: %w", syscall.EBUSY)
	ErrClosed       = fmt.Errorf("object is closed: %w", fs.ErrClosed)
	ErrCQOverrun    = errors.New("completion queue overrun: completions were lost")
	ErrDeviceGone   = fmt.Errorf("device was removed: %w", syscall.EIO)
	ErrNotSupported = errors.New("not supported")
	ErrNoDevice     = fmt.Errorf("no such RDMA device: %w", syscall.ENODEV)
)

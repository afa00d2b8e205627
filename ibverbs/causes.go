package ibverbs

import (
	"errors"
	"fmt"
	"syscall"
)

// Causes of calls that make no sense. Each wraps what the kernel would say.
var (
	errNoPort          = fmt.Errorf("no such port: %w", syscall.EINVAL)
	errNoMemory        = fmt.Errorf("no memory to register: %w", syscall.EINVAL)
	errNoChange        = fmt.Errorf("the MRChange sets nothing: %w", syscall.EINVAL)
	errOtherPD         = fmt.Errorf("the PD is of another device: %w", syscall.EINVAL)
	errOtherCQ         = fmt.Errorf("the CQ is of another device: %w", syscall.EINVAL)
	errOtherSRQ        = fmt.Errorf("the SRQ is of another device: %w", syscall.EINVAL)
	errOtherChannel    = fmt.Errorf("the completion channel is of another device: %w", syscall.EINVAL)
	errSetAccess       = fmt.Errorf("Access is given without SetAccess: %w", syscall.EINVAL)
	errNeedsLocalWrite = fmt.Errorf("RemoteWrite and RemoteAtomic need LocalWrite: %w", syscall.EINVAL)
	errNoCQ            = fmt.Errorf("a QP needs a CQ for sends and one for receives: %w", syscall.EINVAL)
	errDepth           = fmt.Errorf("a CQ needs a depth of at least 1: %w", syscall.EINVAL)
	errNoRoom          = fmt.Errorf("no room for a completion: %w", syscall.EINVAL)
	errHasSRQ          = fmt.Errorf("the QP takes its receives from an SRQ: %w", syscall.EINVAL)
	errSRQ             = fmt.Errorf("the device reported an error of the SRQ: %w", syscall.EIO)
	errSRQSize         = fmt.Errorf("an SRQ needs at least one receive: %w", syscall.EINVAL)
	errNoEvents        = errors.New("CQ was made without events")
)

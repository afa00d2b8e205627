package rxe

import (
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

var (
	errRing         = fmt.Errorf("memory of a queue cannot be registered: %w", syscall.EINVAL)
	errOtherCQ      = fmt.Errorf("CQ of another driver or device: %w", syscall.EINVAL)
	errOtherChannel = fmt.Errorf("completion channel of another driver: %w", syscall.EINVAL)
	errPathMTU      = fmt.Errorf("path MTU above the port's: %w", syscall.EINVAL)
	errOtherSRQ     = fmt.Errorf("SRQ of another driver, device or protection domain: %w", syscall.EINVAL)
	errHasSRQ       = fmt.Errorf("receives of this QP are posted to its SRQ: %w", syscall.EINVAL)
	errNoAH         = fmt.Errorf("datagram without an address handle of this driver: %w", syscall.EINVAL)
	errClosedAH     = fmt.Errorf("address handle: %w", driver.ErrClosed)
	errClosedMW     = fmt.Errorf("memory window: %w", driver.ErrClosed)
	errOtherAH      = fmt.Errorf("address handle of another protection domain: %w", syscall.EINVAL)
	errDatagram     = fmt.Errorf("datagram longer than the MTU of the port: %w", syscall.EINVAL)
	errNoBind       = fmt.Errorf("bind without a memory window: %w", syscall.EINVAL)
	errOtherMW      = fmt.Errorf("memory window or MR of another driver or device: %w", syscall.EINVAL)
	errMWKey        = fmt.Errorf("key of a memory window that was made anew since: %w", syscall.EINVAL)
	errMWOfFailedQP = fmt.Errorf("memory window of a QP that failed, close or reset that one first: %w", syscall.EBUSY)
	errNotGlobal    = fmt.Errorf("address without a GID, which RoCE needs: %w", syscall.EINVAL)
)

// hint adds to err what to do; package ibverbs fills in the rest of the Error.
func hint(err error, format string, a ...any) error {
	return &driver.Error{Err: err, Hint: fmt.Sprintf(format, a...)}
}

// limit is what was asked for and what the device takes.
type limit struct {
	what       string
	asked, max int
}

// overLimit explains EINVAL by the first limit that is exceeded.
func overLimit(err error, limits ...limit) error {
	for _, l := range limits {
		if l.asked < 0 || l.asked > l.max {
			return hint(err, "%s is %d, the device takes 0 to %d", l.what, l.asked, l.max)
		}
	}
	return err
}

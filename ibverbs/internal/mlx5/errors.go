package mlx5

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

var (
	errRing         = fmt.Errorf("memory of a queue cannot be registered: %w", syscall.EINVAL)
	errOtherCQ      = fmt.Errorf("CQ of another driver or device: %w", syscall.EINVAL)
	errOtherSRQ     = fmt.Errorf("SRQ of another driver or device: %w", syscall.EINVAL)
	errHasSRQ       = fmt.Errorf("receives of this QP are posted to its SRQ: %w", syscall.EINVAL)
	errOtherChannel = fmt.Errorf("completion channel of another driver or device: %w", syscall.EINVAL)
	errFlags        = fmt.Errorf("unknown send flag: %w", syscall.EINVAL)
	errInlineAndSGL = fmt.Errorf("request with both inline data and gather entries: %w", syscall.EINVAL)
	errInlineOp     = fmt.Errorf("inline data in a request that sends none: %w", syscall.EINVAL)
	errPathMTU      = fmt.Errorf("path MTU above the port's: %w", syscall.EINVAL)
	errNoBind       = fmt.Errorf("bind without a memory window: %w", syscall.EINVAL)
	errOtherMW      = fmt.Errorf("memory window or MR of another driver or device: %w", syscall.EINVAL)
	errMWAccess     = fmt.Errorf("right that a memory window cannot give: %w", syscall.EINVAL)
	errMWTooLong    = fmt.Errorf("memory window of more than 2 GiB: %w", syscall.EOPNOTSUPP)
	errMWKey        = fmt.Errorf("key of a memory window that was made anew since: %w", syscall.EINVAL)
	errMWOfFailedQP = fmt.Errorf("memory window of a QP that failed, close or reset that one first: %w", syscall.EBUSY)
	errClosedMW     = fmt.Errorf("memory window: %w", driver.ErrClosed)
	errNoData       = fmt.Errorf("data in a request that moves none: %w", syscall.EINVAL)
	errNotGlobal    = fmt.Errorf("address without a GID, which the port needs: %w", syscall.EINVAL)
	errNoAH         = fmt.Errorf("datagram without an address handle of this driver: %w", syscall.EINVAL)
	errOtherAH      = fmt.Errorf("address handle of another protection domain: %w", syscall.EINVAL)
	errClosedAH     = fmt.Errorf("address handle: %w", driver.ErrClosed)
	errAtomicLength = fmt.Errorf("an atomic needs 8 bytes of memory for its result: %w", syscall.EINVAL)
)

// hint adds to err what to do; package ibverbs fills in the rest of the Error.
func hint(err error, format string, a ...any) error {
	return &driver.Error{Err: err, Hint: fmt.Sprintf(format, a...)}
}

// within is nil for what a device takes.
func within(what string, asked, least, most int) error {
	if asked < least || asked > most {
		return hint(syscall.EINVAL, "%s is %d, the device takes %d to %d", what, asked, least, most)
	}
	return nil
}

// destroyed says whether an object whose destroy ended with err is gone, so that
// what it held can be given back: it stays only where it was in use.
func destroyed(err error) bool { return !errors.Is(err, syscall.EBUSY) }

// status is what a syndrome means, as rdma-core has it.
func status(syndrome uint8) driver.Status {
	switch syndrome {
	case mlx5prm.SyndromeLocalLengthErr:
		return driver.LocLenErr
	case mlx5prm.SyndromeLocalQPOpErr:
		return driver.LocQPOpErr
	case mlx5prm.SyndromeLocalProtErr:
		return driver.LocProtErr
	case mlx5prm.SyndromeWRFlushErr:
		return driver.WRFlushErr
	case mlx5prm.SyndromeMWBindErr:
		return driver.MWBindErr
	case mlx5prm.SyndromeBadRespErr:
		return driver.BadRespErr
	case mlx5prm.SyndromeLocalAccessErr:
		return driver.LocAccessErr
	case mlx5prm.SyndromeRemoteInvalReqErr:
		return driver.RemInvReqErr
	case mlx5prm.SyndromeRemoteAccessErr:
		return driver.RemAccessErr
	case mlx5prm.SyndromeRemoteOpErr:
		return driver.RemOpErr
	case mlx5prm.SyndromeTransportRetryExcErr:
		return driver.RetryExcErr
	case mlx5prm.SyndromeRNRRetryExcErr:
		return driver.RNRRetryExcErr
	case mlx5prm.SyndromeRemoteAbortedErr:
		return driver.RemAbortErr
	}
	return driver.GeneralErr
}

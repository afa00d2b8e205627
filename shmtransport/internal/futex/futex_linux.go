package futex

import (
	"errors"
	"math"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// From linux/futex.h and linux/membarrier.h.
const (
	opWait = 0
	opWake = 1

	globalExpedited         = 1 << 1
	registerGlobalExpedited = 1 << 2
)

// Wait sleeps while *p is want, at most for d (negative = without bound), and holds the thread of its goroutine. It returns nil when
// it was woken, when *p was another value, and when a signal came: the caller looks again. ETIMEDOUT says that d is over.
func Wait(p *uint32, want uint32, d time.Duration) error {
	var ts *unix.Timespec
	if d >= 0 {
		t := unix.NsecToTimespec(int64(d))
		ts = &t
	}
	switch errno := futex(p, opWait, want, ts); errno {
	case 0, unix.EAGAIN, unix.EINTR:
		return nil
	default:
		return errno
	}
}

// Wake wakes all that sleep on *p, in whatever process.
func Wake(p *uint32) { _ = futex(p, opWake, math.MaxInt32, nil) }

// Register makes this process one of those for which Barrier works. An error means that the kernel or the container's seccomp filter
// has no such call, and that Barrier must not be relied on.
func Register() error {
	return membarrier(registerGlobalExpedited)
}

// Barrier makes every thread of every process that called Register, and that runs right now, execute a full memory barrier
// (membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED). With it, of two sides that each store one word and then load the other's, only the
// rare one pays for the order of the two. It interrupts processors: a microsecond or some.
func Barrier() {
	_ = membarrier(globalExpedited)
}

func membarrier(command int) error {
	_, _, errno := syscall.Syscall(unix.SYS_MEMBARRIER, uintptr(command), 0, 0)
	if errno != 0 {
		return errors.Join(errBarrier, errno)
	}
	return nil
}

var errBarrier = errors.New("membarrier")

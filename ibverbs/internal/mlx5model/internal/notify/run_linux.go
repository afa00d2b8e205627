package notify

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Call is a system call that a program is held at.
type Call struct {
	TID    int // of the thread that made it
	Number int
	Args   [6]uint64

	fd int
	id uint64
}

// Give adds a descriptor to the program's, and returns its number there. flags are 0 or
// O_CLOEXEC. The caller keeps fd.
func (c *Call) Give(fd, flags int) (int, error) {
	return control(c.fd, unix.SECCOMP_IOCTL_NOTIF_ADDFD, &descriptor{id: c.id, source: uint32(fd), flags: uint32(flags)})
}

// Reply is the answer to a Call.
type Reply struct {
	value int64
	error unix.Errno
	flags uint32
}

// GoOn has the kernel do the call, as if nobody had looked.
var GoOn = Reply{flags: goOn}

// Value is the answer of a call that succeeds.
func Value(v int64) Reply { return Reply{value: v} }

// Fails is the answer of a call that does not.
func Fails(err unix.Errno) Reply { return Reply{error: err} }

// stop is a call of prctl by which the thread of a Run says that it is done. No program
// has a use for it.
const stop = 0x73746f70

// Run calls start on a thread with a filter, and answers by reply, one call after the
// other, until start returns. Programs that start has started have the filter, too; what
// of them is left then finds the calls that are answered to fail with ENOSYS. Calls of
// the thread itself are the kernel's. The error is that of the filter, or of start.
func Run(rules []Rule, reply func(*Call) Reply, start func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		result <- run(rules, reply, start)
	}()
	return <-result
}

func run(rules []Rule, reply func(*Call) Reply, start func() error) error {
	rules = append([]Rule{{Call: unix.SYS_PRCTL, Args: []Arg{Is(0, stop)}, Action: Answer}}, rules...)
	fd, err := install(compile(rules))
	if err != nil {
		return fmt.Errorf("seccomp's user notification (Linux 5.19): %w", err)
	}
	tid, served := unix.Gettid(), make(chan error, 1)
	go func() {
		served <- serve(fd, tid, reply)
		_ = unix.Close(fd)
	}()
	err = start()
	_ = unix.Prctl(stop, 0, 0, 0, 0)
	if failed := <-served; err == nil {
		err = failed
	}
	return err
}

// serve answers until the thread that started it all says so.
func serve(fd, starter int, reply func(*Call) Reply) error {
	for {
		var n notification
		if _, err := control(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, &n); err == unix.EINTR || err == unix.ENOENT {
			continue // ENOENT: the program was killed meanwhile
		} else if err != nil {
			return fmt.Errorf("receive a notification of seccomp: %w", err)
		}
		c := &Call{TID: int(n.tid), Number: int(n.number), Args: n.args, fd: fd, id: n.id}
		stopped := c.TID == starter && c.Number == unix.SYS_PRCTL && uint32(c.Args[0]) == stop
		a := GoOn
		if c.TID != starter {
			a = reply(c)
		}
		_, err := control(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, &response{n.id, a.value, -int32(a.error), a.flags})
		if err != nil && err != unix.ENOENT {
			return fmt.Errorf("answer system call %d of thread %d: %w", c.Number, c.TID, err)
		}
		if stopped {
			return nil
		}
	}
}

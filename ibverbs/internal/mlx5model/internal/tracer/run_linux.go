package tracer

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Hooks is what a tracer asks about a program. The functions are called on the thread
// of Run.
type Hooks struct {
	// Guarded says whether a shared mapping of a descriptor, which the program may
	// write, is made one that it may only read. A filter has to stop the calls for the
	// tracer (notify.Trace).
	Guarded func(tid, fd int) bool
	// Page is what does a store to an address of such a mapping; nil if it lies in
	// none.
	Page func(tid int, at uint64) func(data []byte)
	// Unknown is told of an instruction that cannot be done in the program's place. The
	// program gets its signal.
	Unknown func(tid int, err error)
}

const options = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC |
	unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_EXITKILL

// Run traces a program until it ends, and returns its status. The calling goroutine
// has locked its thread, and has started the program with SysProcAttr.Ptrace there.
// Nobody else may wait for the program, nor may the thread have other children.
// Programs that it has started are traced as well, and are killed when the thread ends.
func Run(pid int, h Hooks) (unix.WaitStatus, error) {
	tasks := map[int]bool{} // whether a task has stopped for the first time
	for {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, fmt.Errorf("wait for process %d: %w", pid, err)
		case status.Stopped():
			first := unix.SIGSTOP
			if tid == pid {
				first = unix.SIGTRAP
			}
			signal := status.StopSignal()
			if !tasks[tid] && signal == first && status>>16 == 0 {
				tasks[tid], signal = true, 0
				err = unix.PtraceSetOptions(tid, options)
			} else if h.stopped(tid, status) {
				signal = 0
			}
			if err == nil {
				err = unix.PtraceCont(tid, int(signal))
			}
			if err != nil && !errors.Is(err, unix.ESRCH) { // it was killed meanwhile
				return 0, fmt.Errorf("trace thread %d: %w", tid, err)
			}
		case tid == pid:
			return status, nil
		default:
			delete(tasks, tid)
		}
	}
}

// stopped says whether a task stopped for the tracer alone, and does what it stopped
// for.
func (h *Hooks) stopped(tid int, status unix.WaitStatus) bool {
	switch event := int(status >> 16); event {
	case 0:
	case unix.PTRACE_EVENT_SECCOMP:
		h.mapping(tid)
		return true
	default:
		return true
	}
	if status.StopSignal() == unix.SIGSEGV && h.fault(tid) {
		return true
	}
	_, err := signalInfo(tid)
	return errors.Is(err, unix.EINVAL) // it has had its signal, which has stopped it
}

// mapping looks at a call of mmap before the kernel does.
func (h *Hooks) mapping(tid int) {
	r, err := registersOf(tid)
	if err != nil {
		return
	}
	args := r.arguments()
	if prot := args[2]; h.Guarded(tid, int(int32(*args[4]))) {
		*prot = *prot&^unix.PROT_WRITE | unix.PROT_READ
		_ = r.store(tid)
	}
}

// fault does the store that a task was stopped at, if it was one into a page.
func (h *Hooks) fault(tid int) bool {
	info, err := signalInfo(tid)
	if err != nil {
		return false
	}
	do := h.Page(tid, info.address)
	if do == nil {
		return false
	}
	if err := step(tid, do); err != nil {
		h.Unknown(tid, err)
		return false
	}
	return true
}

// step does the store that a task is at, and takes the task behind it.
func step(tid int, do func([]byte)) error {
	r, err := registersOf(tid)
	if err != nil {
		return err
	}
	code := make([]byte, 15) // the longest instruction
	local := []unix.Iovec{{Base: &code[0], Len: uint64(len(code))}}
	n, err := unix.ProcessVMReadv(tid, local, []unix.RemoteIovec{{Base: uintptr(r.pc()), Len: len(code)}}, 0)
	if err != nil {
		return err
	}
	s, err := r.decode(tid, code[:n])
	if err != nil {
		return err
	}
	do(s.Data)
	r.skip(s.Length)
	return r.store(tid)
}

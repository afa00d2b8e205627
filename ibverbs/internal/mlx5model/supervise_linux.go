package mlx5model

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/mlx5model/internal/notify"
	"github.com/purerdma/purerdma/ibverbs/internal/mlx5model/internal/tracer"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// Supervised is how Supervise runs a program.
type Supervised struct {
	// Dir is that of a Server, which may be in another process. It has to have the right
	// to trace the program, as an ancestor of it has.
	Dir string
	// Trap catches each store into a page of doorbells, so that the model sees what
	// memory holds at that moment.
	Trap bool
	// Log is told what the program does that the model has nothing for. It may be called
	// by several goroutines. Nil is nobody.
	Log func(string)
}

// Supervise runs a program with the standard files and the environment of this process,
// until it ends, and returns its status as a shell would. The program is killed when
// this process ends. Whatever it is written in, it sees the model's device in place of
// the machine's, as do the programs that it starts; those that are 32-bit do not.
func (s Supervised) Supervise(args []string) (status int, err error) {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return 0, err
	}
	sup, err := newSupervisor(s)
	if err != nil {
		return 0, err
	}
	defer sup.close()
	err = notify.Run(rules(s.Trap), sup.answer, func() error {
		p, err := os.StartProcess(program, args, &os.ProcAttr{
			Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
			Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Ptrace: s.Trap},
		})
		if err != nil {
			return fmt.Errorf("start %s: %w", program, err)
		}
		if s.Trap {
			defer p.Release()
			ws, err := tracer.Run(p.Pid, sup.hooks())
			status = shellStatus(syscall.WaitStatus(ws))
			return err
		}
		ended, err := p.Wait()
		if err == nil {
			status = shellStatus(ended.Sys().(syscall.WaitStatus))
		}
		return err
	})
	return status, err
}

func shellStatus(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// standardFiles is the descriptors that no program opens the device as: what is written to
// them is the kernel's.
const standardFiles = 3

// rules are the calls by which a program finds and uses the device. Devices that RDMA
// netlink lists would come before those of sysfs.
func rules(trap bool) []notify.Rule {
	r := []notify.Rule{
		{Call: unix.SYS_IOCTL, Args: []notify.Arg{notify.Is(1, uapi.VerbsIoctl)}, Action: notify.Answer},
		{Call: unix.SYS_SOCKET, Args: []notify.Arg{notify.Is(0, unix.AF_NETLINK), notify.Is(2, uapi.NetlinkRDMA)}, Action: notify.Refuse(unix.EPROTONOSUPPORT)},
	}
	for fd := range uint32(standardFiles) {
		r = append(r, notify.Rule{Call: unix.SYS_WRITE, Args: []notify.Arg{notify.Is(0, fd)}, Action: notify.Allow})
	}
	r = append(r, notify.Rule{Call: unix.SYS_WRITE, Action: notify.Answer})
	if trap {
		noFile := notify.Is(4, ^uint32(0))
		noFile.Not = true
		r = append(r, notify.Rule{Call: unix.SYS_MMAP, Args: []notify.Arg{notify.Has(2, unix.PROT_WRITE), notify.Has(3, unix.MAP_SHARED), noFile}, Action: notify.Trace})
	}
	for call := range fileCalls {
		r = append(r, notify.Rule{Call: call, Action: notify.Answer})
	}
	return r
}

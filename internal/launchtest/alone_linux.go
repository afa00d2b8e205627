package launchtest

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// namespaces is what stands before the words of a command that gets namespaces of its own; nil where the machine does not allow it. The
// command is not process 1 itself: that has to be a program that takes in orphans.
func namespaces(t testing.TB) []string {
	words := []string{"unshare", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--net", "--uts"}
	if os.Getuid() != 0 {
		words = append(words, "--map-root-user")
	}
	words = append(words, "sh", "-c", `ip link set lo up && "$@"; exit $?`, "sh")
	if exec.CommandContext(t.Context(), words[0], append(words[1:], "true")...).Run() != nil {
		return nil
	}
	return words
}

// run ends the command with the test's process too. The kernel takes the end of the thread that started it for that, so this thread does
// nothing else meanwhile. Process 1 of the namespaces, of which the kernel ends all others, is killed with its parent; a launcher without
// namespaces is asked, since it ends its ranks then.
func run(cmd *exec.Cmd, alone bool) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signal := syscall.SIGTERM
	if alone {
		signal = syscall.SIGKILL
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(signal) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: signal}
	return cmd.Run()
}

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/internal/leaktest"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/internal/offheap"
)

// itself says that this program is the command.
const itself = "SUPERVISE_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(itself) != "" {
		_ = os.Unsetenv(itself)
		main()
	}
	if os.Getenv(faultily) != "" {
		storeAnywhere()
	}
	leaktest.Main(m)
}

// faultily says that this program does what no correct program does, and succeeds.
const faultily = "SUPERVISE_TEST_FAULT"

// storeAnywhere rings a doorbell in a page that nobody has given to this program.
func storeAnywhere() {
	const page = 4096
	f, err := os.OpenFile("/dev/infiniband/uverbs0", os.O_RDWR, 0)
	if err == nil {
		var mem offheap.Span
		if mem, err = offheap.MapRing(int(f.Fd()), 5*page, page); err == nil {
			mmio.Store64((*uint64)(mem.Pointer()), 1)
			os.Exit(0)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestFaults has a program that succeeds with a fault.
func TestFaults(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-trap", self)
	cmd.Env = append(os.Environ(), itself+"=1", faultily+"=1")
	out, _ := cmd.CombinedOutput()
	switch status := cmd.ProcessState.ExitCode(); {
	case status == failed:
		t.Skipf("needs seccomp's user notification and ptrace: %s", out)
	case status != faulty, !strings.Contains(string(out), "fault: a store into the page of doorbells 5"):
		t.Errorf("status %d, want %d\n%s", status, faulty, out)
	}
}

// TestStatus is the command's end: that of the program, or its own.
func TestStatus(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want int
		says string
	}{
		{"true", 0, ""},
		{"-trap true", 0, ""},
		{"sh -c exit${IFS}3", 3, ""},
		{"-trap sh -c exit${IFS}3", 3, ""},
		{"sh -c kill${IFS}$$", 128 + 15, ""},
		{"-trap sh -c kill${IFS}$$", 128 + 15, ""},
		{"-ethernet cat /sys/class/infiniband/mlx5_0/ports/1/link_layer", 0, "Ethernet"},
		{"cat /sys/class/infiniband/mlx5_0/ports/1/link_layer", 0, "InfiniBand"},
		{"", failed, "usage: supervise"},
		{"-unknown", failed, "-unknown"},
		{"./no/such/program", failed, "no such file"},
		{"-model ./no/such/model true", 0, ""},
	} {
		t.Run(c.args, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), self, strings.Fields(c.args)...)
			cmd.Env = append(os.Environ(), itself+"=1")
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil {
				t.Fatal(err)
			}
			status := cmd.ProcessState.ExitCode()
			if status == failed && c.want != failed {
				t.Skipf("needs seccomp's user notification and ptrace: %s", out)
			}
			if status != c.want || !strings.Contains(string(out), c.says) {
				t.Errorf("status %d, want %d and %q\n%s", status, c.want, c.says, out)
			}
		})
	}
}

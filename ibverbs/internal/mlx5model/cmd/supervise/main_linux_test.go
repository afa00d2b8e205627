package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/internal/leaktest"
)

// itself says that this program is the command.
const itself = "SUPERVISE_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(itself) != "" {
		_ = os.Unsetenv(itself)
		main()
	}
	leaktest.Main(m)
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

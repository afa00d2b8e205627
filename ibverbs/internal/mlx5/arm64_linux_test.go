package mlx5

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestOnARM64 runs the tests of what the driver lays out, and of what it copies into a
// register, as arm64's instructions under an emulator of the processor, where qemu-user
// is installed.
func TestOnARM64(t *testing.T) {
	if testing.Short() || runtime.GOARCH == "arm64" {
		t.Skip("builds the package anew, for another processor")
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip(err)
	}
	emulator, err := exec.LookPath("qemu-aarch64-static")
	if err != nil {
		if emulator, err = exec.LookPath("qemu-aarch64"); err != nil {
			t.Skipf("needs qemu-user: %v", err)
		}
	}
	binary := filepath.Join(t.TempDir(), "mlx5.test")
	build := exec.CommandContext(t.Context(), tool, "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), emulator, binary, "-test.v",
		"-test.run", "^Test(EntriesAreLibmlx5s|CompletionsAreLibmlx5s|StatusesAreLibmlx5s|BlueFlame)$")
	late := time.AfterFunc(2*time.Minute, func() { _ = run.Process.Kill() })
	defer late.Stop()
	out, err := run.CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS: ") < 4 {
		t.Errorf("%v\n%s", err, out)
	}
}

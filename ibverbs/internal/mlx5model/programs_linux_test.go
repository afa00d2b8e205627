package mlx5model

import (
	stdcontext "context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purerdma/purerdma/internal/leaktest"
)

func TestMain(m *testing.M) {
	superviseIfAsked()
	leaktest.Main(m, func() { _ = os.RemoveAll(filepath.Dir(preload.file)) })
}

// preload is the preload library, which is built once.
var preload struct {
	sync.Mutex
	file string // "" before it is
}

func preloadLibrary(t *testing.T) string {
	t.Helper()
	preload.Lock()
	defer preload.Unlock()
	if preload.file != "" {
		return preload.file
	}
	dir, err := os.MkdirTemp("", "mlx5")
	if err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(dir, "shim.so")
	build := exec.CommandContext(t.Context(), "gcc", "-Wall", "-Werror", "-O2", "-shared", "-fPIC", "-o", library, "preload/shim.c", "-ldl")
	if out, err := build.CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		t.Fatalf("%v\n%s", err, out)
	}
	preload.file = library
	return library
}

// lab is a model and the preload library for programs.
type lab struct {
	m *Model
	*Server
	programs   stdcontext.Context // of all, which ends with a fault of one
	library    string
	supervised string // how, if programs are supervised in place of having the library
}

// newLab makes a model and its way in. The test is skipped where a program or the
// compiler is missing, except in CI.
func newLab(t *testing.T, ethernet bool, programs ...string) *lab {
	t.Helper()
	for _, p := range append(programs, "gcc") {
		if _, err := exec.LookPath(p); err != nil {
			if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
				t.Fatal(err)
			}
			t.Skipf("needs gcc, ibverbs-utils, ibverbs-providers and perftest: %v", err)
		}
	}
	dir, err := os.MkdirTemp("", "mlx5")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	library := preloadLibrary(t)
	ctx, end := stdcontext.WithCancel(t.Context())
	t.Cleanup(end)
	m := New(Config{Ethernet: ethernet, Log: func(s string) { t.Log("model: " + s) }, Fault: func(s string) {
		t.Error("model: " + s)
		end()
	}})
	s, err := Serve(m, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if n := m.Left(); n != 0 {
			t.Errorf("%d files are open", n)
		}
	})
	return &lab{m: m, Server: s, programs: ctx, library: library}
}

// patience is what a program may take, on a loaded machine.
const patience = 3 * time.Minute

// command is a program on the model. It is killed when the test is over, or late, or when
// the model has found a fault.
func (l *lab) command(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	if l.supervised != "" {
		return l.supervisor(t, program, args...)
	}
	cmd := exec.CommandContext(l.programs, program, args...)
	cmd.Env = append(os.Environ(), l.Env(l.library)...)
	return cmd
}

// run is the output of a program that succeeds.
func (l *lab) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := l.command(t, program, args...)
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// contains checks that each line is in the output, whatever its blanks.
func contains(t *testing.T, out string, lines ...string) {
	t.Helper()
	have := strings.Join(strings.Fields(out), " ")
	for _, l := range lines {
		if !strings.Contains(have, l) {
			t.Errorf("no %q in\n%s", l, out)
		}
	}
}

func TestDevinfo(t *testing.T) {
	l := newLab(t, false, "ibv_devinfo", "ibv_devices")
	contains(t, l.run(t, "ibv_devices"), "mlx5_0 0c42a10300123456")
	contains(t, l.run(t, "ibv_devinfo", "-v"), "hca_id: mlx5_0", "fw_ver: 20.31.1014", "vendor_part_id: 4123", "num_comp_vectors: 2",
		"state: PORT_ACTIVE (4)", "active_mtu: 4096 (5)", "GID[ 0]: fe80:0000:0000:0000:0c42:a103:0012:3456")
}

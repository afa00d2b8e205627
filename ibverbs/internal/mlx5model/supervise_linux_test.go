package mlx5model

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/internal/offheap"
	"github.com/purerdma/purerdma/internal/pingpong"
	"github.com/purerdma/purerdma/internal/racetest"
	"golang.org/x/sys/unix"
)

// Variables by which a test that starts its own program says what that is to be: a
// supervisor of the command it has, on the model that is served in a folder, or the
// Go program of a test, under a supervisor.
const (
	asSupervisor = "MLX5MODEL_TEST_SUPERVISES"
	servedIn     = "MLX5MODEL_TEST_DIR"
	underOne     = "MLX5MODEL_TEST_SUPERVISED"
)

const (
	polled  = "polled"
	trapped = "trapped"
)

// superviseIfAsked does not return if the program is a supervisor.
func superviseIfAsked() {
	how, dir := os.Getenv(asSupervisor), os.Getenv(servedIn)
	if how == "" {
		return
	}
	_, _ = os.Unsetenv(asSupervisor), os.Unsetenv(servedIn)
	s := Supervised{Dir: dir, Trap: how == trapped, Log: func(s string) { fmt.Fprintln(os.Stderr, "supervisor:", s) }}
	status, err := s.Supervise(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, notSupervised, err)
		os.Exit(125)
	}
	os.Exit(status)
}

const notSupervised = "cannot supervise:"

// supervisor is a program on the model under a supervisor.
func (l *lab) supervisor(t *testing.T, program string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(l.programs, self, append([]string{program}, args...)...)
	cmd.Env = append(os.Environ(), asSupervisor+"="+l.supervised, servedIn+"="+l.dir, underOne+"=1", "PURERDMA_MLX5=unproven")
	return cmd
}

// newSupervised makes a model whose programs are supervised. The test is skipped where
// that is not allowed, as in some containers.
func newSupervised(t *testing.T, how string, programs ...string) *lab {
	t.Helper()
	l := newLab(t, false, programs...)
	l.supervised = how
	out, err := l.command(t, "true").CombinedOutput()
	if err != nil && strings.Contains(string(out), notSupervised) {
		t.Skipf("needs seccomp's user notification and ptrace: %s", out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return l
}

// TestSupervised runs programs that nobody has changed and that have no library preloaded.
func TestSupervised(t *testing.T) {
	l := newSupervised(t, trapped, "ibv_devinfo", "ibv_rc_pingpong", "ib_write_bw")
	for _, how := range []string{polled, trapped} {
		l.supervised = how
		contains(t, l.run(t, "ibv_devinfo", "-v"), "hca_id: mlx5_0", "vendor_part_id: 4123", "state: PORT_ACTIVE (4)",
			"GID[ 0]: fe80:0000:0000:0000:0c42:a103:0012:3456")
		for i, row := range []string{"ibv_rc_pingpong -n 10 -c -e", "ibv_ud_pingpong -n 10 -s 1000 -c", "ib_write_bw -n 64 -l 16 -F", "ib_write_lat -n 8 -I 64 -s 64 -F"} {
			if testing.Short() && i >= 1 {
				break
			}
			t.Run(how+"/"+row, func(t *testing.T) {
				f := strings.Fields(row)
				if out := l.pair(t, f[0], f[1:]...); strings.Contains(out, "invalid data") {
					t.Error(out)
				}
			})
		}
	}
}

// again runs one test of this program under a supervisor, and is what it says. Without cgo
// the program is static.
func (l *lab) again(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	return l.run(t, self, "-test.run=^"+name+"$", "-test.v", "-test.short="+strconv.FormatBool(testing.Short()), "-test.timeout="+patience.String())
}

// TestSupervisedOurs has our driver in a Go program that finds the device as it finds the
// machine's, and rdma-core's program at the other end. The latter is the former's child,
// and so supervised, too.
func TestSupervisedOurs(t *testing.T) {
	if os.Getenv(underOne) == "" {
		for _, how := range []string{polled, trapped} {
			t.Run(how, func(t *testing.T) {
				contains(t, newSupervised(t, how, "ibv_rc_pingpong").again(t), "PASS: TestSupervisedOurs/serves")
			})
		}
		return
	}
	for _, serves := range []bool{false, true} {
		t.Run(map[bool]string{false: "asks", true: "serves"}[serves], func(t *testing.T) {
			sessionOfOurs(t, pingpong.Session{Kind: pingpong.RC, Size: 1024, Rounds: 10, Depth: 10, Events: true}, serves)
		})
	}
}

// TestSupervisedScenes plays the script of the differential trace by our driver in a program
// whose doorbells are caught as they are rung.
func TestSupervisedScenes(t *testing.T) {
	if os.Getenv(underOne) == "" {
		out := newSupervised(t, trapped).again(t)
		contains(t, out, "PASS: TestSupervisedScenes")
		t.Log(out)
		return
	}
	for _, name := range []string{"connected", "events", "receives", "datagrams", "windows"} {
		if testing.Short() && name != "connected" {
			break
		}
		t.Run(name, func(t *testing.T) { scenes[name].act(t, uverbs.Linux{}) })
	}
}

// faults keeps what the model says is wrong from now on, in place of failing the test, and
// logged what it lacks. What they return is what there is so far.
func (l *lab) faults() func() []string { return l.keep(&l.m.config.Fault) }
func (l *lab) logged() func() []string { return l.keep(&l.m.config.Log) }

func (l *lab) keep(of *func(string)) func() []string {
	var lines []string
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	*of = func(s string) { lines = append(lines, s) }
	return func() []string {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		return slices.Clone(lines)
	}
}

// TestSupervisedStores has a program that stores into a page of doorbells that is not its
// own. The model learns of it as it happens. An exchange is no store that the supervisor
// knows: the program has its signal.
func TestSupervisedStores(t *testing.T) {
	const page, value = 5, 7
	if os.Getenv(underOne) == "" {
		l := newSupervised(t, trapped)
		faults := l.faults()
		out := l.again(t)
		contains(t, out, "PASS: TestSupervisedStores")
		if !racetest.Enabled {
			contains(t, out, "is no store that is known")
		}
		want := fmt.Sprintf("a store into the page of doorbells %d, which is not the program's", page)
		if got := faults(); len(got) != 1 || got[0] != want {
			t.Errorf("faults are %q, want %q", got, want)
		}
		return
	}
	fd, err := unix.Open("/dev/infiniband/uverbs0", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	mem, err := offheap.MapRing(fd, page*pageSize, pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Release()
	word := wordOf(mem, mlx5prm.UARBlueFlame)
	mmio.Store64(word, value)
	if v := atomic.LoadUint64(word); v != value {
		t.Errorf("the page has %d, not what was stored", v)
	}
	if racetest.Enabled {
		return // its exchange is C code, where Go cannot recover
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() == nil {
			t.Error("an exchange was made")
		}
	}()
	atomic.SwapUint64(word, value)
}

package tracer

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/internal/mlx5model/internal/notify"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/internal/racetest"
	"golang.org/x/sys/unix"
)

// tracedAt is the number of the guarded file in the program of a test, which it is told
// by its presence; words that it stores.
const tracedAt, underTracer = 3, "TRACER_TEST_PROGRAM"

var words = []uint64{1, 2, 1 << 40, 3}

// inner is that program. Its status is 7 if all is as it should be.
func inner(t *testing.T) {
	page, err := unix.Mmap(tracedAt, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page)
	word := wordOf(page)
	ready, done := make(chan struct{}), make(chan struct{})
	go func() { // on a thread that was made under the tracer
		defer close(done)
		runtime.LockOSThread()
		<-ready
		for _, v := range words {
			mmio.Store64(word, v)
		}
	}()
	close(ready)
	<-done
	if v := atomic.LoadUint64(word); v != 0 {
		t.Errorf("the page has %d, which the tracer was to store", v)
	}
	if !racetest.Enabled { // whose exchange is C code, where Go cannot recover
		exchange(t, word)
	}
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGUSR1)
	defer signal.Stop(got)
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Error(err)
	}
	<-got
	if err := exec.CommandContext(t.Context(), "true").Run(); err != nil {
		t.Errorf("a child: %v", err)
	}
	if !t.Failed() {
		os.Exit(7)
	}
}

// exchange sees that the program has the signal of an instruction that is no store.
func exchange(t *testing.T, word *uint64) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() == nil {
			t.Error("an exchange was made")
		}
	}()
	atomic.SwapUint64(word, 9)
}

// TestRun has a program whose stores come here, while its signals, threads and children
// do as ever.
func TestRun(t *testing.T) {
	if os.Getenv(underTracer) != "" {
		inner(t)
		return
	}
	fd, err := unix.MemfdCreate("guarded", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "guarded")
	defer file.Close()
	if err := file.Truncate(int64(os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var pid, unknown int
	var stored []uint64
	var page uint64 // where the last fault was
	hooks := Hooks{
		Guarded: func(tid, fd int) bool { return fd == tracedAt },
		Page: func(tid int, at uint64) func([]byte) {
			page = at
			return func(data []byte) { stored = append(stored, little(data)) }
		},
		Unknown: func(int, error) { unknown++ },
	}
	rule := notify.Rule{Call: unix.SYS_MMAP, Args: []notify.Arg{notify.Has(2, unix.PROT_WRITE), notify.Is(3, unix.MAP_SHARED), notify.Is(4, tracedAt)}, Action: notify.Trace}
	var status unix.WaitStatus
	err = notify.Run([]notify.Rule{rule}, func(*notify.Call) notify.Reply { return notify.GoOn }, func() error {
		p, err := os.StartProcess(self, []string{self, "-test.run=^TestRun$"}, &os.ProcAttr{
			Env: append(os.Environ(), underTracer+"=1"), Files: []*os.File{nil, os.Stderr, os.Stderr, file},
			Sys: &syscall.SysProcAttr{Ptrace: true},
		})
		if err != nil {
			return err
		}
		pid = p.Pid
		defer p.Release()
		status, err = Run(p.Pid, hooks)
		return err
	})
	switch {
	case pid == 0 && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EBUSY)):
		t.Skipf("needs seccomp's user notification and ptrace: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	if status.ExitStatus() != 7 {
		t.Errorf("the program ended with %d, signal %d", status.ExitStatus(), status.Signal())
	}
	if !slices.Equal(stored, words) || page%uint64(os.Getpagesize()) != 0 {
		t.Errorf("stores of %d at %#x, want %d at the begin of a page", stored, page, words)
	}
	if want := map[bool]int{false: 1}[racetest.Enabled]; unknown != want {
		t.Errorf("%d instructions were unknown, want %d: the exchange", unknown, want)
	}
}

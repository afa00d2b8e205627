//go:build unix

package mr

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

func alloc(t testing.TB, n int, opts ...Option) *Buffer {
	t.Helper()
	b, err := Alloc(n, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// domain is a PD of a device in memory.
func domain(t testing.TB) (*ibverbs.PD, *memdriver.Device) {
	t.Helper()
	fabric := memdriver.New(memdriver.Config{})
	dev, err := ibverbs.Open("mem0", ibverbs.WithDrivers(fabric))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	return pd, fabric.Device("mem0")
}

func TestAlloc(t *testing.T) {
	b := alloc(t, 10000)
	if b.Len() != 10000 || len(b.Bytes()) != 10000 || cap(b.Bytes()) != 10000 || b.Addr()%uint64(b.PageSize()) != 0 || b.WhyOrdinaryPages() != nil {
		t.Errorf("%d bytes, capacity %d, at %#x, pages of %d", b.Len(), cap(b.Bytes()), b.Addr(), b.PageSize())
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if b.Len() != 0 || b.Bytes() != nil && len(b.Bytes()) != 0 || b.Addr() != 0 || b.Span().Len() != 0 {
		t.Error("a closed buffer gives memory")
	}
	if _, err := b.Slice(0, 1); !errors.Is(err, ibverbs.ErrClosed) {
		t.Error(err)
	}
	if _, err := View[uint64](b, 0); !errors.Is(err, ibverbs.ErrClosed) {
		t.Error(err)
	}
}

func TestAllocRefuses(t *testing.T) {
	for _, n := range []int{0, -1, -1 << 62, 1<<63 - 1} {
		for _, opts := range [][]Option{nil, {WithHugePagesIfAvailable(2 << 20)}} {
			_, err := Alloc(n, opts...)
			var e *ibverbs.Error
			if !errors.As(err, &e) || e.Op != "allocate memory" {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	}
	if _, err := Alloc(1 << 60); !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "ulimit -v") {
		t.Error(err)
	}
}

// TestHugePages takes what the machine has: both ways out must be told.
func TestHugePages(t *testing.T) {
	const page = 2 << 20
	var log bytes.Buffer
	b, err := Alloc(100, WithHugePagesIfAvailable(page), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	strict, strictErr := Alloc(100, WithHugePages(page))
	if why := b.WhyOrdinaryPages(); why != nil {
		if b.PageSize() == page || !strings.Contains(why.Error(), "vm.nr_hugepages") || !strings.Contains(log.String(), "ordinary pages") {
			t.Errorf("pages of %d: %v; log: %s", b.PageSize(), why, log.String())
		}
		part, err := b.Slice(1, 2)
		if err != nil || part.WhyOrdinaryPages() == nil || part.Close() != nil {
			t.Errorf("%v, %v", part, err)
		}
	} else if b.PageSize() != page || b.Addr()%page != 0 || log.Len() != 0 {
		t.Errorf("pages of %d at %#x; log: %s", b.PageSize(), b.Addr(), log.String())
	}
	if strictErr == nil {
		if strict.PageSize() != page || strict.Close() != nil {
			t.Errorf("pages of %d", strict.PageSize())
		}
	} else if !strings.Contains(strictErr.Error(), "vm.nr_hugepages") {
		t.Error(strictErr)
	}
	b2, err := Alloc(100, WithHugePagesIfAvailable(12345), WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil || b2.WhyOrdinaryPages() == nil || b2.Close() != nil {
		t.Errorf("pages of no size: %v", err)
	}
	if _, err := Alloc(100, WithHugePages(12345)); !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
}

// TestSliceOutlives closes a buffer and its slices in all orders.
func TestSliceOutlives(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		b := alloc(t, 8192)
		s1, err1 := b.Slice(4096, 100)
		s2, err2 := s1.Slice(10, 20)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if s2.Addr() != b.Addr()+4106 || s2.Len() != 20 || cap(s2.Bytes()) != 20 {
			t.Errorf("%d bytes at %#x of %#x", s2.Len(), s2.Addr(), b.Addr())
		}
		all := []*Buffer{b, s1, s2}
		for i, n := range order {
			if err := all[n].Close(); err != nil {
				t.Error(err)
			}
			for _, left := range order[i+1:] {
				all[left].Bytes()[0]++ // would kill the test if it were unmapped
			}
		}
	}
}

func TestSliceRefuses(t *testing.T) {
	b := alloc(t, 100)
	for _, r := range [][2]int{{-1, 1}, {0, 101}, {100, 1}, {0, 0}, {100, 0}, {1, -1}, {1<<63 - 1, 1 << 62}} {
		if s, err := b.Slice(r[0], r[1]); err == nil {
			t.Errorf("%v: %d bytes", r, s.Len())
		}
	}
}

// TestMRKeepsMemory closes the buffer first: the memory goes with its last MR.
func TestMRKeepsMemory(t *testing.T) {
	pd, _ := domain(t)
	released := 0
	b := foreign(t, func() error { released++; return nil })
	m1, err1 := pd.RegMR(b, ibverbs.LocalWrite)
	m2, err2 := pd.RegMR(b, ibverbs.LocalWrite|ibverbs.RemoteRead)
	if err := errors.Join(err1, err2, b.Close(), m1.Close()); err != nil {
		t.Fatal(err)
	}
	if released != 0 {
		t.Error("released under an MR")
	}
	if err := errors.Join(m2.Close(), m2.Close()); err != nil || released != 1 {
		t.Errorf("%v, released %d times", err, released)
	}
	if _, err := pd.RegMR(b, ibverbs.LocalWrite); err == nil {
		t.Error("a closed buffer was registered")
	}
}

func TestMapFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	one, err1 := MapFile(int(f.Fd()), 0, 8192)
	two, err2 := MapFile(int(f.Fd()), 4096, 4096)
	if err := errors.Join(err1, err2, f.Close()); err != nil {
		t.Fatal(err)
	}
	copy(one.Bytes()[4096:], "both see it")
	if got := string(two.Bytes()[:11]); got != "both see it" {
		t.Errorf("%q", got)
	}
	if err := errors.Join(one.Close(), two.Close()); err != nil {
		t.Error(err)
	}
}

func TestMapFileRefuses(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	ro, err := os.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ro.Close() }()
	for _, tt := range []struct {
		name string
		f    *os.File
		n    int
		opts []Option
		says string
	}{
		{"longer than the file", f, 4097, nil, "which is 4096 bytes long"},
		{"for reading only", ro, 4096, nil, "open for reading and writing"},
		{"huge pages", f, 4096, []Option{WithHugePages(2 << 20)}, "hugetlbfs"},
		{"no bytes", f, 0, nil, "at least 1 byte"},
	} {
		if _, err := MapFile(int(tt.f.Fd()), 0, tt.n, tt.opts...); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestHints asks for each errno that people meet.
func TestHints(t *testing.T) {
	for _, tt := range []struct {
		errno syscall.Errno
		huge  int
		says  string
	}{
		{syscall.ENOMEM, 0, "vm.max_map_count"}, {syscall.ENOMEM, 1 << 30, "hugepages-1048576kB"}, {syscall.EAGAIN, 0, "LimitMEMLOCK="},
		{syscall.EFAULT, 0, "/dev/shm"}, {syscall.EPERM, 0, "F_SEAL_WRITE"}, {syscall.ENODEV, 0, "memfd"},
	} {
		if err := mapError("x", 1, tt.huge, tt.errno); !errors.Is(err, tt.errno) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v", err)
		}
	}
}

// records keeps what is logged.
type records struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *records) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// TestDropped loses one buffer and closes another: the collector reports the
// first, and unmaps neither.
func TestDropped(t *testing.T) {
	var log records
	debug := WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	lose := func() ibverbs.Memory {
		lost, err1 := Alloc(12345, debug)
		closed, err2 := Alloc(54321, debug)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if err := closed.Close(); err != nil {
			t.Error(err)
		}
		return memory{lost.Span()}
	}
	m := lose()
	for range 1000 {
		runtime.GC()
		if strings.Contains(log.String(), "bytes=12345") {
			break
		}
	}
	if s := log.String(); !strings.Contains(s, "bytes=12345") || !strings.Contains(s, "level=DEBUG") || strings.Contains(s, "54321") {
		t.Errorf("log: %q", s)
	}
	m.Span().Bytes()[0] = 1 // would kill the test if it were unmapped
	if err := m.Span().Release(); err != nil {
		t.Error(err)
	}
}

// memory is a range for the registration cache.
type memory struct{ s driver.Span }

func (m memory) Span() driver.Span { return m.s }

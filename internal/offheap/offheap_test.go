//go:build unix

package offheap

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func mapped(t *testing.T, size int) Span {
	t.Helper()
	s, err := Map(size, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// isMapped asks the kernel, without touching the memory.
func isMapped(b []byte) bool { return !errors.Is(unix.Msync(b, unix.MS_ASYNC), unix.ENOMEM) }

func TestMap(t *testing.T) {
	page := os.Getpagesize()
	for _, size := range []int{1, 63, page - 1, page, page + 1, 5 * page} {
		s := mapped(t, size)
		b := s.Bytes()
		if len(b) != size || cap(b) != size || s.Len() != size || s.Addr()%uint64(page) != 0 || s.PageSize() != page || s.Kind() != Anonymous {
			t.Errorf("%d bytes: length %d, capacity %d at %#x in pages of %d", size, len(b), cap(b), s.Addr(), s.PageSize())
		}
		if !startsAt(s, b) {
			t.Error("address, pointer and bytes disagree")
		}
		for i := range b {
			if b[i] != 0 {
				t.Fatalf("byte %d is not zero", i)
			}
			b[i] = 0xa5
		}
		if err := s.Release(); err != nil {
			t.Error(err)
		}
	}
}

func TestMapRefuses(t *testing.T) {
	for _, size := range []int{0, -1, math.MinInt, math.MaxInt, math.MaxInt - 4096} {
		if _, err := Map(size, Options{}); err == nil {
			t.Errorf("%d bytes were mapped", size)
		}
	}
	for _, page := range []int{-1, 1, 1000, os.Getpagesize(), 3 << 20} {
		if _, err := Map(1, Options{HugePage: page}); err == nil {
			t.Errorf("pages of %d bytes were taken", page)
		}
	}
}

// TestLast sees that the last Release unmaps, and no other.
func TestLast(t *testing.T) {
	s := mapped(t, 3*os.Getpagesize())
	all := s.m.all
	part, err := s.Slice(os.Getpagesize(), 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		do   func() error
		refs bool
	}{{part.Retain, true}, {s.Retain, true}, {s.Release, true}, {s.Release, true}, {part.Release, false}} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if isMapped(all) != step.refs {
			t.Fatalf("mapped: %v", !step.refs)
		}
	}
	for range 2 {
		if err := s.Release(); !errors.Is(err, fs.ErrClosed) {
			t.Error(err)
		}
		if err := part.Retain(); !errors.Is(err, fs.ErrClosed) {
			t.Error(err)
		}
	}
}

func TestSlice(t *testing.T) {
	s := mapped(t, 100)
	defer func() { _ = s.Release() }()
	for _, tt := range []struct {
		off, n int
		ok     bool
	}{
		{0, 100, true}, {0, 0, true}, {100, 0, true}, {99, 1, true}, {10, 20, true},
		{0, 101, false}, {99, 2, false}, {101, 0, false}, {-1, 1, false}, {1, -1, false},
		{math.MaxInt, 1, false}, {1, math.MaxInt, false}, {math.MaxInt, math.MaxInt, false}, {math.MinInt, 0, false},
	} {
		p, err := s.Slice(tt.off, tt.n)
		if (err == nil) != tt.ok {
			t.Errorf("%d+%d: %v", tt.off, tt.n, err)
		}
		if tt.ok && (p.Len() != tt.n || cap(p.Bytes()) != tt.n || tt.n > 0 && p.Addr() != s.Addr()+uint64(tt.off)) {
			t.Errorf("%d+%d: %d bytes at %#x of %#x, capacity %d", tt.off, tt.n, p.Len(), p.Addr(), s.Addr(), cap(p.Bytes()))
		}
	}
}

func TestZeroSpan(t *testing.T) {
	var s Span
	if s.Len() != 0 || s.Addr() != 0 || len(s.Bytes()) != 0 || s.PageSize() != 0 || s.Kind() != Anonymous {
		t.Errorf("%+v", s)
	}
	if err := s.Retain(); err == nil {
		t.Error("nothing was retained")
	}
	if err := s.Release(); err != nil {
		t.Error(err)
	}
	if err := s.Populate(); err == nil {
		t.Error("nothing was populated")
	}
}

// TestRefs compares the count with a model: the memory is there as long as one
// reference is, and is released once.
func TestRefs(t *testing.T) {
	var backing [64]byte // adopted only, no device sees it
	rapid.Check(t, func(t *rapid.T) {
		released, refs := 0, 1
		s, err := adopt(backing[:], func() error { released++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			p, err := s.Slice(rapid.IntRange(0, 63).Draw(t, "off"), 1)
			if err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "retain") {
				if err = p.Retain(); err == nil {
					refs++
				}
			} else if err = p.Release(); err == nil {
				refs--
			}
			if (err != nil) != (refs == 0 && released == 1 && errors.Is(err, fs.ErrClosed)) {
				t.Fatalf("%d references, released %d times: %v", refs, released, err)
			}
			if (refs == 0) != (released == 1) || released > 1 {
				t.Fatalf("%d references, released %d times", refs, released)
			}
			if refs == 0 {
				refs = 0
				if s.Retain() == nil || s.Release() == nil {
					t.Fatal("memory that is gone was used")
				}
				return
			}
		}
	})
}

func TestConcurrentRefs(t *testing.T) {
	var released atomic.Int32
	var backing [8]byte
	s, err := adopt(backing[:], func() error { released.Add(1); return nil })
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if s.Retain() != nil {
					return
				}
				if released.Load() != 0 {
					t.Error("released under a reference")
				}
				if err := s.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if err := s.Release(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if n := released.Load(); n != 1 {
		t.Errorf("released %d times", n)
	}
}

func TestAdopt(t *testing.T) {
	var backing [16]byte
	boom := errors.New("boom")
	s, err := adopt(backing[:], func() error { return boom })
	if err != nil {
		t.Fatal(err)
	}
	if s.Kind() != Adopted || s.PageSize() != 0 || s.Len() != 16 {
		t.Errorf("%+v", s)
	}
	if err := s.Release(); !errors.Is(err, boom) {
		t.Error(err)
	}
	if _, err := Adopt(nil, 16, nil); err == nil {
		t.Error("nil was adopted")
	}
	if _, err := adopt(backing[:0], nil); err == nil {
		t.Error("nothing was adopted")
	}
	if s, err = adopt(backing[:1], nil); err != nil || s.Release() != nil {
		t.Error(err)
	}
}

func file(t *testing.T, size int64) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestMapFile(t *testing.T) {
	page := int64(os.Getpagesize())
	f := file(t, 3*page)
	s, err := MapFile(int(f.Fd()), page, int(page)+5)
	if err != nil {
		t.Fatal(err)
	}
	if s.Kind() != File || s.Len() != int(page)+5 {
		t.Errorf("%+v", s)
	}
	copy(s.Bytes(), "shared")
	var got [6]byte
	if _, err := f.ReadAt(got[:], page); err != nil || string(got[:]) != "shared" {
		t.Errorf("%q, %v", got, err)
	}
	all := s.m.all
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s.Bytes()[0] = 'S' // the descriptor is not needed any more
	if err := s.Release(); err != nil || isMapped(all) {
		t.Errorf("%v, mapped: %v", err, isMapped(all))
	}
}

func TestMapFileRefuses(t *testing.T) {
	page := int64(os.Getpagesize())
	f := file(t, 2*page)
	ro, err := os.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ro.Close() }()
	for _, tt := range []struct {
		name string
		fd   int
		off  int64
		size int
		is   error
	}{
		{"past the end", int(f.Fd()), 0, int(2*page) + 1, syscall.EINVAL},
		{"behind the end", int(f.Fd()), 2 * page, 1, syscall.EINVAL},
		{"offset that overflows", int(f.Fd()), math.MaxInt64, 1, syscall.EINVAL},
		{"size that overflows", int(f.Fd()), page, math.MaxInt, syscall.EINVAL},
		{"negative offset", int(f.Fd()), -page, 1, syscall.EINVAL},
		{"offset within a page", int(f.Fd()), 1, 1, syscall.EINVAL},
		{"no bytes", int(f.Fd()), 0, 0, syscall.EINVAL},
		{"for reading only", int(ro.Fd()), 0, 1, syscall.EACCES},
		{"no descriptor", -1, 0, 1, syscall.EBADF},
	} {
		if _, err := MapFile(tt.fd, tt.off, tt.size); !errors.Is(err, tt.is) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestMapRing(t *testing.T) {
	f := file(t, 8192)
	s, err := MapRing(int(f.Fd()), 0, 8192)
	if err != nil {
		t.Fatal(err)
	}
	if s.Kind() != Ring {
		t.Errorf("%+v", s)
	}
	if err := s.Release(); err != nil {
		t.Error(err)
	}
	if _, err := MapRing(int(f.Fd()), 0, 0); err == nil {
		t.Error("a ring of no bytes")
	}
}

// TestLargeSparse maps more than 32 bits can say and touches both ends.
func TestLargeSparse(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("int has 32 bits")
	}
	const size = 5 << 30
	s, err := Map(size, Options{})
	if errors.Is(err, syscall.ENOMEM) {
		t.Skip("this system commits memory strictly")
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Bytes()[0], s.Bytes()[size-1] = 1, 2
	p, err := s.Slice(size-1, 1)
	if err != nil || p.Bytes()[0] != 2 || p.Addr() != s.Addr()+size-1 {
		t.Errorf("%v, %v", p, err)
	}
	if err := s.Release(); err != nil {
		t.Error(err)
	}
}

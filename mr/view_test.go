//go:build unix

package mr

import (
	"encoding/binary"
	"errors"
	"strings"
	"structs"
	"sync/atomic"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
)

type shared struct {
	_    structs.HostLayout
	A    uint64
	B    [4]uint32
	Sub  struct{ X, Y int16 }
	_    [4]byte
	Fine atomic.Uint64
}

func TestView(t *testing.T) {
	b := alloc(t, 4096)
	v, err := View[shared](b, 64)
	if err != nil {
		t.Fatal(err)
	}
	v.B[1] = 0x01020304
	v.Fine.Store(9)
	if got := binary.NativeEndian.Uint32(b.Bytes()[64+12:]); got != 0x01020304 {
		t.Errorf("%#x", got)
	}
	all, err := ViewSlice[uint32](b, 4, 1023)
	if err != nil || len(all) != 1023 || cap(all) != 1023 || all[64/4-1+3] != 0x01020304 {
		t.Errorf("%d, %v", len(all), err)
	}
	if b, err := View[[4096]byte](b, 0); err != nil || b[76] == 0 {
		t.Error(err)
	}
}

func refused[T any](t *testing.T, b *Buffer, off, n int, says string) {
	t.Helper()
	if _, err := ViewSlice[T](b, off, n); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%T at %d: %v, want %q", *new(T), off, err, says)
	}
}

func TestViewRefuses(t *testing.T) {
	b := alloc(t, 4096)
	const pointer = "which the collector would not see"
	refused[*int](t, b, 0, 1, pointer)
	refused[string](t, b, 0, 1, pointer)
	refused[[]byte](t, b, 0, 1, pointer)
	refused[any](t, b, 0, 1, pointer)
	refused[map[int]int](t, b, 0, 1, pointer)
	refused[chan int](t, b, 0, 1, pointer)
	refused[func()](t, b, 0, 1, pointer)
	refused[atomic.Pointer[int]](t, b, 0, 1, pointer)
	refused[struct {
		A int
		B [2]struct{ C *byte }
	}](t, b, 0, 1, pointer)
	refused[struct{ Done [128]bool }](t, b, 0, 1, "use a uint8")
	refused[struct{}](t, b, 0, 1, "no bytes")
	refused[[0]int](t, b, 0, 1, "no bytes")

	refused[uint64](t, b, 4, 1, "not aligned to 8")
	refused[shared](t, b, 12, 1, "not aligned to 8")
	refused[uint64](t, b, 4089, 1, "outside")
	refused[uint64](t, b, 4096, 1, "outside")
	refused[uint64](t, b, -8, 1, "outside")
	refused[uint64](t, b, 1<<63-8, 1, "outside")
	refused[uint64](t, b, 0, 513, "outside")
	refused[uint64](t, b, 8, 512, "outside")
	refused[uint64](t, b, 0, 0, "outside")
	refused[uint64](t, b, 0, -1, "outside")
	refused[uint64](t, b, 0, 1<<61+1, "outside")

	odd, err := b.Slice(1, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = odd.Close() }()
	refused[uint16](t, odd, 0, 1, "not aligned to 2")
	if _, err := View[uint16](odd, 1); err != nil {
		t.Error(err)
	}
}

// What is nil is a buffer without bytes, an option that counts for nothing, and the default logger.
func TestNil(t *testing.T) {
	if _, err := View[uint64](nil, 0); !errors.Is(err, ibverbs.ErrClosed) {
		t.Errorf("a view of a nil buffer: %v", err)
	}
	b, err := Alloc(1, nil, WithLogger(nil), WithHugePagesIfAvailable(3))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

package mmio

import (
	"testing"
	"unsafe"

	"github.com/purerdma/purerdma/internal/offheap"
)

// page is off-heap memory, which the race detector leaves alone.
func page(t testing.TB) unsafe.Pointer {
	t.Helper()
	s, err := offheap.Map(4096, offheap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Release(); err != nil {
			t.Error(err)
		}
	})
	return s.Pointer()
}

// halves is the same words, 32 bits at a time.
func halves(words *[4]uint64) *[8]uint32 { return (*[8]uint32)(unsafe.Pointer(words)) }

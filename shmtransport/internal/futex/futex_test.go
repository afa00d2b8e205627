//go:build linux

package futex

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/internal/offheap"
)

// twice maps one page of a file at two addresses.
func twice(t *testing.T) (a, b *uint32) {
	t.Helper()
	fd, err := unix.MemfdCreate("futex", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	var at [2]*uint32
	for i := range at {
		s, err := offheap.MapFile(fd, 0, 4096)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Release() })
		at[i] = (*uint32)(s.Pointer())
	}
	return at[0], at[1]
}

// Whoever sleeps at one address is woken at the other.
func TestWake(t *testing.T) {
	a, b := twice(t)
	woken := make(chan error)
	go func() {
		for atomic.LoadUint32(a) == 0 {
			if err := Wait(a, 0, -1); err != nil {
				woken <- err
				return
			}
		}
		woken <- nil
	}()
	atomic.StoreUint32(b, 1)
	Wake(b)
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
}

func TestWaitReturns(t *testing.T) {
	a, _ := twice(t)
	if err := Wait(a, 1, -1); err != nil {
		t.Errorf("another value: %v", err)
	}
	if err := Wait(a, 0, time.Microsecond); !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("time-out: %v", err)
	}
}

func TestBarrier(t *testing.T) {
	if err := Register(); err != nil {
		t.Skipf("no membarrier here: %v", err)
	}
	if err := membarrier(globalExpedited); err != nil {
		t.Error(err)
	}
}

package uverbs_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
)

func compEvent(cookie uint64) []byte { return binary.NativeEndian.AppendUint64(nil, cookie) }

func asyncEvent(element uint64, typ uint32) []byte {
	return append(binary.NativeEndian.AppendUint32(compEvent(element), typ), 0, 0, 0, 0)
}

func channel(t *testing.T) (*uverbstest.FakeKernel, *uverbs.CompChannel) {
	t.Helper()
	k := uverbstest.NewFakeKernel(testDev)
	c, err := open(t, k).CreateCompChannel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return k, c
}

func post(t testing.TB, k *uverbstest.FakeKernel, rec []byte) {
	t.Helper()
	if err := k.Post(rec); err != nil {
		t.Fatal(err)
	}
}

// asleep waits until the reader of f has been told to wait by the kernel.
type asleep struct {
	*uverbstest.FakeKernel
	tried chan struct{}
}

func (a asleep) OpenEvents(fd int) (uverbs.EventFile, error) {
	f, err := a.FakeKernel.OpenEvents(fd)
	return sleeper{f, a.tried}, err
}

type sleeper struct {
	uverbs.EventFile
	tried chan struct{}
}

func (s sleeper) Read(p []byte) (int, error) {
	s.tried <- struct{}{}
	return s.EventFile.Read(p)
}

func sleepingChannel(t *testing.T) (asleep, *uverbs.CompChannel) {
	t.Helper()
	k := asleep{uverbstest.NewFakeKernel(testDev), make(chan struct{}, 1)}
	d, err := uverbs.Open(k, testNode)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.CreateCompChannel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), d.Close() })
	return k, c
}

func TestWaitReady(t *testing.T) {
	k, c := channel(t)
	for i := range uint64(3) {
		post(t, k, compEvent(i+40))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range uint64(3) {
		if got, err := c.Wait(ctx); got != i+40 || err != nil {
			t.Fatalf("Wait = %d, %v, want %d", got, err, i+40)
		}
	}
}

func TestWaitReadyAllocatesNothing(t *testing.T) {
	k, c := channel(t)
	const runs = 50
	for range runs + 1 {
		post(t, k, compEvent(1))
	}
	if n := testing.AllocsPerRun(runs, func() {
		if _, err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for an event that is there", n)
	}
}

func TestWaitSleeps(t *testing.T) {
	for name, ctx := range map[string]context.Context{"with end": t.Context(), "without end": context.Background()} {
		t.Run(name, func(t *testing.T) {
			k, c := sleepingChannel(t)
			go func() {
				<-k.tried
				_ = k.Post(compEvent(7))
			}()
			if got, err := c.Wait(ctx); got != 7 || err != nil {
				t.Errorf("Wait = %d, %v", got, err)
			}
		})
	}
}

func TestWaitCancelled(t *testing.T) {
	k, c := sleepingChannel(t)
	ctx, end := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	go func() {
		<-k.tried
		end(why)
	}()
	for range 2 { // asleep, then at once
		if _, err := c.Wait(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Fatalf("Wait: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Wait: %v", err)
	}
	select {
	case <-k.tried:
	default: // it was over before the reader slept
	}
	post(t, k.FakeKernel, compEvent(8)) // the deadline has to be gone
	if got, err := c.Wait(t.Context()); got != 8 || err != nil {
		t.Errorf("Wait after a cancelled one = %d, %v", got, err)
	}
	go func() {
		<-k.tried
		_ = k.Post(compEvent(9))
	}()
	if got, err := c.Wait(t.Context()); got != 9 || err != nil {
		t.Errorf("sleeping Wait after a cancelled one = %d, %v", got, err)
	}
}

func TestCloseWakesWait(t *testing.T) {
	for name, ctx := range map[string]context.Context{"with end": t.Context(), "without end": context.Background()} {
		t.Run(name, func(t *testing.T) {
			k, c := sleepingChannel(t)
			go func() {
				<-k.tried
				_ = c.Close()
			}()
			for range 2 { // asleep, then closed already
				if _, err := c.Wait(ctx); !errors.Is(err, driver.ErrClosed) {
					t.Errorf("Wait: %v", err)
				}
			}
		})
	}
}

func TestTwoWaiters(t *testing.T) {
	k, c := sleepingChannel(t)
	done := make(chan error)
	go func() {
		_, err := c.Wait(context.Background())
		done <- err
	}()
	<-k.tried
	if _, err := c.Wait(t.Context()); err == nil || errors.Is(err, driver.ErrClosed) {
		t.Errorf("second Wait: %v", err)
	}
	post(t, k.FakeKernel, compEvent(1))
	if err := <-done; err != nil {
		t.Errorf("first Wait: %v", err)
	}
}

func TestEventsOfABrokenKernel(t *testing.T) {
	k, c := channel(t)
	post(t, k, []byte{1, 2, 3})
	var re *uverbs.ResponseError
	if _, err := c.Wait(t.Context()); !errors.As(err, &re) {
		t.Errorf("a record of 3 bytes: %v", err)
	}
}

func TestAsyncEvents(t *testing.T) {
	k := uverbstest.NewFakeKernel(testDev)
	a, err := open(t, k).AllocAsyncEvents()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, tc := range []struct {
		rec  []byte
		want driver.Event
	}{
		{asyncEvent(0x1234_5678_9abc, 0), driver.Event{Type: driver.EventCQErr, Cookie: 0x1234_5678_9abc}},
		{asyncEvent(5, 1), driver.Event{Type: driver.EventQPFatal, Cookie: 5}},
		{asyncEvent(2, 9), driver.Event{Type: driver.EventPortActive, Port: 2}},
		{asyncEvent(1, 18), driver.Event{Type: driver.EventGIDChange, Port: 1}},
		{asyncEvent(0, 8), driver.Event{Type: driver.EventDeviceFatal}},
		{asyncEvent(3, 200), driver.Event{Type: 200}}, // of a kernel to come
	} {
		post(t, k, tc.rec)
		if e, err := a.Next(t.Context()); e != tc.want || err != nil {
			t.Errorf("% x: %+v, %v, want %+v", tc.rec, e, err, tc.want)
		}
	}
	for _, rec := range [][]byte{asyncEvent(1, 1<<16), asyncEvent(1<<32, 9)} {
		post(t, k, rec)
		var re *uverbs.ResponseError
		if _, err := a.Next(t.Context()); !errors.As(err, &re) {
			t.Errorf("% x: %v", rec, err)
		}
	}
}

// lateFile is an event file on which an event comes together with the end of the
// context, and setting a deadline takes long.
type lateFile struct {
	cancel  context.CancelFunc
	setting chan struct{}
	set     []bool // deadlines set, in order; false for none
}

func (*lateFile) TryRead([]byte) (int, error) { return 0, syscall.EAGAIN }
func (*lateFile) Close() error                { return nil }

func (f *lateFile) Read(p []byte) (int, error) {
	f.cancel()
	<-f.setting
	return copy(p, compEvent(5)), nil
}

func (f *lateFile) SetReadDeadline(d time.Time) error {
	if !d.IsZero() {
		close(f.setting)
		time.Sleep(time.Second)
	}
	f.set = append(f.set, !d.IsZero())
	return nil
}

type lateKernel struct {
	*uverbstest.FakeKernel
	file *lateFile
}

func (k lateKernel) OpenEvents(fd int) (uverbs.EventFile, error) {
	f, err := k.FakeKernel.OpenEvents(fd)
	if err != nil {
		return nil, err
	}
	return k.file, f.Close()
}

// TestEventWithTheEndOfTheContext delivers the event, and leaves no deadline for
// the next reader.
func TestEventWithTheEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		file := &lateFile{cancel: cancel, setting: make(chan struct{})}
		d, err := uverbs.Open(lateKernel{uverbstest.NewFakeKernel(testDev), file}, testNode)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		c, err := d.CreateCompChannel()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Wait(ctx); got != 5 || err != nil {
			t.Errorf("Wait = %d, %v", got, err)
		}
		synctest.Wait()
		if want := []bool{true, false}; !slices.Equal(file.set, want) {
			t.Errorf("deadlines %v, want %v", file.set, want)
		}
	})
}

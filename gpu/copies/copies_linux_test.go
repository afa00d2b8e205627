package copies

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T) (*gputest.Driver, gpu.Context) {
	d := gputest.New(gputest.Config{})
	c, err := d.Open(0)
	must(t, err)
	t.Cleanup(func() {
		must(t, c.Close())
		if left := d.Left(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	return d, c
}

func TestInOrder(t *testing.T) {
	_, c := open(t)
	p, err := c.Alloc(4096)
	must(t, err)
	must(t, c.Do(func(c gpu.Context) error {
		e, err := New(c, 3)
		must(t, err)
		must(t, c.WriteTo(p, []byte("abcdefgh")))
		for i := range uint64(100) {
			for {
				// Each copy moves what the one before it has written.
				n, ok, err := e.Start(p+gpu.Ptr(8*(i+1)), p+gpu.Ptr(8*i), 8)
				must(t, err)
				if ok {
					if n != i+1 {
						t.Fatalf("copy %d has number %d", i, n)
					}
					break
				}
				runtime.Gosched()
			}
		}
		must(t, e.Wait())
		if n, err := e.Done(); n != 100 || err != nil {
			t.Errorf("%d done, %v", n, err)
		}
		return e.Close()
	}))
	got := make([]byte, 8)
	must(t, c.ReadFrom(got, p+800))
	if !bytes.Equal(got, []byte("abcdefgh")) {
		t.Errorf("%q", got)
	}
}

// No more than the depth is in flight.
func TestDepth(t *testing.T) {
	_, c := open(t)
	p, err := c.Alloc(4096)
	must(t, err)
	must(t, c.WriteTo(p, make([]byte, 4096)))
	e, err := New(c, 2)
	must(t, err)
	must(t, c.WaitWord(e.stream, p+2048, 1)) // holds the stream
	for i, want := range []bool{true, true, false} {
		if _, ok, err := e.Start(p+64, p, 8); ok != want || err != nil {
			t.Errorf("copy %d: %v, %v", i, ok, err)
		}
	}
	if n, err := e.Done(); n != 0 || err != nil {
		t.Errorf("%d done, %v", n, err)
	}
	must(t, c.WriteTo(p+2048, []byte{1}))
	must(t, e.Close())
}

// Copies share events where several are in flight, and one alone is told, too.
func TestGroups(t *testing.T) {
	d, c := open(t)
	p, err := c.Alloc(4096)
	must(t, err)
	must(t, c.WriteTo(p, make([]byte, 4096)))
	for _, k := range []struct{ depth, copies, events int }{{1, 1, 1}, {4, 4, 4}, {8, 8, 4}, {8, 7, 4}, {8, 1, 1}, {11, 11, 6}} {
		e, err := New(c, k.depth)
		must(t, err)
		must(t, c.WriteTo(p+2048, []byte{0}))
		must(t, c.WaitWord(e.stream, p+2048, 1)) // holds the stream
		before := d.Calls()["Record"]
		for i := range k.copies {
			if _, ok, err := e.Start(p+64, p, 8); !ok || err != nil {
				t.Errorf("%+v: copy %d: %v, %v", k, i, ok, err)
			}
		}
		if _, ok, err := e.Start(p+64, p, 8); (k.copies == k.depth) == ok || err != nil {
			t.Errorf("%+v: one more: %v, %v", k, ok, err)
		} else if ok {
			k.copies++
		}
		if n, err := e.Done(); n != 0 || err != nil {
			t.Errorf("%+v: %d done, %v", k, n, err)
		}
		must(t, c.WriteTo(p+2048, []byte{1}))
		for n := uint64(0); n < uint64(k.copies); runtime.Gosched() {
			if n, err = e.Done(); err != nil {
				t.Fatal(err)
			}
		}
		if events := d.Calls()["Record"] - before; events != k.events {
			t.Errorf("%+v: %d events", k, events)
		}
		must(t, e.Close())
	}
}

// After a failure every call says so.
func TestFailures(t *testing.T) {
	broken := &gpu.Error{Call: "cuX", Name: "CUDA_ERROR_UNKNOWN", Code: 999}
	for _, call := range []string{"NewStream", "NewEvent", "Copy", "Record", "Done", "Synchronize"} {
		t.Run(call, func(t *testing.T) {
			d, c := open(t)
			p, err := c.Alloc(4096)
			must(t, err)
			d.Fail(call, 1, broken)
			e, err := New(c, 2)
			if err == nil {
				_, _, err = e.Start(p+64, p, 8)
				if err == nil && call == "Done" {
					_, err = e.Done()
				}
				if err == nil {
					err = e.Wait()
				}
				if _, _, again := e.Start(p+64, p, 8); again == nil {
					t.Error("it went on")
				}
				_ = e.Close()
			}
			var ge *gpu.Error
			if !errors.As(err, &ge) || ge.Code != 999 {
				t.Errorf("%v", err)
			}
		})
	}
	_, c := open(t)
	if _, err := New(c, 0); err == nil {
		t.Error("an engine without depth")
	}
}

//go:build linux

package gputest

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/drivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// count is ping or pong of the suite: two kernels that store each number for the
// other to see.
func count(starts bool) Kernel {
	return func(m Machine, l gpu.Launch) error {
		mine, theirs := gpu.Ptr(binary.NativeEndian.Uint64(l.Params)), gpu.Ptr(binary.NativeEndian.Uint64(l.Params[8:]))
		n := binary.NativeEndian.Uint32(l.Params[16:])
		own, err := m.Bytes(mine, 4)
		if err != nil {
			return err
		}
		other, err := m.Bytes(theirs, 4)
		if err != nil {
			return err
		}
		for i := uint32(1); i <= n; i++ {
			if starts {
				store32(own, i)
			}
			for load32(other) < i {
				select {
				case <-m.Ended():
					return nil
				default:
					runtime.Gosched()
				}
			}
			store32(own, i)
		}
		return nil
	}
}

func newDriver(c Config) *Driver {
	c.Kernels = map[string]Kernel{"ping": count(true), "pong": count(false)}
	return New(c)
}

func TestSuite(t *testing.T) {
	d := newDriver(Config{Devices: make([]gpu.DeviceInfo, 2)})
	drivertest.Run(t, drivertest.Config{Driver: d, Device: 1})
	if left := d.Left(); len(left) > 0 {
		t.Errorf("left at the end: %v", left)
	}
}

// A call fails when it was told to, and only then.
func TestFail(t *testing.T) {
	d := newDriver(Config{})
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	full := &gpu.Error{Call: "cuMemAlloc_v2", Name: "CUDA_ERROR_OUT_OF_MEMORY", Cause: gpu.ErrOutOfMemory}
	d.Fail("Alloc", 2, full)
	for i := 1; i <= 3; i++ {
		if _, err := c.Alloc(64); (i == 2) != errors.Is(err, gpu.ErrOutOfMemory) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if n := d.Calls()["Alloc"]; n != 3 {
		t.Errorf("%d calls counted", n)
	}
	if left := d.Left(); left["allocations"] != 2 || left["contexts"] != 1 {
		t.Errorf("left %v", left)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if left := d.Left(); len(left) > 0 {
		t.Errorf("left after Close: %v", left)
	}
}

// What touches memory that is not there breaks the context, as on a GPU.
func TestIllegalAddress(t *testing.T) {
	d := newDriver(Config{})
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Copy(p, p+50, 51, s); err != nil {
		t.Fatal(err)
	}
	if err := c.Synchronize(s); !errors.Is(err, gpu.ErrBroken) {
		t.Errorf("a copy beyond the end: %v", err)
	}
	if _, err := c.Alloc(1); !errors.Is(err, gpu.ErrBroken) {
		t.Errorf("after it: %v", err)
	}
}

func TestPeers(t *testing.T) {
	d := newDriver(Config{Devices: make([]gpu.DeviceInfo, 3), Peers: func(a, b int) bool { return a+b != 3 }})
	for _, c := range []struct {
		a, b int
		want bool
	}{{0, 1, true}, {1, 2, false}, {2, 0, true}, {1, 1, false}} {
		if got, err := d.CanAccessPeer(c.a, c.b); got != c.want || err != nil {
			t.Errorf("%d and %d: %v, %v", c.a, c.b, got, err)
		}
	}
	one, _ := d.Open(1)
	two, _ := d.Open(2)
	defer one.Close()
	defer two.Close()
	if err := one.EnablePeer(two); err == nil {
		t.Error("devices that do not reach each other were connected")
	}
}

package gpu_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/gpu"
)

func TestBusID(t *testing.T) {
	for _, c := range []struct {
		text, want string
		number     int64
	}{
		{"0000:3b:00.0", "0000:3b:00.0", 0x3b000},
		{"00000000:3B:00.0", "0000:3b:00.0", 0x3b000},
		{"3b:1f.7", "0000:3b:1f.7", 0x3b1f7},
		{"0001:af:10", "0001:af:10.0", 0x1af100},
		{" 00010000:01:00.0 ", "10000:01:00.0", 0x1000001000},
	} {
		b, err := gpu.ParseBusID(c.text)
		if err != nil || b.String() != c.want || b.Int64() != c.number {
			t.Errorf("%q is %v, %#x, %v; want %s, %#x", c.text, b, b.Int64(), err, c.want, c.number)
		}
		var back gpu.BusID
		if err := back.UnmarshalText([]byte(b.String())); err != nil || back != b {
			t.Errorf("%v came back as %v, %v", b, back, err)
		}
	}
	for _, bad := range []string{"", "3b", "0000:3b:00.8", "0000:3b:20.0", "0000:100:00.0", "x:3b:00.0", "1:2:3:4", "0000:3b:00.", "100000000:00:00.0"} {
		if b, err := gpu.ParseBusID(bad); err == nil || !strings.Contains(err.Error(), "0000:3b:00.0") {
			t.Errorf("%q is %v, %v; the error shows the form", bad, b, err)
		}
	}
	if s := (gpu.BusID{}).String(); s != "" {
		t.Errorf("no address is %q", s)
	}
}

func TestErrors(t *testing.T) {
	missing := error(&gpu.Error{Call: "cuFuncLoad", Device: 1, Missing: true})
	if !errors.Is(missing, errors.ErrUnsupported) || !strings.Contains(missing.Error(), "cuFuncLoad on GPU 1") {
		t.Errorf("%v", missing)
	}
	full := error(&gpu.Error{Call: "cuMemAlloc_v2", Name: "CUDA_ERROR_OUT_OF_MEMORY", Code: 2, Detail: "64 bytes", Cause: gpu.ErrOutOfMemory})
	const want = "cuMemAlloc_v2 on GPU 0: CUDA_ERROR_OUT_OF_MEMORY (2), 64 bytes"
	if !errors.Is(full, gpu.ErrOutOfMemory) || errors.Is(full, errors.ErrUnsupported) || full.Error() != want {
		t.Errorf("%v", full)
	}
}

type named string

func (n named) Name() string                               { return string(n) }
func (named) Devices() ([]gpu.DeviceInfo, error)           { return nil, nil }
func (named) Attribute(int, gpu.Attribute) (int, error)    { return 0, nil }
func (named) CanAccessPeer(device, peer int) (bool, error) { return false, nil }
func (named) Open(int) (gpu.Context, error)                { return nil, gpu.ErrNoDevice }

func TestRegister(t *testing.T) {
	gpu.Register(named("b"))
	gpu.Register(named("a"))
	if all := gpu.Drivers(); len(all) != 2 || all[0].Name() != "a" || all[1].Name() != "b" {
		t.Errorf("drivers %v", all)
	}
	defer func() {
		if recover() == nil {
			t.Error("a driver was registered twice")
		}
	}()
	gpu.Register(named("a"))
}

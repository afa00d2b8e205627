package nvidia

import (
	"errors"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/gpu"
)

// Without the driver's library each call says so, and how to get it.
func TestNoDriver(t *testing.T) {
	if _, err := cuda(); err == nil {
		t.Skip("this machine has an NVIDIA driver")
	}
	_, err := driver{}.Devices()
	_, err2 := driver{}.Open(0)
	_, err3 := driver{}.Attribute(0, gpu.HasVMM)
	for _, err := range []error{err, err2, err3} {
		if !errors.Is(err, gpu.ErrNoDriver) || !strings.Contains(err.Error(), "install the NVIDIA driver") {
			t.Errorf("%v", err)
		}
	}
}

func TestNames(t *testing.T) {
	for s, name := range names {
		if !strings.HasPrefix(name, "cu") {
			t.Errorf("function %d has no name", s)
		}
	}
	if names[cuLaunchKernel] != "cuLaunchKernel" || names[cuMemMap] != "cuMemMap" || names[cuEventQuery] != "cuEventQuery" {
		t.Error("the names are not in the order of the constants")
	}
}

func TestOpenIPCArguments(t *testing.T) {
	l := &library{}
	_ = l.with(func(f *frame) error {
		h := gpu.IPCHandle{0: 1, 8: 2, 56: 8}
		args := openIPCArguments(f, 42, h)
		if len(args) == 3 {
			return nil // by address
		}
		if len(args) != 14 || args[0] != 42 || args[1] != 1 || args[6] != 1 || args[7] != 2 || args[13] != 8 {
			t.Errorf("arguments %v", args)
		}
		return nil
	})
}

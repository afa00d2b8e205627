package nvidia

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/purerdma/purerdma/gpu"
)

// ReadFrom hands Go memory to the driver for the length of the call, which is
// over when the bytes are there. The conversion stands in the call, so that the
// memory stays.
func (c calls) ReadFrom(b []byte, p gpu.Ptr) error {
	return c.copyCall(cuMemcpyDtoH, len(b), func(fn uintptr) uintptr {
		r, _, _ := purego.SyscallN(fn, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(p), uintptr(len(b)))
		return r
	})
}

// WriteTo is the same the other way.
func (c calls) WriteTo(p gpu.Ptr, b []byte) error {
	return c.copyCall(cuMemcpyHtoD, len(b), func(fn uintptr) uintptr {
		r, _, _ := purego.SyscallN(fn, uintptr(p), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		return r
	})
}

func (c calls) copyCall(s symbol, n int, f func(fn uintptr) uintptr) error {
	if n == 0 {
		return nil
	}
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if c.l.functions[s] == 0 {
		return &gpu.Error{Call: names[s], Device: c.info.Index, Missing: true}
	}
	return failure(names[s], int(int32(f(c.l.functions[s]))), c.info.Index, fmt.Sprintf("%d bytes", n))
}

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

// WriteTo is the same the other way. The driver's call is over when it has the
// bytes in a buffer of its own, from which they go on by the default stream: who
// unmaps p next would take the memory from under them.
func (c calls) WriteTo(p gpu.Ptr, b []byte) error {
	err := c.copyCall(cuMemcpyHtoD, len(b), func(fn uintptr) uintptr {
		r, _, _ := purego.SyscallN(fn, uintptr(p), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		return r
	})
	if err != nil || len(b) == 0 {
		return err
	}
	return c.Synchronize(0)
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

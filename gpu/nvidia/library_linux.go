package nvidia

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ebitengine/purego"

	"github.com/purerdma/purerdma/gpu"
)

// library is libcuda, initialised.
type library struct {
	functions [symbols]uintptr // 0 for those that the driver lacks
	version   int              // 13000 for CUDA 13.0
	frames    frames
}

// cuda loads the library once per process: CUDA cannot be initialised twice.
var cuda = sync.OnceValues(load)

func load() (*library, error) {
	handle, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, &gpu.Error{Call: "dlopen libcuda.so.1", Device: -1, Cause: gpu.ErrNoDriver,
			Detail: fmt.Sprintf("%v; install the NVIDIA driver, in a container start it with its NVIDIA runtime", err)}
	}
	l := &library{}
	for s, name := range names {
		l.functions[s], _ = purego.Dlsym(handle, name) // its lack is told by the call that needs it
	}
	l.prepare()
	if err := l.call(cuInit, -1, "", 0); err != nil {
		return nil, err
	}
	return l, l.with(func(f *frame) error {
		v := f.word32()
		err := l.call(cuDriverGetVersion, -1, "", v.addr)
		l.version = int(v.get())
		return err
	})
}

// prepare sets, before the driver reads them, variables that the user has not set.
//
// CUDA is made to put functions onto the device when their module is loaded, where the driver cannot be asked for that function by
// function: a kernel that is loaded while another spins for it waits for ever. And streams are given the eight queues that they have
// without MPS: under MPS they share two, where whatever stands behind a stream that waits for another waits, too.
func (l *library) prepare() {
	variables := map[string]string{"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
	if l.functions[cuFuncLoad] == 0 {
		variables["CUDA_MODULE_LOADING"] = "EAGER"
	}
	setenv, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv")
	if err != nil {
		return // no libc in sight has none of its variables read either
	}
	const replace = 0
	for name, value := range variables {
		_ = l.with(func(f *frame) error {
			purego.SyscallN(setenv, f.text(name), f.text(value), replace)
			return nil
		})
	}
}

// call runs a function that answers with a CUresult.
func (l *library) call(s symbol, device int, detail string, args ...uintptr) error {
	code, err := l.code(s, device, args...)
	if err != nil {
		return err
	}
	return failure(names[s], code, device, detail)
}

// code is call for those who tell some results apart.
func (l *library) code(s symbol, device int, args ...uintptr) (int, error) {
	if l.functions[s] == 0 {
		return 0, &gpu.Error{Call: names[s], Device: device, Missing: true}
	}
	r, _, _ := purego.SyscallN(l.functions[s], args...)
	return int(int32(r)), nil
}

// with lends a frame to f.
func (l *library) with(f func(*frame) error) error {
	frame, err := l.frames.take()
	if err != nil {
		return fmt.Errorf("memory for a call of the GPU driver: %w", err)
	}
	defer l.frames.put(frame)
	return f(frame)
}

// has reports whether an error is the result code.
func has(err error, code int) bool {
	var e *gpu.Error
	return errors.As(err, &e) && e.Code == code
}

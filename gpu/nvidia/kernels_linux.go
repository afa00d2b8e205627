package nvidia

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/internal/offheap"
)

// CUjit_option: where the compiler writes what it does not like, and how much
// fits.
const (
	jitErrorLog     = 5
	jitErrorLogSize = 6
	logSize         = 4 << 10
)

func (c calls) Load(text []byte, funcs ...string) (m gpu.Module, fs []gpu.Function, err error) {
	source, err := offheap.Map(len(text)+1, offheap.Options{})
	if err != nil {
		return 0, nil, err
	}
	defer source.Release()
	copy(source.Bytes(), text) // a zero byte follows
	err = c.run(func(f *frame) error {
		w := f.word64()
		logAddr, log := f.room(logSize)
		options, b := f.room(8)
		binary.NativeEndian.PutUint32(b, jitErrorLog)
		binary.NativeEndian.PutUint32(b[4:], jitErrorLogSize)
		values, b := f.room(16)
		binary.NativeEndian.PutUint64(b, uint64(logAddr))
		binary.NativeEndian.PutUint64(b[8:], logSize)
		err := c.l.call(cuModuleLoadDataEx, c.info.Index, "", w.addr, uintptr(source.Addr()), 2, options, values)
		if e, ok := err.(*gpu.Error); ok {
			e.Detail = cstring(bytes.TrimSpace(log))
		}
		m = gpu.Module(w.get())
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	c.made.add(module, uint64(m), func(c calls) error { return c.Unload(m) })
	if fs, err = c.functions(m, funcs); err != nil {
		_ = c.Unload(m)
		return 0, nil, err
	}
	return m, fs, nil
}

// functions looks each name up and puts it onto the device.
func (c calls) functions(m gpu.Module, funcs []string) (fs []gpu.Function, err error) {
	err = c.run(func(f *frame) error {
		w := f.word64()
		for _, name := range funcs {
			if len(name) > 255 {
				return &gpu.Error{Call: names[cuModuleGetFunction], Device: c.info.Index, Detail: "a name of over 255 bytes"}
			}
			at := f.used
			if err := c.l.call(cuModuleGetFunction, c.info.Index, "function "+name, w.addr, uintptr(m), f.text(name)); err != nil {
				return err
			}
			f.rewind(at)
			if c.l.functions[cuFuncLoad] != 0 { // without it everything is loaded with its module
				if err := c.l.call(cuFuncLoad, c.info.Index, "function "+name, uintptr(w.get())); err != nil {
					return err
				}
			}
			fs = append(fs, gpu.Function(w.get()))
		}
		return nil
	})
	return fs, err
}

func (c calls) Unload(m gpu.Module) error {
	c.made.drop(module, uint64(m))
	return c.call(cuModuleUnload, "", uintptr(m))
}

// Words of the extra argument of cuLaunchKernel.
const (
	paramEnd     = 0
	paramPointer = 1
	paramSize    = 2
	paramMost    = 4 << 10 // of a kernel
)

func (c calls) Launch(l gpu.Launch) error {
	if len(l.Params) > paramMost {
		return &gpu.Error{Call: names[cuLaunchKernel], Device: c.info.Index,
			Detail: fmt.Sprintf("%d bytes of parameters, a kernel takes %d", len(l.Params), paramMost)}
	}
	return c.run(func(f *frame) error {
		size, b := f.room(8)
		binary.NativeEndian.PutUint64(b, uint64(len(l.Params)))
		extra, b := f.room(5 * 8)
		for i, v := range [...]uint64{paramPointer, uint64(f.put(l.Params)), paramSize, uint64(size), paramEnd} {
			binary.NativeEndian.PutUint64(b[8*i:], v)
		}
		one := func(n uint32) uintptr { return uintptr(max(n, 1)) }
		return c.l.call(cuLaunchKernel, c.info.Index, "", uintptr(l.F), one(l.Grid.X), one(l.Grid.Y), one(l.Grid.Z),
			one(l.Block.X), one(l.Block.Y), one(l.Block.Z), uintptr(l.Shared), uintptr(l.Stream), 0, extra)
	})
}

package nvidia

import (
	"fmt"

	"github.com/purerdma/purerdma/gpu"
)

func (c calls) NewStream() (s gpu.Stream, err error) {
	err = c.run(func(f *frame) error {
		const nonBlocking = 1
		w := f.word64()
		err := c.l.call(cuStreamCreate, c.info.Index, "", w.addr, nonBlocking)
		s = gpu.Stream(w.get())
		return err
	})
	if err == nil {
		c.made.add(stream, uint64(s), func(c calls) error { return c.CloseStream(s) })
	}
	return s, err
}

func (c calls) CloseStream(s gpu.Stream) error {
	c.made.drop(stream, uint64(s))
	return c.call(cuStreamDestroy, "", uintptr(s))
}

func (c calls) Synchronize(s gpu.Stream) error { return c.call(cuStreamSynchronize, "", uintptr(s)) }

func (c calls) NewEvent() (e gpu.Event, err error) {
	err = c.run(func(f *frame) error {
		const disableTiming = 2
		w := f.word64()
		err := c.l.call(cuEventCreate, c.info.Index, "", w.addr, disableTiming)
		e = gpu.Event(w.get())
		return err
	})
	if err == nil {
		c.made.add(event, uint64(e), func(c calls) error { return c.CloseEvent(e) })
	}
	return e, err
}

func (c calls) CloseEvent(e gpu.Event) error {
	c.made.drop(event, uint64(e))
	return c.call(cuEventDestroy, "", uintptr(e))
}

func (c calls) Record(e gpu.Event, s gpu.Stream) error {
	return c.call(cuEventRecord, "", uintptr(e), uintptr(s))
}

func (c calls) Done(e gpu.Event) (bool, error) {
	if err := c.enter(); err != nil {
		return false, err
	}
	defer c.leave()
	code, err := c.l.code(cuEventQuery, c.info.Index, uintptr(e))
	if err != nil || code == notReady {
		return false, err
	}
	return code == success, failure(names[cuEventQuery], code, c.info.Index, "")
}

func (c calls) Wait(s gpu.Stream, e gpu.Event) error {
	return c.call(cuStreamWaitEvent, "", uintptr(s), uintptr(e), 0)
}

func (c calls) Copy(dst, src gpu.Ptr, n int, s gpu.Stream) error {
	if n == 0 {
		return nil
	}
	err := c.call(cuMemcpyAsync, "", uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
	if e, ok := err.(*gpu.Error); ok {
		e.Detail = fmt.Sprintf("%d bytes from %#x to %#x", n, uint64(src), uint64(dst))
	}
	return err
}

func (c calls) Fill(p gpu.Ptr, v byte, n int, s gpu.Stream) error {
	return c.call(cuMemsetD8Async, "", uintptr(p), uintptr(v), uintptr(n), uintptr(s))
}

func (c calls) WriteWord(s gpu.Stream, p gpu.Ptr, v uint32) error {
	return c.call(cuStreamWriteValue32, "", uintptr(s), uintptr(p), uintptr(v), 0)
}

func (c calls) WaitWord(s gpu.Stream, p gpu.Ptr, v uint32) error {
	const greaterOrEqual = 0 // as a ring: the difference is not negative
	return c.call(cuStreamWaitValue32, "", uintptr(s), uintptr(p), uintptr(v), greaterOrEqual)
}

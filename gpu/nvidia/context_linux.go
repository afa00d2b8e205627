package nvidia

import (
	"errors"
	"runtime"
	"sync"

	"github.com/purerdma/purerdma/gpu"
)

// hold is one hold on a device's primary context, with what was made through it.
type hold struct {
	l      *library
	info   gpu.DeviceInfo
	handle uintptr // CUcontext
	life   sync.RWMutex
	closed bool
	made   ledger
}

// calls is the methods of a hold. When current, the thread's context is the
// hold's already.
type calls struct {
	*hold
	current bool
}

func (driver) Open(device int) (gpu.Context, error) {
	l, err := cuda()
	if err != nil {
		return nil, err
	}
	info, err := l.device(device)
	if err != nil {
		return nil, err
	}
	h := &hold{l: l, info: info}
	err = l.with(func(f *frame) error {
		w := f.word64()
		err := l.call(cuDevicePrimaryCtxRetain, device, "", w.addr, uintptr(device))
		h.handle = uintptr(w.get())
		return err
	})
	if err != nil {
		return nil, err
	}
	return calls{hold: h}, nil
}

func (h *hold) Device() gpu.DeviceInfo { return h.info }

// enter makes the context current on the thread, to which it keeps the goroutine;
// leave takes both back.
func (c calls) enter() error {
	if c.current {
		return nil
	}
	c.life.RLock()
	if c.closed {
		c.life.RUnlock()
		return &gpu.Error{Call: "use", Device: c.info.Index, Cause: gpu.ErrClosed}
	}
	runtime.LockOSThread()
	err := c.l.call(cuCtxPushCurrent, c.info.Index, "", c.handle)
	if err != nil {
		runtime.UnlockOSThread()
		c.life.RUnlock()
	}
	return err
}

func (c calls) leave() {
	if c.current {
		return
	}
	_ = c.l.with(func(f *frame) error {
		return c.l.call(cuCtxPopCurrent, c.info.Index, "", f.word64().addr)
	})
	runtime.UnlockOSThread()
	c.life.RUnlock()
}

func (c calls) Do(f func(gpu.Context) error) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	return f(calls{c.hold, true})
}

// run makes the calls of f in the context.
func (c calls) run(f func(*frame) error) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	return c.l.with(f)
}

// call is one call in the context.
func (c calls) call(s symbol, detail string, args ...uintptr) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	return c.l.call(s, c.info.Index, detail, args...)
}

func (c calls) Close() error {
	if c.current {
		return &gpu.Error{Call: "close", Device: c.info.Index, Detail: "it is called within Do"}
	}
	c.life.RLock()
	closed := c.closed
	c.life.RUnlock()
	if closed {
		return nil
	}
	left := c.Do(func(in gpu.Context) error { return c.made.closeAll(in.(calls)) })
	c.life.Lock()
	defer c.life.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	return errors.Join(left, c.l.call(cuDevicePrimaryCtxRelease, c.info.Index, "", uintptr(c.info.Index)))
}

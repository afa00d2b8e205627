package gputest

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/gpu"
)

func (c *context) used() (n uint64) {
	s := c.d.space
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, sp := range s.ranges {
		if sp.of == c.info.Index && sp.whole {
			n += uint64(len(sp.bytes))
		}
	}
	return n
}

func (c *context) Alloc(n int) (gpu.Ptr, error) {
	if err := c.enter("Alloc"); err != nil {
		return 0, err
	}
	if n < 1 {
		return 0, c.invalid("Alloc", detail("%d bytes", n))
	}
	if c.used()+uint64(n) > c.info.Memory {
		return 0, &gpu.Error{Call: "Alloc", Name: "OUT_OF_MEMORY", Code: 2, Device: c.info.Index, Detail: detail("%d bytes", n), Cause: gpu.ErrOutOfMemory}
	}
	f, err := newFile(n)
	if err != nil {
		return 0, err
	}
	b, err := mapFile(f, n)
	if err != nil {
		f.Close()
		return 0, err
	}
	at := c.d.space.reserve(n)
	c.d.space.put(span{at: at, bytes: b, of: c.info.Index, file: f, whole: true})
	c.keep("allocations", at, func(*context) {
		if sp, ok := c.d.space.take(at); ok {
			_ = unix.Munmap(sp.bytes)
			_ = sp.file.Close()
		}
	})
	return gpu.Ptr(at), nil
}

func (c *context) Free(p gpu.Ptr) error {
	if err := c.enter("Free"); err != nil {
		return err
	}
	return c.free("Free", "allocations", uint64(p))
}

func (c *context) Granularity() (int, error) { return granularity, c.enter("Granularity") }

func (c *context) Create(n int, _ bool) (gpu.Allocation, error) {
	return c.create("Create", n, c.info.Index)
}

func (c *context) CreateHost(n, _ int) (gpu.Allocation, error) { return c.create("CreateHost", n, -1) }

func (c *context) create(call string, n, of int) (gpu.Allocation, error) {
	if err := c.enter(call); err != nil {
		return 0, err
	}
	if n < 1 || n%granularity != 0 {
		return 0, c.invalid(call, detail("%d bytes are not a multiple of %d", n, granularity))
	}
	f, err := newFile(n)
	if err != nil {
		return 0, err
	}
	return c.keepPhysical(&physical{f, n, of}), nil
}

func (c *context) keepPhysical(ph *physical) gpu.Allocation {
	var a gpu.Allocation
	id := c.keep("handles", 0, func(c *context) {
		c.mu.Lock()
		delete(c.files, a)
		c.mu.Unlock()
		_ = ph.file.Close()
	})
	a = gpu.Allocation(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil {
		c.files = map[gpu.Allocation]*physical{}
	}
	c.files[a] = ph
	return a
}

func (c *context) physical(call string, a gpu.Allocation) (*physical, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ph := c.files[a]; ph != nil {
		return ph, nil
	}
	return nil, &gpu.Error{Call: call, Name: "INVALID_HANDLE", Code: 400, Device: c.info.Index}
}

func (c *context) Release(a gpu.Allocation) error {
	if err := c.enter("Release"); err != nil {
		return err
	}
	return c.free("Release", "handles", uint64(a))
}

func (c *context) Reserve(n int) (gpu.Ptr, error) {
	if err := c.enter("Reserve"); err != nil {
		return 0, err
	}
	if n < 1 || n%granularity != 0 {
		return 0, c.invalid("Reserve", detail("%d bytes are not a multiple of %d", n, granularity))
	}
	at := c.d.space.reserve(n)
	c.keep("reservations", at, func(*context) {})
	return gpu.Ptr(at), nil
}

func (c *context) Unreserve(p gpu.Ptr, _ int) error {
	if err := c.enter("Unreserve"); err != nil {
		return err
	}
	return c.free("Unreserve", "reservations", uint64(p))
}

func (c *context) Map(p gpu.Ptr, n int, a gpu.Allocation) error {
	if err := c.enter("Map"); err != nil {
		return err
	}
	ph, err := c.physical("Map", a)
	if err != nil {
		return err
	}
	if n != ph.n {
		return c.invalid("Map", detail("%d bytes of an allocation of %d", n, ph.n))
	}
	own, err := duplicate(int(ph.file.Fd())) // the mapping outlives the handle
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(own), "mapped memory")
	b, err := mapFile(f, n)
	if err != nil {
		f.Close()
		return err
	}
	if !c.d.space.put(span{at: uint64(p), bytes: b, of: ph.of, file: f}) {
		_ = unix.Munmap(b)
		f.Close()
		return c.invalid("Map", detail("something is mapped at %#x", uint64(p)))
	}
	c.keep("mappings", uint64(p), func(*context) {
		if sp, ok := c.d.space.take(uint64(p)); ok {
			_ = unix.Munmap(sp.bytes)
			_ = sp.file.Close()
		}
	})
	return nil
}

func (c *context) Unmap(p gpu.Ptr, _ int) error {
	if err := c.enter("Unmap"); err != nil {
		return err
	}
	return c.free("Unmap", "mappings", uint64(p))
}

func (c *context) RegisterHost(addr uintptr, n int) (gpu.Ptr, error) {
	if err := c.enter("RegisterHost"); err != nil {
		return 0, err
	}
	if n < 1 || addr%4096 != 0 {
		return 0, c.invalid("RegisterHost", detail("%d bytes at %#x", n, addr))
	}
	if !c.d.space.put(span{at: uint64(addr), bytes: hostBytes(addr, n), of: -1}) {
		return 0, &gpu.Error{Call: "RegisterHost", Name: "HOST_MEMORY_ALREADY_REGISTERED", Code: 712, Device: c.info.Index}
	}
	c.keep("registrations", uint64(addr), func(*context) { c.d.space.take(uint64(addr)) })
	return gpu.Ptr(addr), nil
}

func (c *context) UnregisterHost(addr uintptr) error {
	if err := c.enter("UnregisterHost"); err != nil {
		return err
	}
	return c.free("UnregisterHost", "registrations", uint64(addr))
}

func (c *context) Address(p gpu.Ptr) (gpu.AddressInfo, error) {
	if err := c.enter("Address"); err != nil {
		return gpu.AddressInfo{}, err
	}
	sp, ok := c.d.space.find(uint64(p))
	if !ok {
		return gpu.AddressInfo{Index: -1}, nil
	}
	return gpu.AddressInfo{Device: sp.of >= 0, Index: sp.of, Base: gpu.Ptr(sp.at), Len: len(sp.bytes), LegacyIPC: sp.whole}, nil
}

func (c *context) MemoryInfo() (free, total uint64, err error) {
	if err := c.enter("MemoryInfo"); err != nil {
		return 0, 0, err
	}
	return c.info.Memory - c.used(), c.info.Memory, nil
}

func (c *context) ReadFrom(b []byte, p gpu.Ptr) error {
	if err := c.enter("ReadFrom"); err != nil {
		return err
	}
	rest := b
	if !c.d.space.each(uint64(p), len(b), func(piece []byte) { rest = rest[copy(rest, piece):] }) {
		return c.invalid("ReadFrom", detail("%d bytes at %#x", len(b), uint64(p)))
	}
	return nil
}

func (c *context) WriteTo(p gpu.Ptr, b []byte) error {
	if err := c.enter("WriteTo"); err != nil {
		return err
	}
	rest := b
	if !c.d.space.each(uint64(p), len(b), func(piece []byte) { rest = rest[copy(piece, rest):] }) {
		return c.invalid("WriteTo", detail("%d bytes at %#x", len(b), uint64(p)))
	}
	return nil
}

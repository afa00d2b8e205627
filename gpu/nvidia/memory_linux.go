package nvidia

import (
	"encoding/binary"
	"fmt"

	"github.com/purerdma/purerdma/gpu"
)

func (c calls) Alloc(n int) (p gpu.Ptr, err error) {
	err = c.run(func(f *frame) error {
		w := f.word64()
		err := c.l.call(cuMemAlloc, c.info.Index, fmt.Sprintf("%d bytes", n), w.addr, uintptr(n))
		p = gpu.Ptr(w.get())
		return err
	})
	if err == nil {
		c.made.add(memory, uint64(p), func(c calls) error { return c.Free(p) })
	}
	return p, err
}

func (c calls) Free(p gpu.Ptr) error {
	c.made.drop(memory, uint64(p))
	return c.call(cuMemFree, "", uintptr(p))
}

func (c calls) MemoryInfo() (free, total uint64, err error) {
	err = c.run(func(f *frame) error {
		a, b := f.word64(), f.word64()
		err := c.l.call(cuMemGetInfo, c.info.Index, "", a.addr, b.addr)
		free, total = a.get(), b.get()
		return err
	})
	return free, total, err
}

// Fields of CUmemAllocationProp, CUmemLocation and CUmemAccessDesc.
const (
	propSize       = 32
	propType       = 0 // PINNED 1
	propHandles    = 4 // POSIX_FILE_DESCRIPTOR 1
	propLocation   = 8 // type, id
	propRDMA       = 25
	locationDevice = 1
	locationNUMA   = 3
	accessSize     = 12
	readWrite      = 3
)

// properties is the CUmemAllocationProp of memory that other processes can be
// given by descriptor.
func properties(locationType, id uint32, rdma bool) []byte {
	b := make([]byte, propSize)
	binary.NativeEndian.PutUint32(b[propType:], 1)
	binary.NativeEndian.PutUint32(b[propHandles:], 1)
	binary.NativeEndian.PutUint32(b[propLocation:], locationType)
	binary.NativeEndian.PutUint32(b[propLocation+4:], id)
	if rdma {
		b[propRDMA] = 1
	}
	return b
}

func (c calls) Granularity() (n int, err error) {
	err = c.run(func(f *frame) error {
		const minimum = 0
		w := f.word64()
		err := c.l.call(cuMemGetAllocationGranularity, c.info.Index, "", w.addr,
			f.put(properties(locationDevice, uint32(c.info.Index), false)), minimum)
		n = int(w.get())
		return err
	})
	return n, err
}

func (c calls) Create(n int, rdma bool) (gpu.Allocation, error) {
	return c.create(n, properties(locationDevice, uint32(c.info.Index), rdma))
}

func (c calls) CreateHost(n, node int) (gpu.Allocation, error) {
	return c.create(n, properties(locationNUMA, uint32(max(node, 0)), false))
}

func (c calls) create(n int, prop []byte) (a gpu.Allocation, err error) {
	err = c.run(func(f *frame) error {
		w := f.word64()
		err := c.l.call(cuMemCreate, c.info.Index, fmt.Sprintf("%d bytes", n), w.addr, uintptr(n), f.put(prop), 0)
		a = gpu.Allocation(w.get())
		return err
	})
	if err == nil {
		c.made.add(allocation, uint64(a), func(c calls) error { return c.Release(a) })
	}
	return a, err
}

func (c calls) Release(a gpu.Allocation) error {
	c.made.drop(allocation, uint64(a))
	return c.call(cuMemRelease, "", uintptr(a))
}

func (c calls) Reserve(n int) (p gpu.Ptr, err error) {
	err = c.run(func(f *frame) error {
		w := f.word64()
		err := c.l.call(cuMemAddressReserve, c.info.Index, fmt.Sprintf("%d bytes", n), w.addr, uintptr(n), 0, 0, 0)
		p = gpu.Ptr(w.get())
		return err
	})
	if err == nil {
		c.made.add(reservation, uint64(p), func(c calls) error { return c.Unreserve(p, n) })
	}
	return p, err
}

func (c calls) Unreserve(p gpu.Ptr, n int) error {
	c.made.drop(reservation, uint64(p))
	return c.call(cuMemAddressFree, "", uintptr(p), uintptr(n))
}

func (c calls) Map(p gpu.Ptr, n int, a gpu.Allocation) error {
	err := c.run(func(f *frame) error {
		dev := c.info.Index
		addr, prop := f.room(propSize)
		if err := c.l.call(cuMemGetAllocationPropertiesFromHandle, dev, "", addr, uintptr(a)); err != nil {
			return err
		}
		if err := c.l.call(cuMemMap, dev, fmt.Sprintf("%d bytes", n), uintptr(p), uintptr(n), 0, uintptr(a), 0); err != nil {
			return err
		}
		addr, access := f.room(2 * accessSize)
		put := func(at int, location [2]uint32) {
			binary.NativeEndian.PutUint32(access[at:], location[0])
			binary.NativeEndian.PutUint32(access[at+4:], location[1])
			binary.NativeEndian.PutUint32(access[at+8:], readWrite)
		}
		put(0, [2]uint32{locationDevice, uint32(dev)})
		count := uintptr(1)
		if where := binary.NativeEndian.Uint32(prop[propLocation:]); where == locationNUMA {
			put(accessSize, [2]uint32{where, binary.NativeEndian.Uint32(prop[propLocation+4:])})
			count = 2
		}
		err := c.l.call(cuMemSetAccess, dev, "", uintptr(p), uintptr(n), addr, count)
		if err != nil {
			_ = c.l.call(cuMemUnmap, dev, "", uintptr(p), uintptr(n))
		}
		return err
	})
	if err == nil {
		c.made.add(mapping, uint64(p), func(c calls) error { return c.Unmap(p, n) })
	}
	return err
}

func (c calls) Unmap(p gpu.Ptr, n int) error {
	c.made.drop(mapping, uint64(p))
	return c.call(cuMemUnmap, "", uintptr(p), uintptr(n))
}

func (c calls) RegisterHost(addr uintptr, n int) (p gpu.Ptr, err error) {
	err = c.run(func(f *frame) error {
		const portable, mapped = 1, 2
		if err := c.l.call(cuMemHostRegister, c.info.Index, fmt.Sprintf("%d bytes", n), addr, uintptr(n), portable|mapped); err != nil {
			return err
		}
		w := f.word64()
		err := c.l.call(cuMemHostGetDevicePointer, c.info.Index, "", w.addr, addr, 0)
		if err != nil {
			_ = c.l.call(cuMemHostUnregister, c.info.Index, "", addr)
		}
		p = gpu.Ptr(w.get())
		return err
	})
	if err == nil {
		c.made.add(registration, uint64(addr), func(c calls) error { return c.UnregisterHost(addr) })
	}
	return p, err
}

func (c calls) UnregisterHost(addr uintptr) error {
	c.made.drop(registration, uint64(addr))
	return c.call(cuMemHostUnregister, "", addr)
}

// CUpointer_attribute.
const (
	attrMemoryType = 2 // CU_MEMORYTYPE: HOST 1, DEVICE 2
	attrOrdinal    = 9
	attrLegacyIPC  = 10
	attrRangeStart = 11
	attrRangeSize  = 12
)

func (c calls) Address(p gpu.Ptr) (info gpu.AddressInfo, err error) {
	info.Index = -1
	err = c.run(func(f *frame) error {
		get := func(attribute uintptr) (uint64, error) {
			w := f.word64() // attributes of four bytes fill the lower half of zeros
			err := c.l.call(cuPointerGetAttribute, c.info.Index, fmt.Sprintf("address %#x", uint64(p)), w.addr, attribute, uintptr(p))
			return w.get(), err
		}
		what, err := get(attrMemoryType)
		if has(err, invalidValue) {
			return nil // memory that CUDA does not know
		}
		if err != nil {
			return err
		}
		start, err := get(attrRangeStart)
		if err != nil {
			return err
		}
		size, err := get(attrRangeSize)
		if err != nil {
			return err
		}
		info.Base, info.Len = gpu.Ptr(start), int(size)
		if info.Device = what == 2; !info.Device {
			return nil
		}
		ordinal, err := get(attrOrdinal)
		if err != nil {
			return err
		}
		legacy, err := get(attrLegacyIPC)
		info.Index, info.LegacyIPC = int(int32(ordinal)), legacy != 0
		return err
	})
	return info, err
}

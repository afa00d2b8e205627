package drivertest

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/internal/offheap"
)

func (s suite) device(t *testing.T) {
	c := s.open(t)
	d := c.Device()
	if d.Name == "" || !d.PCI.Valid || d.Major < 3 || d.Memory < 1<<28 || (!strings.HasPrefix(d.UUID, "GPU-") && !strings.HasPrefix(d.UUID, "MIG-")) {
		t.Errorf("device %+v", d)
	}
	for a, min := range map[gpu.Attribute]int{gpu.Multiprocessors: 1, gpu.AsyncEngines: 1} {
		if v, err := s.Driver.Attribute(d.Index, a); err != nil || v < min {
			t.Errorf("attribute %d is %d, %v", a, v, err)
		}
	}
	for _, a := range []gpu.Attribute{gpu.HasVMM, gpu.HasFDHandles, gpu.HasDMABuf, gpu.GDRSupported, gpu.GDRWithVMM, gpu.GDRFlushOptions,
		gpu.GDRWritesOrdering, gpu.HostNUMANode, gpu.StreamMemOps, gpu.HostRegister, gpu.HasFabricHandles, gpu.CanFlushRemoteWrites, gpu.Integrated} {
		v, err := s.Driver.Attribute(d.Index, a)
		t.Logf("attribute %d is %d", a, v)
		must(t, err)
	}
	if can, err := s.Driver.CanAccessPeer(d.Index, d.Index); can || err != nil {
		t.Errorf("a device with itself: %v, %v", can, err)
	}
	if l, ok := s.Driver.(gpu.Linker); ok {
		t.Logf("links %+v", get(l.Links(d.Index))(t))
	}
}

func (s suite) alloc(t *testing.T) {
	c := s.open(t)
	free, total, err := c.MemoryInfo()
	must(t, err)
	if free == 0 || free > total {
		t.Errorf("%d of %d bytes free", free, total)
	}
	const n = 1 << 20
	p := get(c.Alloc(n))(t)
	want := pattern(n, 1)
	must(t, c.WriteTo(p, want))
	holds(t, c, p, want)
	holds(t, c, p+4097, want[4097:5000])
	must(t, c.ReadFrom(nil, p))
	info := get(c.Address(p + 5))(t)
	if !info.Device || info.Index != c.Device().Index || info.Base != p || info.Len != n || !info.LegacyIPC {
		t.Errorf("address %+v, want %#x", info, uint64(p))
	}
	if info := get(c.Address(gpu.Ptr(0x1000)))(t); info.Device || info.Index != -1 {
		t.Errorf("foreign address %+v", info)
	}
	must(t, c.Free(p))
	if _, err := c.Alloc(int(total) * 2); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("twice the memory: %v", err)
	}
	if err := c.Free(gpu.Ptr(0x123)); err == nil {
		t.Error("a pointer of nobody was freed")
	}
}

// What is left when a hold is closed is freed, while another hold goes on.
func (s suite) closeFrees(t *testing.T) {
	other := s.open(t)
	before, _, err := other.MemoryInfo()
	must(t, err)
	c := get(s.Driver.Open(other.Device().Index))(t)
	const n = 512 << 20
	get(c.Alloc(n))(t)
	size := get(c.Granularity())(t)
	at := get(c.Reserve(size))(t)
	must(t, c.Map(at, size, get(c.Create(size, false))(t)))
	get(c.NewEvent())(t)
	get(c.NewStream())(t)
	if during, _, err := other.MemoryInfo(); err != nil || during > before-n {
		t.Errorf("%d bytes free before, %d after allocating %d: %v", before, during, n, err)
	}
	must(t, c.Close())
	must(t, c.Close())
	if after, _, err := other.MemoryInfo(); err != nil || after < before-n/2 {
		t.Errorf("%d bytes free before, %d at the end: %v", before, after, err)
	}
	if _, err := c.Alloc(1); !errors.Is(err, gpu.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := other.Do(func(in gpu.Context) error { return in.Close() }); err == nil {
		t.Error("a context was closed within Do")
	}
}

// Two allocations lie one after the other in one range.
func (s suite) mapTwo(t *testing.T) {
	c := s.open(t)
	size := get(c.Granularity())(t)
	at := get(c.Reserve(2 * size))(t)
	a, b := get(c.Create(size, true))(t), get(c.Create(size, true))(t)
	must(t, c.Map(at, size, a))
	must(t, c.Map(at+gpu.Ptr(size), size, b))
	want := pattern(2*size, 2)
	must(t, c.WriteTo(at, want[:size]))
	must(t, c.WriteTo(at+gpu.Ptr(size), want[size:]))
	holds(t, c, at+gpu.Ptr(size), want[size:])

	fd := get(c.Export(a))(t)
	again := get(c.Import(fd))(t)
	must(t, unix.Close(fd))
	second := get(c.Reserve(size))(t)
	must(t, c.Map(second, size, again))
	holds(t, c, second, want[:size])

	must(t, c.Unmap(second, size))
	must(t, c.Release(again))
	must(t, c.Unreserve(second, size))
	must(t, c.Unmap(at, size))
	must(t, c.Unmap(at+gpu.Ptr(size), size))
	must(t, c.Unreserve(at, 2*size))
	must(t, c.Release(a))
	must(t, c.Release(b))
	if err := c.Map(at, size, a); err == nil {
		t.Error("an allocation that was released was mapped")
	}
}

// A dma-buf covers the pages of what was asked for, wherever that lies.
func (s suite) dmaBuf(t *testing.T) {
	c := s.open(t)
	if has, err := s.Driver.Attribute(c.Device().Index, gpu.HasDMABuf); err != nil || has == 0 {
		t.Skipf("the device has no dma-buf: %v", err)
	}
	size := get(c.Granularity())(t)
	mapped := get(c.Reserve(2 * size))(t)
	must(t, c.Map(mapped, size, get(c.Create(size, true))(t)))
	must(t, c.Map(mapped+gpu.Ptr(size), size, get(c.Create(size, true))(t)))
	plain := get(c.Alloc(1 << 20))(t)
	page := os.Getpagesize()
	for _, r := range []struct {
		name string
		p    gpu.Ptr
		n    int
	}{
		{"plain", plain, 1 << 20},
		{"plain, one byte", plain, 1},
		{"plain, odd", plain + 4097, 5000},
		{"plain, across a page", plain + gpu.Ptr(page) - 1, 2},
		{"mapped", mapped, size},
		{"mapped, odd", mapped + 12345, 99},
		{"mapped, the end", mapped + gpu.Ptr(size) - 7, 7},
	} {
		before := descriptors(t)
		fd, off, err := c.DMABuf(r.p, r.n)
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
			continue
		}
		length, err := unix.Seek(fd, 0, 2)
		if err != nil || uint64(length) < off+uint64(r.n) || off%uint64(page) != uint64(r.p)%uint64(page) {
			t.Errorf("%s: %d bytes from %d in a buffer of %d: %v", r.name, r.n, off, length, err)
		}
		must(t, unix.Close(fd))
		if after := descriptors(t); after != before {
			t.Errorf("%s: %d descriptors before, %d after", r.name, before, after)
		}
	}
	fd, _, err := c.DMABuf(mapped+gpu.Ptr(size)-4096, 8192)
	t.Logf("across two allocations: %d, %v", fd, err)
	if err == nil {
		must(t, unix.Close(fd))
	}
	if fd, _, err := c.DMABuf(gpu.Ptr(0x1000), 4096); err == nil {
		t.Errorf("memory of nobody gave descriptor %d", fd)
	}
}

func (s suite) hostMemory(t *testing.T) {
	c := s.open(t)
	const n = 1 << 20
	span := get(offheap.Map(n, offheap.Options{}))(t)
	defer span.Release()
	p := get(c.RegisterHost(uintptr(span.Addr()), n))(t)
	if _, err := c.RegisterHost(uintptr(span.Addr()), n); err == nil {
		t.Error("memory was registered twice")
	}
	want := pattern(n, 3)
	copy(span.Bytes(), want)
	d := get(c.Alloc(n))(t)
	line := get(c.NewStream())(t)
	must(t, c.Copy(d, p, n, line))
	must(t, c.Fill(d, 0x5a, 100, line))
	must(t, c.Copy(p, d, 200, line))
	must(t, c.Synchronize(line))
	for i, b := range span.Bytes()[:100] {
		if b != 0x5a {
			t.Fatalf("byte %d is %#x", i, b)
		}
	}
	holds(t, c, d+100, want[100:])
	must(t, c.UnregisterHost(uintptr(span.Addr())))

	size := get(c.Granularity())(t)
	node := get(s.Driver.Attribute(c.Device().Index, gpu.HostNUMANode))(t)
	a, err := c.CreateHost(size, node)
	must(t, err)
	at := get(c.Reserve(size))(t)
	must(t, c.Map(at, size, a))
	must(t, c.WriteTo(at, want[:1000]))
	must(t, c.Copy(d, at, 1000, line))
	must(t, c.Synchronize(line))
	holds(t, c, d, want[:1000])
}

// Any number of goroutines use one hold, on whatever threads they are.
func (s suite) manyGoroutines(t *testing.T) {
	c := s.open(t)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			p, err := c.Alloc(64 << 10)
			if err != nil {
				t.Error(err)
				return
			}
			want := pattern(64<<10, byte(i))
			for range 20 {
				if err := c.Do(func(c gpu.Context) error { return errors.Join(c.WriteTo(p, want[:100]), c.WriteTo(p+100, want[100:])) }); err != nil {
					t.Error(err)
				}
				holds(t, c, p, want)
			}
			if err := c.Free(p); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

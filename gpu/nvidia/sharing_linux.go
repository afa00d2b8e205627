package nvidia

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"

	"github.com/purerdma/purerdma/gpu"
)

const posixFD = 1 // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

func (c calls) Export(a gpu.Allocation) (fd int, err error) {
	err = c.run(func(f *frame) error {
		w := f.word32()
		err := c.l.call(cuMemExportToShareableHandle, c.info.Index, "", w.addr, uintptr(a), posixFD, 0)
		fd = int(w.get())
		return err
	})
	if err != nil {
		return -1, err
	}
	return fd, nil
}

func (c calls) Import(fd int) (a gpu.Allocation, err error) {
	err = c.run(func(f *frame) error {
		w := f.word64()
		err := c.l.call(cuMemImportFromShareableHandle, c.info.Index, fmt.Sprintf("descriptor %d", fd), w.addr, uintptr(fd), posixFD)
		a = gpu.Allocation(w.get())
		return err
	})
	if err == nil {
		c.made.add(allocation, uint64(a), func(c calls) error { return c.Release(a) })
	}
	return a, err
}

func (c calls) IPCHandle(p gpu.Ptr) (h gpu.IPCHandle, err error) {
	err = c.run(func(f *frame) error {
		addr, room := f.room(len(h))
		err := c.l.call(cuIpcGetMemHandle, c.info.Index, "", addr, uintptr(p))
		copy(h[:], room)
		return err
	})
	return h, err
}

func (c calls) OpenIPC(h gpu.IPCHandle) (p gpu.Ptr, err error) {
	err = c.run(func(f *frame) error {
		w := f.word64()
		err := c.l.call(cuIpcOpenMemHandle, c.info.Index, "", openIPCArguments(f, w.addr, h)...)
		p = gpu.Ptr(w.get())
		return err
	})
	if err == nil {
		c.made.add(imported, uint64(p), func(c calls) error { return c.CloseIPC(p) })
	}
	return p, err
}

// openIPCArguments lays out (pointer, handle by value, flags) as C does: on amd64 a
// structure of 64 bytes goes onto the stack, behind what does not fit the six
// registers; on arm64 its address takes its place.
func openIPCArguments(f *frame, out uintptr, h gpu.IPCHandle) []uintptr {
	const lazyPeerAccess = 1
	if runtime.GOARCH == "arm64" {
		return []uintptr{out, f.put(h[:]), lazyPeerAccess}
	}
	args := []uintptr{out, lazyPeerAccess, 0, 0, 0, 0}
	for i := 0; i < len(h); i += 8 {
		args = append(args, uintptr(binary.NativeEndian.Uint64(h[i:])))
	}
	return args
}

func (c calls) CloseIPC(p gpu.Ptr) error {
	c.made.drop(imported, uint64(p))
	return c.call(cuIpcCloseMemHandle, "", uintptr(p))
}

// DMABuf widens the range to whole pages of the host, which the driver asks for.
func (c calls) DMABuf(p gpu.Ptr, n int) (fd int, offset uint64, err error) {
	const dmaBufFD = 1 // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
	page := uint64(os.Getpagesize())
	offset = uint64(p) & (page - 1)
	size := (offset + uint64(n) + page - 1) &^ (page - 1)
	err = c.run(func(f *frame) error {
		w := f.word32()
		err := c.l.call(cuMemGetHandleForAddressRange, c.info.Index, fmt.Sprintf("%d bytes at %#x", n, uint64(p)), w.addr,
			uintptr(uint64(p)-offset), uintptr(size), dmaBufFD, 0)
		fd = int(w.get())
		return err
	})
	if err != nil {
		return -1, 0, err
	}
	return fd, offset, nil
}

func (c calls) EnablePeer(peer gpu.Context) error {
	other, ok := peer.(calls)
	if !ok {
		return &gpu.Error{Call: names[cuCtxEnablePeerAccess], Device: c.info.Index, Detail: "the peer is another driver's"}
	}
	err := c.call(cuCtxEnablePeerAccess, fmt.Sprintf("peer GPU %d", other.info.Index), other.handle, 0)
	if has(err, peerAlreadyEnabled) {
		return nil
	}
	return err
}

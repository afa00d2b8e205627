package gputest

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/gpu"
)

func (c *context) Export(a gpu.Allocation) (int, error) {
	if err := c.enter("Export"); err != nil {
		return -1, err
	}
	ph, err := c.physical("Export", a)
	if err != nil {
		return -1, err
	}
	return duplicate(int(ph.file.Fd()))
}

func duplicate(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	return n, os.NewSyscallError("fcntl", err)
}

func (c *context) Import(fd int) (gpu.Allocation, error) {
	if err := c.enter("Import"); err != nil {
		return 0, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size == 0 || st.Size%granularity != 0 {
		return 0, c.invalid("Import", detail("descriptor %d is no device memory", fd))
	}
	own, err := duplicate(fd)
	if err != nil {
		return 0, err
	}
	return c.keepPhysical(&physical{os.NewFile(uintptr(own), "imported memory"), int(st.Size), c.info.Index}), nil
}

// A legacy handle is the process, its descriptor and the size.
func (c *context) IPCHandle(p gpu.Ptr) (h gpu.IPCHandle, err error) {
	if err := c.enter("IPCHandle"); err != nil {
		return h, err
	}
	sp, ok := c.d.space.find(uint64(p))
	if !ok || !sp.whole {
		return h, c.invalid("IPCHandle", detail("%#x is not from Alloc", uint64(p)))
	}
	for i, v := range []uint64{uint64(os.Getpid()), uint64(sp.file.Fd()), uint64(len(sp.bytes))} {
		binary.NativeEndian.PutUint64(h[8*i:], v)
	}
	return h, nil
}

func (c *context) OpenIPC(h gpu.IPCHandle) (gpu.Ptr, error) {
	if err := c.enter("OpenIPC"); err != nil {
		return 0, err
	}
	word := func(i int) int { return int(binary.NativeEndian.Uint64(h[8*i:])) }
	if word(0) == os.Getpid() {
		return 0, &gpu.Error{Call: "OpenIPC", Name: "INVALID_CONTEXT", Code: 201, Device: c.info.Index, Detail: "this process exported it"}
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", word(0), word(1)), os.O_RDWR, 0)
	if err != nil {
		return 0, c.invalid("OpenIPC", err.Error())
	}
	defer f.Close()
	b, err := mapFile(f, word(2))
	if err != nil {
		return 0, err
	}
	at := c.d.space.reserve(len(b))
	c.d.space.put(span{at: at, bytes: b, of: c.info.Index})
	c.keep("imports", at, func(*context) {
		if sp, ok := c.d.space.take(at); ok {
			_ = unix.Munmap(sp.bytes)
		}
	})
	return gpu.Ptr(at), nil
}

func (c *context) CloseIPC(p gpu.Ptr) error {
	if err := c.enter("CloseIPC"); err != nil {
		return err
	}
	return c.free("CloseIPC", "imports", uint64(p))
}

func (c *context) DMABuf(p gpu.Ptr, n int) (fd int, offset uint64, err error) {
	if err := c.enter("DMABuf"); err != nil {
		return -1, 0, err
	}
	if c.d.attribute(gpu.HasDMABuf) == 0 {
		return -1, 0, &gpu.Error{Call: "DMABuf", Missing: true, Device: c.info.Index}
	}
	sp, ok := c.d.space.find(uint64(p))
	if !ok || sp.of < 0 || uint64(p)-sp.at+uint64(n) > uint64(len(sp.bytes)) {
		return -1, 0, c.invalid("DMABuf", detail("%d bytes at %#x", n, uint64(p)))
	}
	if sp.file == nil {
		return -1, 0, c.invalid("DMABuf", detail("%#x was imported", uint64(p)))
	}
	if c.d.config.OpaqueDMABuf {
		fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
		return fd, uint64(p) - sp.at, os.NewSyscallError("eventfd2", err)
	}
	fd, err = duplicate(int(sp.file.Fd()))
	return fd, uint64(p) - sp.at, err
}

func (c *context) EnablePeer(peer gpu.Context) error {
	if err := c.enter("EnablePeer"); err != nil {
		return err
	}
	can, err := c.d.CanAccessPeer(c.info.Index, peer.Device().Index)
	if err == nil && !can {
		err = &gpu.Error{Call: "EnablePeer", Name: "PEER_ACCESS_UNSUPPORTED", Code: 217, Device: c.info.Index}
	}
	return err
}

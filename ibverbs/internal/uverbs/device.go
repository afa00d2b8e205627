package uverbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/offheap"
)

// Device is an open uverbs file.
type Device struct {
	k    Kernel
	node Node
	fd   int

	compVectors int
	coreSupport uint64
	async       *AsyncEvents // the default receiver of events

	// noRegMR is set when the kernel turned out not to have the method REG_MR.
	noRegMR atomic.Bool

	mu     sync.Mutex
	closed bool
	free   []*frame
}

// Open opens a node, checks that it still is the device that was listed, and
// that the kernel has verbs by ioctl. The next call is GetContext.
func Open(k Kernel, n Node) (*Device, error) {
	fd, dev, err := k.Open(n.Path)
	if err != nil {
		return nil, gone(err)
	}
	d := &Device{k: k, node: n, fd: fd}
	if n.Dev != 0 && dev != n.Dev {
		err = &ChangedError{Path: n.Path, Want: n.Dev, Got: dev}
	} else {
		err = d.probe()
	}
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// probe asks for the attributes of the device without giving them room. A
// kernel with the ioctl answers ENOSPC before it looks at anything else.
func (d *Device) probe() error {
	f, err := d.frame(uapi.ObjectDevice, uapi.MethodInvokeWrite)
	if err != nil {
		return err
	}
	defer d.put(f)
	f.constant(uapi.AttrWriteCmd, uapi.CmdQueryDevice)
	switch err = f.do(d.k, d.fd); err {
	case syscall.ENOSPC:
		return nil
	case syscall.EINVAL:
		return fmt.Errorf("driver id %d is not that of %s: %w", d.node.DriverID, d.node.Path, err)
	case syscall.EPROTONOSUPPORT, syscall.ENOTTY, syscall.ENOSYS:
		return noIoctl(err)
	case nil:
		return noIoctl(errors.New("the probe was not refused"))
	}
	return gone(err)
}

func noIoctl(err error) error {
	return &driver.NotSupportedError{Feature: FeatureIoctl, By: driver.LacksKernel, Since: sinceIoctl, Err: err}
}

// Close closes the file, and with it every object that is left. Rings that are
// still mapped and event files that are open keep their objects. A second Close
// is nil.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	var errs []error
	for _, f := range d.free {
		errs = append(errs, f.mem.Release())
	}
	d.free = nil
	return errors.Join(append(errs, d.k.Close(d.fd))...)
}

// GetContext makes the context of the file; it comes once and before all other
// commands. Drivers that have nothing to say give a zero UHW.
func (d *Device) GetContext(u UHW) error {
	f, err := d.frame(uapi.ObjectDevice, uapi.MethodGetContext)
	if err != nil {
		return err
	}
	defer d.put(f)
	vectors := f.out(uapi.AttrGetContextNumCompVectors, 4)
	support := f.out(uapi.AttrGetContextCoreSupport, 8)
	drv := f.uhw(u)
	if err := f.do(d.k, d.fd); err != nil {
		if err == syscall.EPROTONOSUPPORT {
			return noIoctl(err)
		}
		return gone(err)
	}
	n := f.u32(vectors)
	if n > maxCompVectors {
		return &ResponseError{"number of completion vectors", uint64(n)}
	}
	d.compVectors, d.coreSupport = int(max(n, 1)), f.u64(support)
	u.fill(f.bytes(drv))
	return nil
}

// maxCompVectors is far above the number of interrupts that a device has.
const maxCompVectors = 1 << 16

// MapRing maps a queue that a create command told of. The last Release of the
// Span unmaps it; that comes after the destroy of its object and before Close.
func (d *Device) MapRing(off uint64, size uint32) (offheap.Span, error) {
	if size == 0 || off > 1<<62 {
		return offheap.Span{}, &ResponseError{"ring offset", off}
	}
	return d.k.MapRing(d.fd, int64(off), int(size))
}

// Handles lists the objects of one kind (uapi.Object…) that the file has. It
// sees up to 1024.
func (d *Device) Handles(object uint16) ([]uint32, error) {
	const most = 1024
	f, err := d.frame(uapi.ObjectDevice, uapi.MethodInfoHandles)
	if err != nil {
		return nil, err
	}
	defer d.put(f)
	f.constant(uapi.AttrInfoObjectID, uint64(object))
	total := f.out(uapi.AttrInfoTotalHandles, 4)
	list := f.out(uapi.AttrInfoHandlesList, 4*most)
	if err := f.do(d.k, d.fd); err != nil {
		return nil, lacks(err, "listing of handles", "Linux 5.0")
	}
	n := f.u32(total)
	if n > most {
		return nil, &ResponseError{"number of handles", uint64(n)}
	}
	hs := make([]uint32, n)
	for i := range hs {
		hs[i] = f.u32(output{off: list.off + 4*i, len: 4})
	}
	return hs, nil
}

// write runs a command of the old write interface: req is copied in, resp, which
// may be nil, is filled.
func (d *Device) write(cmd uint32, req, resp []byte, u UHW) error {
	f, err := d.frame(uapi.ObjectDevice, uapi.MethodInvokeWrite)
	if err != nil {
		return err
	}
	defer d.put(f)
	f.in(uapi.AttrCoreIn, req)
	var out output
	if len(resp) > 0 {
		out = f.out(uapi.AttrCoreOut, len(resp))
	}
	f.constant(uapi.AttrWriteCmd, uint64(cmd))
	drv := f.uhw(u)
	if err := f.do(d.k, d.fd); err != nil {
		return err
	}
	copy(resp, f.bytes(out))
	u.fill(f.bytes(drv))
	return nil
}

// destroy runs a method whose only input is a handle; resp bytes come back.
func (d *Device) destroy(object, method, handleAttr uint16, h uint32, respAttr uint16, resp int) error {
	f, err := d.frame(object, method)
	if err != nil {
		return err
	}
	defer d.put(f)
	f.handle(handleAttr, h)
	if resp > 0 {
		f.out(respAttr, resp)
	}
	return busy(f.do(d.k, d.fd))
}

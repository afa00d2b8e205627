package uverbs

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// Handles of objects, unique within their kind and file.
type (
	PDHandle  uint32
	MRHandle  uint32
	CQHandle  uint32
	QPHandle  uint32
	SRQHandle uint32
	AHHandle  uint32
	MWHandle  uint32
)

// MR is a registration as the kernel made it.
type MR struct {
	Handle     MRHandle
	LKey, RKey uint32
}

// AllocPD allocates a protection domain.
func (d *Device) AllocPD(u UHW) (PDHandle, error) {
	var req uapi.AllocPD
	var resp uapi.AllocPDResp
	if err := d.write(uapi.CmdAllocPD, bytesOf(&req), bytesOf(&resp), u); err != nil {
		return 0, gone(err)
	}
	return PDHandle(resp.PDHandle), nil
}

// DeallocPD deallocates it. ErrBusy while it has objects.
func (d *Device) DeallocPD(h PDHandle) error {
	return d.destroy(uapi.ObjectPD, uapi.MethodPDDestroy, uapi.AttrDestroyPDHandle, uint32(h), 0, 0)
}

// RegMR registers length bytes at addr, seen by the device at iova. The memory
// stays pinned until DeregMR, and has to stay mapped. ENOMEM mostly means
// RLIMIT_MEMLOCK.
//
// Optional access flags (RelaxedOrdering) are dropped where the kernel says that
// it would not take them from a device without them.
func (d *Device) RegMR(pd PDHandle, addr, length, iova uint64, a driver.Access, u UHW) (MR, error) {
	if d.coreSupport&uapi.CoreSupportOptionalMRAccess == 0 {
		a &^= 2*uapi.AccessOptionalLast - uapi.AccessOptionalFirst
	}
	if u.In == nil && u.Out == nil && !d.noRegMR.Load() {
		mr, err := d.regMR(pd, addr, length, iova, a)
		if err != syscall.EPROTONOSUPPORT {
			return mr, lacks(err, "memory registration", "")
		}
		d.noRegMR.Store(true)
	}
	req := uapi.RegMR{Start: addr, Length: length, HCAVA: iova, PDHandle: uint32(pd), AccessFlags: uint32(a)}
	var resp uapi.RegMRResp
	if err := d.write(uapi.CmdRegMR, bytesOf(&req), bytesOf(&resp), u); err != nil {
		return MR{}, lacks(err, "memory registration", "")
	}
	return MR{Handle: MRHandle(resp.MRHandle), LKey: resp.LKey, RKey: resp.RKey}, nil
}

// regMR is the method of its own that newer kernels have.
func (d *Device) regMR(pd PDHandle, addr, length, iova uint64, a driver.Access) (MR, error) {
	f, err := d.frame(uapi.ObjectMR, uapi.MethodRegMR)
	if err != nil {
		return MR{}, err
	}
	defer d.put(f)
	h := f.created(uapi.AttrRegMRHandle)
	f.handle(uapi.AttrRegMRPDHandle, uint32(pd))
	f.in64(uapi.AttrRegMRIOVA, iova)
	f.in64(uapi.AttrRegMRAddr, addr)
	f.in64(uapi.AttrRegMRLength, length)
	f.in32(uapi.AttrRegMRAccessFlags, uint32(a))
	lkey := f.out(uapi.AttrRegMRRespLKey, 4)
	rkey := f.out(uapi.AttrRegMRRespRKey, 4)
	return d.newMR(f, h, lkey, rkey)
}

// RegDMABufMR registers a range of a dma-buf, whose descriptor is borrowed for
// the call.
func (d *Device) RegDMABufMR(pd PDHandle, b driver.DMABuf, a driver.Access) (MR, error) {
	f, err := d.frame(uapi.ObjectMR, uapi.MethodRegDMABufMR)
	if err != nil {
		return MR{}, err
	}
	defer d.put(f)
	h := f.created(uapi.AttrRegDMABufMRHandle)
	f.handle(uapi.AttrRegDMABufMRPDHandle, uint32(pd))
	f.in64(uapi.AttrRegDMABufMROffset, b.Offset)
	f.in64(uapi.AttrRegDMABufMRLength, b.Length)
	f.in64(uapi.AttrRegDMABufMRIOVA, b.IOVA)
	f.in32(uapi.AttrRegDMABufMRFD, uint32(b.FD))
	f.in32(uapi.AttrRegDMABufMRAccessFlags, uint32(a))
	lkey := f.out(uapi.AttrRegDMABufMRRespLKey, 4)
	rkey := f.out(uapi.AttrRegDMABufMRRespRKey, 4)
	mr, err := d.newMR(f, h, lkey, rkey)
	return mr, lacks(err, driver.FeatureDMABuf, "Linux 5.12")
}

func (d *Device) newMR(f *frame, h, lkey, rkey output) (MR, error) {
	if err := f.do(d.k, d.fd); err != nil {
		return MR{}, err
	}
	handle, err := f.newHandle(h)
	if err != nil {
		return MR{}, err
	}
	return MR{Handle: MRHandle(handle), LKey: f.u32(lkey), RKey: f.u32(rkey)}, nil
}

// Rereg is what ReregMR changes: what is marked.
type Rereg struct {
	SetPD     bool
	PD        PDHandle
	SetMemory bool
	Addr      uint64
	Length    uint64
	IOVA      uint64
	SetAccess bool
	Access    driver.Access
}

// ReregMR changes a registration, whose keys may be others afterwards. If it fails,
// the registration is as it was, unless it is EFAULT or ENOMEM of a driver that gave
// the old one up: then it is of no use.
func (d *Device) ReregMR(h MRHandle, c Rereg) (MR, error) {
	req := uapi.ReregMR{MRHandle: uint32(h)}
	if c.SetPD {
		req.Flags, req.PDHandle = req.Flags|uapi.ReregPD, uint32(c.PD)
	}
	if c.SetMemory {
		req.Flags, req.Start, req.Length, req.HCAVA = req.Flags|uapi.ReregTranslation, c.Addr, c.Length, c.IOVA
	}
	if c.SetAccess {
		req.Flags, req.AccessFlags = req.Flags|uapi.ReregAccess, uint32(c.Access)
	}
	return d.reregMR(req)
}

func (d *Device) reregMR(req uapi.ReregMR) (MR, error) {
	var resp uapi.ReregMRResp
	if err := d.write(uapi.CmdReregMR, bytesOf(&req), bytesOf(&resp), UHW{}); err != nil {
		return MR{}, lacks(err, driver.FeatureReregMR, "")
	}
	return MR{Handle: MRHandle(req.MRHandle), LKey: resp.LKey, RKey: resp.RKey}, nil
}

// ProbeReregMR asks for a change of nothing, which a kernel and device that have
// the command refuse with another errno than those that do not.
func (d *Device) ProbeReregMR() error {
	_, err := d.reregMR(uapi.ReregMR{})
	return onlyLacks(err)
}

// DeregMR ends a registration. It returns when no access is in progress.
func (d *Device) DeregMR(h MRHandle) error {
	return d.destroy(uapi.ObjectMR, uapi.MethodMRDestroy, uapi.AttrDestroyMRHandle, uint32(h), 0, 0)
}

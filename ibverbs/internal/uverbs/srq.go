package uverbs

import (
	"math"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// SRQConfig is what CreateSRQ makes. Cookie is the user_handle, which comes back
// in events.
type SRQConfig struct {
	PD      PDHandle
	WR, SGE int
	Limit   int
	Cookie  uint64
}

// SRQ is a shared receive queue as the kernel made it, with the sizes that it
// says.
type SRQ struct {
	Handle  SRQHandle
	WR, SGE int
}

// CreateSRQ creates a shared receive queue. Events about it go to the
// AsyncEvents that was allocated first.
func (d *Device) CreateSRQ(c SRQConfig, u UHW) (SRQ, error) {
	if !fit(c.WR, c.SGE, c.Limit) {
		return SRQ{}, syscall.EINVAL
	}
	f, err := d.frame(uapi.ObjectSRQ, uapi.MethodSRQCreate)
	if err != nil {
		return SRQ{}, err
	}
	defer d.put(f)
	handle := f.created(uapi.AttrCreateSRQHandle)
	f.handle(uapi.AttrCreateSRQPDHandle, uint32(c.PD))
	f.in64(uapi.AttrCreateSRQUserHandle, c.Cookie)
	f.in32(uapi.AttrCreateSRQMaxWR, uint32(c.WR))
	f.in32(uapi.AttrCreateSRQMaxSGE, uint32(c.SGE))
	f.in32(uapi.AttrCreateSRQLimit, uint32(c.Limit))
	f.constant(uapi.AttrCreateSRQType, uapi.SRQTBasic)
	if d.async != nil {
		f.file(uapi.AttrCreateSRQEventFD, d.async.fd)
	}
	wr := f.out(uapi.AttrCreateSRQRespMaxWR, 4)
	sge := f.out(uapi.AttrCreateSRQRespMaxSGE, 4)
	drv := f.uhw(u)
	if err := f.do(d.k, d.fd); err != nil {
		return SRQ{}, lacks(err, driver.FeatureSRQ, sinceIoctl)
	}
	h, err := f.newHandle(handle)
	if err != nil {
		return SRQ{}, err
	}
	s := SRQ{Handle: SRQHandle(h), WR: int(f.u32(wr)), SGE: int(f.u32(sge))}
	switch {
	case !fit(s.WR) || s.WR < c.WR:
		err = &ResponseError{"number of receives of an SRQ", uint64(f.u32(wr))}
	case !fit(s.SGE) || s.SGE < c.SGE:
		err = &ResponseError{"number of scatter entries of an SRQ", uint64(f.u32(sge))}
	}
	if err != nil {
		_ = d.DestroySRQ(s.Handle)
		return SRQ{}, err
	}
	u.fill(f.bytes(drv))
	return s, nil
}

// fit says whether numbers have a place in a field of 32 bits, whose highest
// kernels take for a sign.
func fit(numbers ...int) bool {
	for _, n := range numbers {
		if n < 0 || n > math.MaxInt32 {
			return false
		}
	}
	return true
}

// DestroySRQ destroys it, with its events that nobody has read. ErrBusy while a
// QP uses it.
func (d *Device) DestroySRQ(h SRQHandle) error {
	return d.destroy(uapi.ObjectSRQ, uapi.MethodSRQDestroy, uapi.AttrDestroySRQHandle, uint32(h),
		uapi.AttrDestroySRQResp, sizeOf[uapi.DestroySRQResp]())
}

// ResizeSRQ makes room for wr receives.
func (d *Device) ResizeSRQ(h SRQHandle, wr int, u UHW) error {
	return d.modifySRQ(h, wr, uapi.SRQMaxWR, u, driver.FeatureResizeSRQ)
}

// SetSRQLimit arms an event for when fewer than limit receives are left; 0 arms
// none.
func (d *Device) SetSRQLimit(h SRQHandle, limit int, u UHW) error {
	return d.modifySRQ(h, limit, uapi.SRQLimit, u, "SRQ limit")
}

func (d *Device) modifySRQ(h SRQHandle, n int, mask uint32, u UHW, f driver.Feature) error {
	if !fit(n) {
		return syscall.EINVAL
	}
	req := uapi.ModifySRQ{SRQHandle: uint32(h), AttrMask: mask}
	if mask == uapi.SRQMaxWR {
		req.MaxWR = uint32(n)
	} else {
		req.SRQLimit = uint32(n)
	}
	return lacks(d.write(uapi.CmdModifySRQ, bytesOf(&req), nil, u), f, "")
}

// QuerySRQ is the sizes, and the limit that is armed.
func (d *Device) QuerySRQ(h SRQHandle) (driver.SRQAttr, error) {
	req := uapi.QuerySRQ{SRQHandle: uint32(h)}
	var r uapi.QuerySRQResp
	err := d.write(uapi.CmdQuerySRQ, bytesOf(&req), bytesOf(&r), UHW{})
	if err != nil {
		return driver.SRQAttr{}, lacks(err, driver.FeatureSRQ, "")
	}
	a := driver.SRQAttr{WR: int(r.MaxWR), SGE: int(r.MaxSGE), Limit: int(r.SRQLimit)}
	switch {
	case !fit(a.WR) || a.WR == 0:
		err = &ResponseError{"number of receives of an SRQ", uint64(r.MaxWR)}
	case !fit(a.SGE):
		err = &ResponseError{"number of scatter entries of an SRQ", uint64(r.MaxSGE)}
	case !fit(a.Limit):
		err = &ResponseError{"limit of an SRQ", uint64(r.SRQLimit)}
	}
	return a, err
}

package uverbs

import (
	"math"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// CreateAH makes an address handle. It may sit in the kernel for a second while
// an address is resolved, which then fails with ETIMEDOUT.
func (d *Device) CreateAH(pd PDHandle, a *driver.AHAttr, u UHW) (AHHandle, error) {
	if a.SGIDIndex < 0 || a.SGIDIndex > math.MaxUint8 || a.Port < 1 || a.Port > math.MaxUint8 {
		return 0, syscall.EINVAL
	}
	req := uapi.CreateAH{PDHandle: uint32(pd), Attr: uapi.AHAttr{
		GRH: uapi.GlobalRoute{
			DGID:         a.DGID,
			FlowLabel:    a.FlowLabel,
			SGIDIndex:    uint8(a.SGIDIndex),
			HopLimit:     a.HopLimit,
			TrafficClass: a.TrafficClass,
		},
		DLID:        a.DLID,
		SL:          a.SL,
		SrcPathBits: a.SrcPathBits,
		StaticRate:  a.StaticRate,
		PortNum:     uint8(a.Port),
	}}
	if a.IsGlobal {
		req.Attr.IsGlobal = 1
	}
	var resp uapi.CreateAHResp
	if err := d.write(uapi.CmdCreateAH, bytesOf(&req), bytesOf(&resp), u); err != nil {
		return 0, lacks(err, driver.FeatureAH, "")
	}
	return AHHandle(resp.AHHandle), nil
}

// DestroyAH destroys it. Requests that use it must be done.
func (d *Device) DestroyAH(h AHHandle) error {
	return d.destroy(uapi.ObjectAH, uapi.MethodAHDestroy, uapi.AttrDestroyAHHandle, uint32(h), 0, 0)
}

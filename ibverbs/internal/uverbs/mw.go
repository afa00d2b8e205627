package uverbs

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// MW is a memory window as the kernel made it.
type MW struct {
	Handle MWHandle
	RKey   uint32
}

// AllocMW allocates a memory window of type 2.
func (d *Device) AllocMW(pd PDHandle, u UHW) (MW, error) {
	req := uapi.AllocMW{PDHandle: uint32(pd), MWType: uapi.MWType2}
	var resp uapi.AllocMWResp
	if err := d.write(uapi.CmdAllocMW, bytesOf(&req), bytesOf(&resp), u); err != nil {
		return MW{}, lacks(err, driver.FeatureMW2, "")
	}
	w := MW{Handle: MWHandle(resp.MWHandle), RKey: resp.RKey}
	if w.RKey>>8 == 0 { // the index, of which 0 is for special keys
		_ = d.DeallocMW(w.Handle)
		return MW{}, &ResponseError{"key of a memory window", uint64(w.RKey)}
	}
	return w, nil
}

// DeallocMW deallocates it, bound or not.
func (d *Device) DeallocMW(h MWHandle) error {
	return d.destroy(uapi.ObjectMW, uapi.MethodMWDestroy, uapi.AttrDestroyMWHandle, uint32(h), 0, 0)
}

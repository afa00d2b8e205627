package uverbs

import (
	"math"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// CQConfig is what CreateCQ makes. Cookie is the user_handle, which comes back
// in events. A nil Channel means no completion events.
type CQConfig struct {
	Depth   int
	Vector  int
	Cookie  uint64
	Channel *CompChannel
}

// CreateCQ creates a completion queue; depth is how many entries the kernel made
// room for, never less than asked for. Events about the CQ go to the AsyncEvents
// that was allocated first.
func (d *Device) CreateCQ(c CQConfig, u UHW) (h CQHandle, depth int, err error) {
	if c.Depth < 0 || c.Depth > math.MaxInt32 || c.Vector < 0 || c.Vector >= d.compVectors {
		return 0, 0, syscall.EINVAL
	}
	f, err := d.frame(uapi.ObjectCQ, uapi.MethodCQCreate)
	if err != nil {
		return 0, 0, err
	}
	defer d.put(f)
	handle := f.created(uapi.AttrCreateCQHandle)
	f.in32(uapi.AttrCreateCQCQE, uint32(c.Depth))
	f.in64(uapi.AttrCreateCQUserHandle, c.Cookie)
	if c.Channel != nil {
		f.file(uapi.AttrCreateCQCompChannel, c.Channel.fd)
	}
	f.in32(uapi.AttrCreateCQCompVector, uint32(c.Vector))
	resp := f.out(uapi.AttrCreateCQRespCQE, 4)
	if d.async != nil {
		f.file(uapi.AttrCreateCQEventFD, d.async.fd)
	}
	drv := f.uhw(u)
	if err := f.do(d.k, d.fd); err != nil {
		return 0, 0, lacks(err, FeatureIoctl, sinceIoctl)
	}
	n, err := f.newHandle(handle)
	if err != nil {
		return 0, 0, err
	}
	h = CQHandle(n)
	if made := f.u32(resp); made < uint32(c.Depth) || made > math.MaxInt32 {
		_ = d.DestroyCQ(h)
		return 0, 0, &ResponseError{"CQ depth", uint64(made)}
	}
	u.fill(f.bytes(drv))
	return h, int(f.u32(resp)), nil
}

// DestroyCQ destroys it, with its events that nobody has read. ErrBusy while a
// QP uses it.
func (d *Device) DestroyCQ(h CQHandle) error {
	return d.destroy(uapi.ObjectCQ, uapi.MethodCQDestroy, uapi.AttrDestroyCQHandle, uint32(h),
		uapi.AttrDestroyCQResp, sizeOf[uapi.DestroyCQResp]())
}

// ResizeCQ makes room for depth completions and keeps those that are there; the
// new depth is never less. EINVAL if more are there.
func (d *Device) ResizeCQ(h CQHandle, depth int, u UHW) (int, error) {
	if !fit(depth) {
		return 0, syscall.EINVAL
	}
	req := uapi.ResizeCQ{CQHandle: uint32(h), CQE: uint32(depth)}
	var resp uapi.ResizeCQResp
	if err := d.write(uapi.CmdResizeCQ, bytesOf(&req), bytesOf(&resp), u); err != nil {
		return 0, lacks(err, driver.FeatureResizeCQ, "")
	}
	if !fit(int(resp.CQE)) || int(resp.CQE) < depth {
		return 0, &ResponseError{"CQ depth", uint64(resp.CQE)}
	}
	return int(resp.CQE), nil
}

// ModerateCQ makes events wait for count completions or usec microseconds.
func (d *Device) ModerateCQ(h CQHandle, count, usec int) error {
	if count < 0 || count > math.MaxUint16 || usec < 0 || usec > math.MaxUint16 {
		return syscall.EINVAL
	}
	return d.modifyCQ(uapi.ModifyCQ{CQHandle: uint32(h), AttrMask: uapi.CQModerate, CQCount: uint16(count), CQPeriod: uint16(usec)})
}

func (d *Device) modifyCQ(req uapi.ModifyCQ) error {
	return lacks(d.write(uapi.CmdModifyCQ|uapi.CmdFlagExtended, bytesOf(&req), nil, UHW{}), driver.FeatureModerateCQ, "")
}

// ProbeModerateCQ changes nothing of no CQ, as ProbeReregMR does.
func (d *Device) ProbeModerateCQ() error { return onlyLacks(d.modifyCQ(uapi.ModifyCQ{})) }

// ReqNotifyCQ arms the CQ for one event, at the next completion or the next
// solicited or failed one. It does not tell of completions that are there
// already: poll after it.
func (d *Device) ReqNotifyCQ(h CQHandle, solicitedOnly bool) error {
	req := uapi.ReqNotifyCQ{CQHandle: uint32(h)}
	if solicitedOnly {
		req.SolicitedOnly = 1
	}
	return gone(d.write(uapi.CmdReqNotifyCQ, bytesOf(&req), nil, UHW{}))
}

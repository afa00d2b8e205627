package uverbs

import (
	"math"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// QPConfig is what CreateQP makes. Cookie is the user_handle, which comes back
// in events. A nil SRQ means a receive queue of its own.
type QPConfig struct {
	PD             PDHandle
	SendCQ, RecvCQ CQHandle
	SRQ            *SRQHandle
	Type           driver.QPType
	Cap            driver.QPCap
	SignalAll      bool
	Cookie         uint64
}

// QP is a queue pair as the kernel made it. Num has 24 bits. Cap is what the
// kernel says; a driver may find more room in the rings.
type QP struct {
	Handle QPHandle
	Num    uint32
	Cap    driver.QPCap
}

const maxQPN = 1<<24 - 1

// CreateQP creates a queue pair in state Reset.
func (d *Device) CreateQP(c QPConfig, u UHW) (QP, error) {
	limits, err := qpCap(c.Cap)
	if err != nil {
		return QP{}, err
	}
	f, err := d.frame(uapi.ObjectQP, uapi.MethodQPCreate)
	if err != nil {
		return QP{}, err
	}
	defer d.put(f)
	handle := f.created(uapi.AttrCreateQPHandle)
	f.handle(uapi.AttrCreateQPPDHandle, uint32(c.PD))
	if c.SRQ != nil {
		f.handle(uapi.AttrCreateQPSRQHandle, uint32(*c.SRQ))
	}
	f.handle(uapi.AttrCreateQPSendCQHandle, uint32(c.SendCQ))
	f.handle(uapi.AttrCreateQPRecvCQHandle, uint32(c.RecvCQ))
	f.in64(uapi.AttrCreateQPUserHandle, c.Cookie)
	f.in(uapi.AttrCreateQPCap, bytesOf(&limits))
	f.constant(uapi.AttrCreateQPType, uint64(c.Type))
	if c.SignalAll {
		f.in32(uapi.AttrCreateQPFlags, uapi.QPCreateSQSigAll)
	}
	if d.async != nil {
		f.file(uapi.AttrCreateQPEventFD, d.async.fd)
	}
	made := f.out(uapi.AttrCreateQPRespCap, sizeOf[uapi.QPCap]())
	num := f.out(uapi.AttrCreateQPRespQPNum, 4)
	drv := f.uhw(u)
	if err := f.do(d.k, d.fd); err != nil {
		return QP{}, lacks(err, FeatureIoctl, sinceIoctl)
	}
	h, err := f.newHandle(handle)
	if err != nil {
		return QP{}, err
	}
	copy(bytesOf(&limits), f.bytes(made))
	qp := QP{Handle: QPHandle(h), Num: f.u32(num)}
	if qp.Num > maxQPN {
		err = &ResponseError{"QP number", uint64(qp.Num)}
	} else {
		qp.Cap, err = driverCap(&limits)
	}
	if err != nil {
		_ = d.DestroyQP(qp.Handle)
		return QP{}, err
	}
	u.fill(f.bytes(drv))
	return qp, nil
}

// qpCap is EINVAL for what does not fit a kernel structure.
func qpCap(c driver.QPCap) (uapi.QPCap, error) {
	for _, n := range [...]int{c.SendWR, c.RecvWR, c.SendSGE, c.RecvSGE, c.Inline} {
		if n < 0 || n > math.MaxInt32 {
			return uapi.QPCap{}, syscall.EINVAL
		}
	}
	return uapi.QPCap{MaxSendWR: uint32(c.SendWR), MaxRecvWR: uint32(c.RecvWR),
		MaxSendSGE: uint32(c.SendSGE), MaxRecvSGE: uint32(c.RecvSGE), MaxInlineData: uint32(c.Inline)}, nil
}

func driverCap(c *uapi.QPCap) (driver.QPCap, error) {
	for _, n := range [...]uint32{c.MaxSendWR, c.MaxRecvWR, c.MaxSendSGE, c.MaxRecvSGE, c.MaxInlineData} {
		if n > math.MaxInt32 {
			return driver.QPCap{}, &ResponseError{"QP size", uint64(n)}
		}
	}
	return driver.QPCap{SendWR: int(c.MaxSendWR), RecvWR: int(c.MaxRecvWR),
		SendSGE: int(c.MaxSendSGE), RecvSGE: int(c.MaxRecvSGE), Inline: int(c.MaxInlineData)}, nil
}

// DestroyQP destroys it. Completions that were not polled stay in its CQs.
func (d *Device) DestroyQP(h QPHandle) error {
	return d.destroy(uapi.ObjectQP, uapi.MethodQPDestroy, uapi.AttrDestroyQPHandle, uint32(h),
		uapi.AttrDestroyQPResp, sizeOf[uapi.DestroyQPResp]())
}

// ModifyQP sets the attributes that mask names. It may sit in the kernel for a
// second while an address is resolved, which then fails with ETIMEDOUT.
func (d *Device) ModifyQP(h QPHandle, a *driver.QPAttr, mask driver.QPMask) error {
	req, err := modifyQP(a, mask)
	if err != nil {
		return err
	}
	req.QPHandle = uint32(h)
	return gone(d.write(uapi.CmdModifyQP, bytesOf(&req), nil, UHW{}))
}

// ModifyQPWith is ModifyQP with something for the driver.
func (d *Device) ModifyQPWith(h QPHandle, a *driver.QPAttr, mask driver.QPMask, u UHW) error {
	base, err := modifyQP(a, mask)
	if err != nil {
		return err
	}
	base.QPHandle = uint32(h)
	req := uapi.ExModifyQP{Base: base}
	var resp uapi.ExModifyQPResp
	return gone(d.write(uapi.CmdModifyQP|uapi.CmdFlagExtended, bytesOf(&req), bytesOf(&resp), u))
}

// modifyQP fills the request. EINVAL is for what the structure has no room for,
// or this module does not send (alternate paths, rate limits).
func modifyQP(a *driver.QPAttr, mask driver.QPMask) (uapi.ModifyQP, error) {
	const known = driver.QPDestQPN<<1 - 1
	const not = driver.QPAltPath | driver.QPPathMigState | driver.QPCapMask
	if mask&^known != 0 || mask&not != 0 || a.Port < 0 || a.Port > math.MaxUint8 {
		return uapi.ModifyQP{}, syscall.EINVAL
	}
	req := uapi.ModifyQP{
		AttrMask:        uint32(mask),
		QKey:            a.QKey,
		RQPSN:           a.RQPSN,
		SQPSN:           a.SQPSN,
		DestQPNum:       a.DestQPN,
		QPAccessFlags:   uint32(a.Access),
		PKeyIndex:       a.PKeyIndex,
		QPState:         uint8(a.State),
		CurQPState:      uint8(a.CurState),
		PathMTU:         uint8(a.PathMTU),
		MaxRdAtomic:     a.MaxRdAtomic,
		MaxDestRdAtomic: a.MaxDestRdAtomic,
		MinRNRTimer:     a.MinRNRTimer,
		PortNum:         uint8(a.Port),
		Timeout:         a.Timeout,
		RetryCnt:        a.RetryCnt,
		RNRRetry:        a.RNRRetry,
	}
	if a.EnSQDNotify {
		req.EnSQDAsyncNotify = 1
	}
	if mask&driver.QPAV == 0 {
		return req, nil
	}
	var err error
	req.Dest, err = qpDest(&a.AH)
	return req, err
}

func qpDest(a *driver.AHAttr) (uapi.QPDest, error) {
	if a.SGIDIndex < 0 || a.SGIDIndex > math.MaxUint8 || a.Port < 1 || a.Port > math.MaxUint8 {
		return uapi.QPDest{}, syscall.EINVAL
	}
	q := uapi.QPDest{
		DGID:         a.DGID,
		FlowLabel:    a.FlowLabel,
		DLID:         a.DLID,
		SGIDIndex:    uint8(a.SGIDIndex),
		HopLimit:     a.HopLimit,
		TrafficClass: a.TrafficClass,
		SL:           a.SL,
		SrcPathBits:  a.SrcPathBits,
		StaticRate:   a.StaticRate,
		PortNum:      uint8(a.Port),
	}
	if a.IsGlobal {
		q.IsGlobal = 1
	}
	return q, nil
}

// QueryQP is the attributes of a QP. Not all devices fill all of them.
func (d *Device) QueryQP(h QPHandle, mask driver.QPMask) (driver.QPAttr, error) {
	req := uapi.QueryQP{QPHandle: uint32(h), AttrMask: uint32(mask)}
	var r uapi.QueryQPResp
	if err := d.write(uapi.CmdQueryQP, bytesOf(&req), bytesOf(&r), UHW{}); err != nil {
		return driver.QPAttr{}, gone(err)
	}
	sizes, err := driverCap(&uapi.QPCap{MaxSendWR: r.MaxSendWR, MaxRecvWR: r.MaxRecvWR,
		MaxSendSGE: r.MaxSendSGE, MaxRecvSGE: r.MaxRecvSGE, MaxInlineData: r.MaxInlineData})
	if err != nil {
		return driver.QPAttr{}, err
	}
	if r.QPState > uint8(driver.StateErr) {
		return driver.QPAttr{}, &ResponseError{"QP state", uint64(r.QPState)}
	}
	return driver.QPAttr{
		State:    driver.QPState(r.QPState),
		CurState: driver.QPState(r.CurQPState),
		PathMTU:  driver.MTU(r.PathMTU),
		QKey:     r.QKey,
		RQPSN:    r.RQPSN,
		SQPSN:    r.SQPSN,
		DestQPN:  r.DestQPNum,
		Access:   driver.Access(r.QPAccessFlags),
		Cap:      sizes,
		AH: driver.AHAttr{
			DGID:         r.Dest.DGID,
			SGIDIndex:    int(r.Dest.SGIDIndex),
			Port:         int(r.Dest.PortNum),
			FlowLabel:    r.Dest.FlowLabel,
			HopLimit:     r.Dest.HopLimit,
			TrafficClass: r.Dest.TrafficClass,
			SL:           r.Dest.SL,
			DLID:         r.Dest.DLID,
			SrcPathBits:  r.Dest.SrcPathBits,
			StaticRate:   r.Dest.StaticRate,
			IsGlobal:     r.Dest.IsGlobal != 0,
		},
		PKeyIndex:       r.PKeyIndex,
		SQDraining:      r.SQDraining != 0,
		MaxRdAtomic:     r.MaxRdAtomic,
		MaxDestRdAtomic: r.MaxDestRdAtomic,
		MinRNRTimer:     r.MinRNRTimer,
		Port:            int(r.PortNum),
		Timeout:         r.Timeout,
		RetryCnt:        r.RetryCnt,
		RNRRetry:        r.RNRRetry,
	}, nil
}

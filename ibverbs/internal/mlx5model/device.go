package mlx5model

import (
	"encoding/binary"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// What the adapter says of itself: a ConnectX-6 (device 0x101b of vendor 0x15b3).
const (
	vendorID    = 0x02c9
	partID      = 0x101b
	fwMajor     = 20
	fwMinor     = 31
	fwSub       = 1014
	nodeGUID    = 0x0c42a10300123456
	subnet      = 0xfe80000000000000
	lid         = 0x11
	maxQPWR     = 1 << 15
	maxSGE      = 30
	maxCQE      = 1<<22 - 1
	maxRdAtomic = 16
	compVectors = 2
	maxSQDesc   = 1024
	maxRQDesc   = 512
	maxMessage  = 1 << 30
	gidTable    = 8
	maxSRQWR    = 1<<15 - 1
	maxSRQSGE   = 31
	deviceMajor = 231
	deviceMinor = 192
	portActive  = 4
	mtu4096     = 5
)

// getContext answers GET_CONTEXT, once. The adapter's firmware has no user contexts for
// DEVX (log_max_uctx is 0), for which mlx5_ib says EINVAL. libmlx5 takes any error for that
// of an older kernel: it tries the two shorter forms that it knows, then all without DEVX.
func (c *call) getContext() error {
	b, err := c.in(uapi.AttrUHWIn)
	if err != nil {
		return err
	}
	req := structOf[uapi.MLX5AllocUContextReqV2](b)
	switch {
	case c.ready || len(b) < 16:
		return syscall.EINVAL
	case req.Flags&^1 != 0, req.CompMask != 0, req.Reserved0 != 0, req.Reserved1 != 0, req.Reserved2 != 0:
		return syscall.EOPNOTSUPP
	case req.NumLowLatencyBFRegs > (req.TotalNumBFRegs+3)&^3-1:
		return syscall.EINVAL
	case req.Flags != 0:
		return syscall.EINVAL
	case req.LibCaps&uapi.MLX5LibCapDynUAR == 0:
		c.m.logf("the model has dynamic UARs only")
		return syscall.EOPNOTSUPP
	}
	version := min(req.MaxCQEVersion, 1)
	if err := c.outs(map[uint16][]byte{
		uapi.AttrGetContextNumCompVectors: u32(compVectors),
		uapi.AttrGetContextCoreSupport:    u64(uapi.CoreSupportOptionalMRAccess),
		uapi.AttrUHWOut:                   c.m.config.uctx(version, c.room(uapi.AttrUHWOut)),
	}); err != nil {
		return err
	}
	c.ready, c.version = true, version
	return nil
}

// uctx is what a program is told of its context, if there is so much room.
func (c Config) uctx(version uint8, room int) []byte {
	r := uapi.MLX5AllocUContextResp{
		QPTabSize: 1 << 18, BFRegSize: mlx5prm.BlueFlameSize, CacheLineSize: 64, MaxSQDescSz: maxSQDesc, MaxRQDescSz: maxRQDesc,
		MaxSendWQEBB: maxQPWR, MaxRecvWR: maxQPWR, MaxSRQRecvWR: maxSRQWR, NumPorts: 1,
		CQEVersion: version, CompMask: uapi.MLX5RespMaskECE, CmdsSuppUHW: 3, LogUARSize: 12, NumUARsPerPage: 1,
	}
	if c.Ethernet {
		r.EthMinInline = inlineNone
	}
	r.ResponseLength = uint32(min(room, len(bytesOf(&r))))
	return bytesOf(&r)
}

// inlineNone says that no header of a raw packet has to be in the entry itself
// (MLX5_USER_INLINE_MODE_NONE).
const inlineNone = 1

func (c *call) asyncEvents() error {
	g := c.attrs[uapi.AttrAsyncEventAllocFDHandle]
	f, err := c.files.events(g.at+dataAt, 8)
	if err != nil {
		return err
	}
	if c.async == nil {
		c.async = f
	}
	c.channels = append(c.channels, f)
	return c.valid(g)
}

func deviceAttr() uapi.QueryDeviceResp {
	r := uapi.QueryDeviceResp{
		FWVer: fwMajor<<32 | fwMinor<<16 | fwSub, MaxMRSize: 1<<64 - 1, PageSizeCap: 1<<64 - pageSize, VendorID: vendorID, VendorPartID: partID,
		MaxQP: 1 << 17, MaxQPWR: maxQPWR, DeviceCapFlags: uapi.DeviceSRQResize | uapi.DeviceMemWindow | uapi.DeviceMemWindowType2B,
		MaxSGE: maxSGE, MaxSGERd: maxSGE, MaxCQ: 1 << 24, MaxCQE: maxCQE, MaxMR: 1 << 24, MaxPD: 1 << 23,
		MaxQPRdAtom: maxRdAtomic, MaxQPInitRdAtom: maxRdAtomic, MaxResRdAtom: maxRdAtomic << 17, AtomicCap: 1, MaxMW: 1 << 24,
		MaxMcastGrp: 1 << 21, MaxMcastQPAttach: 240, MaxTotalMcastQPAttach: 240 << 21, MaxAH: 1<<31 - 1,
		MaxSRQ: 1 << 23, MaxSRQWR: maxSRQWR, MaxSRQSGE: maxSRQSGE, MaxPKeys: 128, LocalCAAckDelay: 16, PhysPortCnt: 1,
	}
	binary.BigEndian.PutUint64(r.NodeGUIDBE[:], nodeGUID)
	binary.BigEndian.PutUint64(r.SysImageGUIDBE[:], nodeGUID)
	return r
}

func (c *call) queryDevice([]byte) ([]byte, error) {
	r := deviceAttr()
	return bytesOf(&r), nil
}

// exQueryDevice has nothing of the driver's own to say: no offload is modelled.
func (c *call) exQueryDevice([]byte) ([]byte, error) {
	base := deviceAttr()
	r := uapi.ExQueryDeviceResp{Base: base, DeviceCapFlagsEx: uint64(base.DeviceCapFlags), HCACoreClock: 156250,
		CQModerationCaps: uapi.CQModerationCaps{MaxCQModerationCount: maxModerationCount, MaxCQModerationPeriod: maxModerationPeriod}}
	r.ResponseLength = uint32(min(len(bytesOf(&r)), c.room(uapi.AttrCoreOut)))
	own := append(u32(0), u32(uint32(c.room(uapi.AttrUHWOut)))...)
	return bytesOf(&r), c.out(uapi.AttrUHWOut, own)
}

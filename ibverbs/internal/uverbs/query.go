package uverbs

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// QueryDevice is the limits of the device. Firmware is the three numbers that this
// command tells; the kernel's own text, where there is one, is better.
func (d *Device) QueryDevice() (driver.DeviceAttr, error) {
	var req uapi.ExQueryDevice
	var resp uapi.ExQueryDeviceResp
	err := d.write(uapi.CmdQueryDevice|uapi.CmdFlagExtended, bytesOf(&req), bytesOf(&resp), UHW{})
	if err == syscall.EPROTONOSUPPORT || err == syscall.EOPNOTSUPP {
		var req uapi.QueryDevice
		resp = uapi.ExQueryDeviceResp{}
		err = d.write(uapi.CmdQueryDevice, bytesOf(&req), bytesOf(&resp.Base), UHW{})
	} else if n := resp.ResponseLength; err == nil && int(n) < sizeOf[uapi.QueryDeviceResp]() {
		err = &ResponseError{"response length", uint64(n)}
	}
	if err != nil {
		return driver.DeviceAttr{}, gone(err)
	}
	r := &resp.Base
	a := driver.DeviceAttr{
		Firmware:     fmt.Sprintf("%d.%d.%d", uint16(r.FWVer>>32), uint16(r.FWVer>>16), uint16(r.FWVer)),
		NodeGUID:     binary.BigEndian.Uint64(r.NodeGUIDBE[:]),
		SysGUID:      binary.BigEndian.Uint64(r.SysImageGUIDBE[:]),
		VendorID:     r.VendorID,
		VendorPartID: r.VendorPartID,
		HWVersion:    r.HWVer,
		MaxMRSize:    r.MaxMRSize,
		PageSizes:    r.PageSizeCap,
		CapFlags:     uint64(r.DeviceCapFlags),
		AtomicCap:    count(r.AtomicCap),
		CompVectors:  d.compVectors,
		Ports:        int(r.PhysPortCnt),
		MaxPKeys:     int(r.MaxPKeys),

		MaxQP:           count(r.MaxQP),
		MaxQPWR:         count(r.MaxQPWR),
		MaxSGE:          count(r.MaxSGE),
		MaxSGERead:      count(r.MaxSGERd),
		MaxCQ:           count(r.MaxCQ),
		MaxCQE:          count(r.MaxCQE),
		MaxMR:           count(r.MaxMR),
		MaxPD:           count(r.MaxPD),
		MaxQPRdAtomic:   count(r.MaxQPRdAtom),
		MaxQPInitRdAtom: count(r.MaxQPInitRdAtom),
		MaxSRQ:          count(r.MaxSRQ),
		MaxSRQWR:        count(r.MaxSRQWR),
		MaxSRQSGE:       count(r.MaxSRQSGE),
		MaxMW:           count(r.MaxMW),
		MaxAH:           count(r.MaxAH),
		MaxMcastGrp:     count(r.MaxMcastGrp),

		MaxResRdAtomic:        count(r.MaxResRdAtom),
		MaxMcastQPAttach:      count(r.MaxMcastQPAttach),
		MaxTotalMcastQPAttach: count(r.MaxTotalMcastQPAttach),
		AckDelay:              int(r.LocalCAAckDelay),
		Obsolete: driver.ObsoleteLimits{
			MaxEERdAtomic: count(r.MaxEERdAtom), MaxEEInitRdAtomic: count(r.MaxEEInitRdAtom), MaxEE: count(r.MaxEE),
			MaxRDD: count(r.MaxRDD), MaxRawIPv6QP: count(r.MaxRawIPv6QP), MaxRawEthyQP: count(r.MaxRawEthyQP),
			MaxFMR: count(r.MaxFMR), MaxMapPerFMR: count(r.MaxMapPerFMR),
		},
	}
	if resp.ResponseLength >= uint32(unsafe.Offsetof(resp.RSSCaps)) {
		a.CapFlags |= resp.DeviceCapFlagsEx
	}
	a.Ext = extended(&resp)
	return a, nil
}

// extended is what follows the base, as far as the kernel has filled it in: what
// lies behind ResponseLength does not count.
func extended(resp *uapi.ExQueryDeviceResp) (x driver.ExtendedAttr) {
	b := bytesOf(resp)
	clear(b[min(len(b), int(resp.ResponseLength)):])
	x.ODP = driver.ODPCaps{General: resp.ODPCaps.GeneralCaps, RC: resp.ODPCaps.RCODPCaps, UC: resp.ODPCaps.UCODPCaps,
		UD: resp.ODPCaps.UDODPCaps, XRC: resp.XRCODPCaps}
	x.TimestampMask, x.ClockKHz = resp.TimestampMask, resp.HCACoreClock
	x.RSS = driver.RSSCaps{QPTypes: resp.RSSCaps.SupportedQPTs, MaxTables: count(resp.RSSCaps.MaxRWQIndirectionTables),
		MaxTableSize: count(resp.RSSCaps.MaxRWQIndirectionTableSize)}
	x.MaxWQRQ, x.RawPacketCaps = count(resp.MaxWQTypeRQ), resp.RawPacketCaps
	tm := &resp.TMCaps
	x.TM = driver.TagMatchingCaps{MaxRendezvousHeader: count(tm.MaxRndvHdrSize), MaxTags: count(tm.MaxNumTags), MaxOps: count(tm.MaxOps),
		MaxSGE: count(tm.MaxSGE), Flags: tm.Flags}
	x.ModerationCount = int(resp.CQModerationCaps.MaxCQModerationCount)
	x.ModerationUsec = int(resp.CQModerationCaps.MaxCQModerationPeriod)
	x.MaxDMSize = resp.MaxDMSize
	return x
}

// count is a limit of the device. Some drivers say "no limit" by a number that
// is negative as the C int that it is.
func count(v uint32) int { return int(min(v, 1<<31-1)) }

// QueryPort is the state of a port, from 1.
func (d *Device) QueryPort(port int) (driver.PortAttr, error) {
	f, err := d.frame(uapi.ObjectDevice, uapi.MethodQueryPort)
	if err != nil {
		return driver.PortAttr{}, err
	}
	defer d.put(f)
	f.constant(uapi.AttrQueryPortPortNum, uint64(port))
	out := f.out(uapi.AttrQueryPortResp, sizeOf[uapi.QueryPortRespEx]())
	if err := f.do(d.k, d.fd); err != nil {
		return driver.PortAttr{}, lacks(err, FeatureIoctl, sinceIoctl)
	}
	var resp uapi.QueryPortRespEx
	copy(bytesOf(&resp), f.bytes(out))
	r := &resp.LegacyResp
	if r.GIDTblLen > maxGIDs {
		return driver.PortAttr{}, &ResponseError{"GID table length", uint64(r.GIDTblLen)}
	}
	a := driver.PortAttr{
		State:       driver.PortState(r.State),
		LinkLayer:   driver.LinkLayer(r.LinkLayer),
		MaxMTU:      driver.MTU(r.MaxMTU),
		ActiveMTU:   driver.MTU(r.ActiveMTU),
		LID:         r.LID,
		SMLID:       r.SMLID,
		LMC:         r.LMC,
		GIDTableLen: int(r.GIDTblLen),
		PKeyLen:     int(r.PKeyTblLen),
		MaxMsgSize:  r.MaxMsgSz,
		ActiveWidth: r.ActiveWidth,
		ActiveSpeed: uint32(r.ActiveSpeed),
		PhysState:   r.PhysState,
		CapFlags:    r.PortCapFlags,
		CapFlags2:   resp.PortCapFlags2,

		MaxVL: r.MaxVLNum, SMSL: r.SMSL, SubnetTimeout: r.SubnetTimeout, InitTypeReply: r.InitTypeReply, Flags: r.Flags,
		BadPKeys: r.BadPKeyCntr, QKeyViolations: r.QKeyViolCntr,
	}
	if resp.ActiveSpeedEx != 0 {
		a.ActiveSpeed = resp.ActiveSpeedEx
	}
	a.SpeedMbps = lanes(a.ActiveWidth) * laneMbps(a.ActiveSpeed)
	return a, nil
}

// maxGIDs is far above the GIDs of a port (1024 on Soft-RoCE, 256 on mlx5).
const maxGIDs = 1 << 16

// lanes decodes enum ib_port_width.
func lanes(width uint8) int {
	switch width {
	case 1:
		return 1
	case 2:
		return 4
	case 4:
		return 8
	case 8:
		return 12
	case 16:
		return 2
	}
	return 0
}

// laneMbps decodes enum ib_port_speed, in the round figures that ports are sold
// by: 25000 for EDR, not its 25781.25.
func laneMbps(speed uint32) int {
	switch speed {
	case 1: // SDR
		return 2500
	case 2: // DDR
		return 5000
	case 4, 8: // QDR, FDR10
		return 10000
	case 16: // FDR
		return 14000
	case 32: // EDR
		return 25000
	case 64: // HDR
		return 50000
	case 128: // NDR
		return 100000
	case 256: // XDR
		return 200000
	}
	return 0
}

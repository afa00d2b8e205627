package softroce

import "github.com/purerdma/purerdma/ibverbs/driver"

// Limits of a device.
const (
	maxQP         = 1 << 16
	maxQPWR       = 1 << 15
	maxSGE        = 32
	maxInline     = 1024
	maxCQ         = 1 << 16
	maxCQE        = 1 << 20
	maxMR         = 1 << 20
	maxMRSize     = 1 << 40
	maxPD         = 1 << 16
	maxSRQ        = 1 << 16
	maxMW         = 1 << 16
	maxSRQWR      = 1 << 15
	maxAH         = 1 << 16
	maxRdAtomic   = 64
	maxMessage    = 1 << 31
	compVectors   = 1
	gidTableLen   = 1
	defaultPKey   = 0xffff
	vendorPartID  = 0x5f7
	firmwareLabel = "softroce"
)

func deviceAttr(guid uint64) driver.DeviceAttr {
	return driver.DeviceAttr{
		Firmware: firmwareLabel, NodeGUID: guid, SysGUID: guid, VendorPartID: vendorPartID,
		MaxMRSize: maxMRSize, PageSizes: 1 << 12, MaxQP: maxQP, MaxQPWR: maxQPWR, MaxSGE: maxSGE, MaxSGERead: maxSGE,
		MaxCQ: maxCQ, MaxCQE: maxCQE, MaxMR: maxMR, MaxPD: maxPD, MaxQPRdAtomic: maxRdAtomic, MaxQPInitRdAtom: maxRdAtomic,
		MaxSRQ: maxSRQ, MaxSRQWR: maxSRQWR, MaxSRQSGE: maxSGE, MaxAH: maxAH, MaxMW: maxMW, MaxPKeys: 1, Ports: 1, AtomicCap: 2, CompVectors: compVectors,
	}
}

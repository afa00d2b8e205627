package memdriver

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// Config is a fabric. The zero value is one device, mem0, with one Ethernet
// port.
type Config struct {
	// Name of the driver, "mem" if empty.
	Name string
	// Devices of the fabric, in the order in which they are listed.
	Devices []DeviceConfig
	// RetryTime is how long a request waits for a peer that does not answer,
	// before it ends in RetryExcErr. 0 goes by Timeout and RetryCnt of the QP;
	// with the defaults of NCCL that is half a minute.
	RetryTime time.Duration
	// Delay is asked once for each send request, how long it takes. Nil runs
	// requests at once. It is called with the fabric locked.
	Delay func() time.Duration
	// Observe sees each request when it runs, before the peer does. It is called
	// with the fabric locked, so it must not call back.
	Observe func(Request)
}

// DeviceConfig is a device. Fields that are zero are filled in: the name is mem
// and the number in the list, the limits are those of an adapter of today.
type DeviceConfig struct {
	Name     string
	PCI      string
	NUMANode int
	Hardware bool // list it as hardware
	Ports    []PortConfig
	// Limits replace the defaults where they are not zero.
	Limits driver.DeviceAttr
	// MaxInline is the most bytes of QPCap.Inline, 512 by default.
	MaxInline int
	// DMABuf is asked for each registration of a dma-buf, whose error it gives; nil lacks them. No request reaches memory that was
	// registered so: the fabric cannot map it.
	DMABuf func(driver.DMABuf) error
}

// PortConfig is a port. The zero value is Ethernet with an MTU of 4096, active,
// with a link-local and an IPv4 GID of RoCE v2.
type PortConfig struct {
	LinkLayer driver.LinkLayer
	State     driver.PortState
	ActiveMTU driver.MTU
	SpeedMbps int
	// GIDs is the used slots of the table. Index counts, also for slots that
	// are left empty in between.
	GIDs []driver.GIDEntry
}

// Request is a send request at the moment it runs.
type Request struct {
	Device  string
	QPN     uint32
	DestQPN uint32
	Op      driver.Opcode
	Flags   driver.SendFlags
	Imm     uint32
	Remote  driver.Remote
	Inline  bool
	// Length is the bytes of each entry of the SGL, or of the inline data.
	Length []uint32
	// Data is a copy of what is sent, nil for reads and atomics.
	Data []byte

	CompareAdd, Swap uint64
}

const gidTableLen = 256

// attr is the limits of a device of this configuration.
func (c *DeviceConfig) attr(guid uint64) driver.DeviceAttr {
	a := driver.DeviceAttr{
		Firmware: "memory", NodeGUID: guid, SysGUID: guid, MaxMRSize: 1 << 40, PageSizes: 1 << 12,
		MaxQP: 1 << 16, MaxQPWR: 1 << 15, MaxSGE: 32, MaxSGERead: 32, MaxCQ: 1 << 16, MaxCQE: 1 << 16, MaxMR: 1 << 16,
		MaxPD: 1 << 16, MaxQPRdAtomic: 16, MaxQPInitRdAtom: 16, MaxPKeys: 1, AtomicCap: 2, CompVectors: 4,
	}
	l := &c.Limits
	for _, f := range [...]struct{ have, want *int }{
		{&a.MaxQP, &l.MaxQP}, {&a.MaxQPWR, &l.MaxQPWR}, {&a.MaxSGE, &l.MaxSGE}, {&a.MaxSGERead, &l.MaxSGERead},
		{&a.MaxCQ, &l.MaxCQ}, {&a.MaxCQE, &l.MaxCQE}, {&a.MaxMR, &l.MaxMR}, {&a.MaxPD, &l.MaxPD},
		{&a.MaxQPRdAtomic, &l.MaxQPRdAtomic}, {&a.MaxQPInitRdAtom, &l.MaxQPInitRdAtom}, {&a.CompVectors, &l.CompVectors},
	} {
		if *f.want != 0 {
			*f.have = *f.want
		}
	}
	if l.MaxMRSize != 0 {
		a.MaxMRSize = l.MaxMRSize
	}
	a.Ports = max(1, len(c.Ports))
	return a
}

// port fills in the port with this number, from 1, of device dev.
func (c PortConfig) port(dev, number int, guid uint64) *port {
	p := &port{gids: c.GIDs, attr: driver.PortAttr{
		State: c.State, LinkLayer: c.LinkLayer, MaxMTU: driver.MTU4096, ActiveMTU: c.ActiveMTU, GIDTableLen: gidTableLen,
		PKeyLen: 1, MaxMsgSize: 1 << 31, SpeedMbps: c.SpeedMbps, ActiveWidth: 2, ActiveSpeed: 32, PhysState: 5,
	}}
	if p.attr.LinkLayer == driver.LinkUnspecified {
		p.attr.LinkLayer = driver.LinkEthernet
	}
	if p.attr.State == driver.PortNop {
		p.attr.State = driver.PortActive
	}
	if p.attr.ActiveMTU == 0 {
		p.attr.ActiveMTU = driver.MTU4096
	}
	if p.attr.SpeedMbps == 0 {
		p.attr.SpeedMbps = 100_000
	}
	infiniband := p.attr.LinkLayer == driver.LinkInfiniBand
	if infiniband {
		p.attr.LID, p.attr.SMLID = uint16(16*dev+number), 1
	}
	if p.gids == nil {
		link := driver.GID{0xfe, 0x80}
		binary.BigEndian.PutUint64(link[8:], guid+uint64(number))
		if infiniband {
			p.gids = []driver.GIDEntry{{GID: link, Type: driver.GIDTypeIB}}
		} else {
			v4 := driver.GID{10: 0xff, 11: 0xff, 12: 10, 13: 77, 14: byte(dev), 15: byte(number)}
			netdev := fmt.Sprintf("memnet%d.%d", dev, number)
			p.gids = []driver.GIDEntry{
				{GID: link, Index: 0, Type: driver.GIDTypeRoCEv2, NetDev: netdev},
				{GID: v4, Index: 1, Type: driver.GIDTypeRoCEv2, NetDev: netdev},
			}
		}
	}
	return p
}

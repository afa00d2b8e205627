package mlx5model

import (
	"encoding/binary"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// Link layers, types of GIDs, and the flag of a port that every address must be global
// (enum ib_uverbs_gid_type, IB_UVERBS_QPF_GRH_REQUIRED).
const (
	linkInfiniband = 1
	linkEthernet   = 2
	gidRoCEv1      = 1
	gidRoCEv2      = 2
	grhRequired    = 1
)

func (c *call) queryPort() error {
	if c.number(uapi.AttrQueryPortPortNum) != 1 {
		return syscall.EINVAL
	}
	p := uapi.QueryPortResp{
		MaxMsgSz: maxMessage, GIDTblLen: gidTable, PKeyTblLen: 128, LID: lid, SMLID: 1, State: portActive, MaxMTU: mtu4096, ActiveMTU: mtu4096,
		MaxVLNum: 2, ActiveWidth: 2, ActiveSpeed: 64, PhysState: 5, LinkLayer: linkInfiniband,
	}
	if c.m.config.Ethernet {
		p.LinkLayer, p.LID, p.SMLID, p.PKeyTblLen, p.Flags = linkEthernet, 0, 0, 1, grhRequired
	}
	r := uapi.QueryPortRespEx{LegacyResp: p}
	return c.out(uapi.AttrQueryPortResp, bytesOf(&r))
}

// gids is the used entries of the port's table, the first ones.
func (c Config) gids() []uapi.GIDEntry {
	link := uapi.GIDEntry{PortNum: 1}
	binary.BigEndian.PutUint64(link.GID[:], subnet)
	binary.BigEndian.PutUint64(link.GID[8:], nodeGUID)
	if !c.Ethernet {
		return []uapi.GIDEntry{link}
	}
	link.GIDType = gidRoCEv1
	routed := uapi.GIDEntry{GID: link.GID, PortNum: 1, GIDIndex: 1, GIDType: gidRoCEv2}
	ipv4 := uapi.GIDEntry{GID: [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: 9, 14: 0, 15: 1}, PortNum: 1, GIDIndex: 2, GIDType: gidRoCEv2}
	return []uapi.GIDEntry{link, routed, ipv4}
}

// mac is that of the port, of which the GID of the link is made.
var mac = [6]byte{0x0c, 0x42, 0xa1, 0x12, 0x34, 0x56}

// reaches says whether an address is one of the port's, of the kind of GID that it is sent
// from.
func (c Config) reaches(d *uapi.QPDest) bool {
	if d.IsGlobal == 0 {
		return !c.Ethernet && d.DLID == lid
	}
	return c.routes(d.SGIDIndex, d.DGID)
}

func (c Config) routes(from uint8, to [16]byte) bool {
	gids := c.gids()
	for _, g := range gids {
		if int(from) < len(gids) && g.GID == to && g.GIDType == gids[from].GIDType {
			return true
		}
	}
	return false
}

func (c *call) queryGIDTable() error {
	gids := c.m.config.gids()
	size := len(bytesOf(&gids[0]))
	if c.number(uapi.AttrQueryGIDTableEntrySize) != uint64(size) || c.number(uapi.AttrQueryGIDTableFlags) != 0 ||
		c.room(uapi.AttrQueryGIDTableRespEntries) < size*len(gids) {
		return syscall.EINVAL
	}
	var all []byte
	for i := range gids {
		all = append(all, bytesOf(&gids[i])...)
	}
	return c.outs(map[uint16][]byte{uapi.AttrQueryGIDTableRespEntries: all, uapi.AttrQueryGIDTableRespNumEntries: u64(uint64(len(gids)))})
}

func (c *call) queryGIDEntry() error {
	gids := c.m.config.gids()
	index := c.number(uapi.AttrQueryGIDEntryGIDIndex)
	switch {
	case c.number(uapi.AttrQueryGIDEntryFlags) != 0, c.number(uapi.AttrQueryGIDEntryPort) != 1, index >= gidTable:
		return syscall.EINVAL
	case index >= uint64(len(gids)):
		return syscall.ENODATA
	}
	return c.out(uapi.AttrQueryGIDEntryRespEntry, bytesOf(&gids[index]))
}

package ibverbs

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// GRHSize is the bytes at the start of every receive of a UD queue pair, filled in
// or not: the global route header (struct ibv_grh) where WC.Flags has WCGRH. WC.ByteLen
// counts them.
const GRHSize = 40

// CreateAHFromWC makes an address handle for an answer to a received datagram, as
// Context.AHAttrFromWC describes the way back (ibv_create_ah_from_wc). It may sit in
// the kernel for about a second. Who answers many datagrams of one peer keeps the
// handle.
func (p *PD) CreateAHFromWC(port int, wc *WC, grh []byte) (*AH, error) {
	a, err := p.dev.AHAttrFromWC(port, wc, grh)
	if err != nil {
		return nil, err
	}
	return p.CreateAH(a)
}

// AHAttrFromWC is the way back to who sent a datagram (ibv_init_ah_from_wc). port is
// that of the QP that received it, wc its completion, grh the first GRHSize bytes of
// the receive. SGIDIndex is where the port's GID table has the header's destination,
// with the right type. AH.To(wc.SrcQP, qkey) then names the peer's QP; which Q_Key
// that has is agreed beforehand.
//
// On Ethernet the header is IPv6, or 20 bytes that do not count and then IPv4; a
// datagram without it is EINVAL there, and so is one that came by multicast, since a
// group cannot be a source. A destination that is not in the table is EADDRNOTAVAIL:
// the port has lost the address meanwhile. The header is the sender's word and proves
// nothing.
func (v *device) AHAttrFromWC(port int, wc *WC, grh []byte) (AHAttr, error) {
	attr, err := v.wayBack(port, wc, grh)
	if err != nil {
		return AHAttr{}, wrap("find the way back of a datagram", v.info.Name, portName(port), err)
	}
	return attr, nil
}

func (v *device) wayBack(port int, wc *WC, grh []byte) (a AHAttr, err error) {
	p, err := v.Port(port)
	if err != nil {
		return a, err
	}
	if wc == nil {
		return a, fmt.Errorf("the completion is nil: %w", syscall.EINVAL)
	}
	a = AHAttr{Port: port, SL: wc.SL, DLID: wc.SLID, SrcPathBits: wc.PathBits}
	switch {
	case wc.Status != Success:
		return a, fmt.Errorf("the receive ended in %v: %w", wc.Status, syscall.EINVAL)
	case wc.Flags&WCGRH == 0 && p.LinkLayer == LinkEthernet:
		return a, fmt.Errorf("WC.Flags lacks WCGRH, without which RoCE has no address: %w", syscall.EINVAL)
	case wc.Flags&WCGRH == 0:
		return a, nil
	case len(grh) < GRHSize:
		return a, fmt.Errorf("the GRH has %d bytes, want %d: %w", len(grh), GRHSize, syscall.EINVAL)
	}
	h, err := parseGRH(grh, p.LinkLayer)
	if err != nil {
		return a, err
	}
	if h.dst.Addr().IsMulticast() {
		return a, fmt.Errorf("the datagram was sent to the group %v, so it does not tell which GID it came to: %w", h.dst.Addr(), syscall.EINVAL)
	}
	gids, err := v.GIDs(port)
	if err != nil {
		return a, err
	}
	i := slices.IndexFunc(gids, func(g GIDEntry) bool { return g.GID == h.dst && g.Type == h.typ })
	if i < 0 {
		return a, fmt.Errorf("the GID table has no %v of type %v, to which the datagram was sent: %w", h.dst.Addr(), h.typ, syscall.EADDRNOTAVAIL)
	}
	a.IsGlobal, a.DGID, a.SGIDIndex = true, h.src, gids[i].Index
	a.FlowLabel, a.TrafficClass, a.HopLimit = h.flow, h.class, h.hops
	return a, nil
}

// routeHeader is what a GRH says.
type routeHeader struct {
	src, dst    GID
	typ         GIDType
	flow        uint32
	class, hops uint8
}

// Protocols that follow the header: UDP in RoCE v2, the transport itself in
// InfiniBand and RoCE v1.
const (
	nextUDP = 17
	nextIB  = 0x1b
)

func parseGRH(b []byte, link LinkLayer) (h routeHeader, err error) {
	if ip := b[20:GRHSize]; link == LinkEthernet && holdsIPv4(b, ip) {
		h = routeHeader{src: mapped(ip[12:16]), dst: mapped(ip[16:20]), typ: GIDTypeRoCEv2, class: ip[1], hops: ip[8]}
		return h, nil
	}
	word := binary.BigEndian.Uint32(b)
	h = routeHeader{src: GID(b[8:24]), dst: GID(b[24:40]), flow: word & 0xfffff, class: uint8(word >> 20), hops: b[7]}
	switch {
	case word>>28 != 6:
		return h, fmt.Errorf("the GRH is neither IPv6 nor IPv4, its first byte is %#x and its 21st %#x: %w", b[0], b[20], syscall.EINVAL)
	case link != LinkEthernet:
		h.typ = GIDTypeIB
	case b[6] == nextUDP:
		h.typ = GIDTypeRoCEv2
	case b[6] == nextIB:
		h.typ = GIDTypeRoCEv1
	default:
		return h, fmt.Errorf("behind the GRH is protocol %d, neither RoCE v2 (UDP, %d) nor v1 (%d): %w", b[6], nextUDP, nextIB, syscall.EINVAL)
	}
	return h, nil
}

// holdsIPv4 says whether the last 20 bytes are an IPv4 header. If the first ones
// could be the start of an IPv6 header, which they are too by chance where a device
// leaves them as they were, the checksum decides.
func holdsIPv4(grh, ip []byte) bool {
	if ip[0] != 0x45 { // without options, as RoCE v2 has it
		return false
	}
	return grh[0]>>4 != 6 || checksumOK(ip)
}

// checksumOK says whether the words of an IPv4 header with its checksum add up.
func checksumOK(ip []byte) bool {
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return sum>>16+sum&0xffff == 0xffff
}

func mapped(ip []byte) GID { return netip.AddrFrom4([4]byte(ip)).As16() }

package link

import (
	"encoding/binary"
	"net/netip"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// openIP finds the RoCE datagram in an IP packet from the network: data, sender,
// type of service and Identification go into d. It says to whom the packet is, and
// ok is false for whatever is no whole UDP datagram for port 4791 behind a plain
// header, without options, extensions or fragments. Checksums are not looked at:
// the ICRC, which the caller checks, covers all that matters here.
func openIP(b []byte, d *Datagrams) (to netip.Addr, ok bool) {
	be := binary.BigEndian
	var from netip.Addr
	switch {
	case len(b) >= 20 && b[0] == 0x45:
		size := int(be.Uint16(b[2:]))
		if b[9] != protocolUDP || be.Uint16(b[6:])&0x3fff != 0 || size > len(b) || size < 20 {
			return to, false
		}
		d.TOS, d.ID = b[1], be.Uint16(b[4:])
		from, to = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		b = b[20:size]
	case len(b) >= 40 && b[0]>>4 == 6:
		size := 40 + int(be.Uint16(b[4:]))
		if b[6] != protocolUDP || size > len(b) {
			return to, false
		}
		d.TOS, d.ID = b[0]<<4|b[1]>>4, 0
		from, to = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		b = b[40:size]
	default:
		return to, false
	}
	if len(b) < udpHeader || be.Uint16(b[2:]) != wire.Port || int(be.Uint16(b[4:])) != len(b) {
		return to, false
	}
	d.Addr, d.Data = netip.AddrPortFrom(from, be.Uint16(b)), b[udpHeader:]
	return to, true
}

const (
	protocolUDP = 17
	udpHeader   = 8
)

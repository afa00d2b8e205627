package softroce

import "encoding/binary"

// grhSize is the bytes in front of a received datagram: a global route header. Of
// RoCE v2 it is the IPv6 header, or nothing in 20 bytes and then the IPv4 header
// (IBTA annex A17.4.5).
const grhSize = 40

// A socket does not show headers, so they are made again. Real are the addresses,
// traffic class and ECN, lengths, protocol and the Identification, which the ICRC
// tells. The rest is what senders mostly put there: flags DF, time to live or hop
// limit 64, flow label 0. The checksum of the IPv4 header is right for what is
// there; rdma-core tells IPv4 by it.
const (
	madeTTL   = 64
	udpHeader = 8
	protoUDP  = 17
)

func (e *engine) grh(p *packet) (h [grhSize]byte) {
	be, udp := binary.BigEndian, udpHeader+len(p.Bytes())
	if e.addr.Is4() {
		src, dst, ip := p.from.As4(), e.addr.As4(), h[20:]
		ip[0], ip[1] = 0x45, p.tos
		be.PutUint16(ip[2:], uint16(len(ip)+udp))
		be.PutUint16(ip[4:], p.id)
		ip[6], ip[8], ip[9] = 0x40, madeTTL, protoUDP
		copy(ip[12:], src[:])
		copy(ip[16:], dst[:])
		be.PutUint16(ip[10:], checksum(ip))
		return h
	}
	src, dst := p.from.As16(), e.addr.As16()
	be.PutUint32(h[0:], 6<<28|uint32(p.tos)<<20)
	be.PutUint16(h[4:], uint16(udp))
	h[6], h[7] = protoUDP, madeTTL
	copy(h[8:], src[:])
	copy(h[24:], dst[:])
	return h
}

// checksum is that of an IPv4 header whose own is 0.
func checksum(h []byte) uint16 {
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}

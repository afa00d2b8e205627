package link

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// pcapng writes blocks of the PCAP Next Generation format
// (draft-ietf-opsawg-pcapng) for one interface of raw IP packets, in the
// machine's own byte order.
type pcapng struct{ buf []byte }

// Block types, options and values of the format.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 6
	byteOrder      = 0x1a2b3c4d
	linkTypeRaw    = 101 // begins with an IPv4 or IPv6 header

	optEnd       = 0
	optIfName    = 2
	optIfTimeRes = 9
	optFlags     = 2
	flagInbound  = 1
	flagOutbound = 2
)

var ne = binary.NativeEndian

func (p *pcapng) u16(v uint16) { p.buf = ne.AppendUint16(p.buf, v) }
func (p *pcapng) u32(v uint32) { p.buf = ne.AppendUint32(p.buf, v) }

// pad fills up to a multiple of 4.
func (p *pcapng) pad() {
	for len(p.buf)%4 != 0 {
		p.buf = append(p.buf, 0)
	}
}

func (p *pcapng) option(code uint16, value []byte) {
	p.u16(code)
	p.u16(uint16(len(value)))
	p.buf = append(p.buf, value...)
	p.pad()
}

// begin starts a block; end fills in its length, which stands at both ends.
func (p *pcapng) begin(kind uint32) (at int) {
	at = len(p.buf)
	p.u32(kind)
	p.u32(0)
	return at
}

func (p *pcapng) end(at int) {
	size := uint32(len(p.buf) - at + 4)
	ne.PutUint32(p.buf[at+4:], size)
	p.u32(size)
}

// head is the section header and the one interface, with times in nanoseconds.
func (p *pcapng) head(name string) {
	at := p.begin(blockSection)
	p.u32(byteOrder)
	p.u16(1) // version 1.0
	p.u16(0)
	p.u32(^uint32(0)) // section of unknown length
	p.u32(^uint32(0))
	p.end(at)

	at = p.begin(blockInterface)
	p.u16(linkTypeRaw)
	p.u16(0)
	p.u32(0) // packets are never cut
	p.option(optIfName, []byte(name))
	p.option(optIfTimeRes, []byte{9})
	p.option(optEnd, nil)
	p.end(at)
}

// packet is an enhanced packet block.
func (p *pcapng) packet(t time.Time, src, dst netip.AddrPort, tos uint8, id uint16, data []byte, out bool) {
	at := p.begin(blockPacket)
	nanos := uint64(t.UnixNano())
	p.u32(0) // interface
	p.u32(uint32(nanos >> 32))
	p.u32(uint32(nanos))
	p.u32(0) // captured and original length, below
	p.u32(0)
	from := len(p.buf)
	p.buf = appendIP(p.buf, src, dst, tos, id, data)
	size := uint32(len(p.buf) - from)
	ne.PutUint32(p.buf[from-8:], size)
	ne.PutUint32(p.buf[from-4:], size)
	p.pad()
	flags := uint32(flagInbound)
	if out {
		flags = flagOutbound
	}
	p.u16(optFlags)
	p.u16(4)
	p.u32(flags)
	p.option(optEnd, nil)
	p.end(at)
}

const hopLimit = 64

// appendIP appends an IP packet with a UDP datagram.
func appendIP(b []byte, src, dst netip.AddrPort, tos uint8, id uint16, data []byte) []byte {
	be := binary.BigEndian
	udpSize := uint16(8 + len(data))
	start := len(b)
	var udp int
	if s, d := src.Addr().Unmap(), dst.Addr().Unmap(); s.Is4() && d.Is4() {
		b = append(b, 0x45, tos)
		b = be.AppendUint16(b, 20+udpSize)
		b = be.AppendUint16(b, id)
		b = append(b, 0x40, 0, hopLimit, 17, 0, 0) // do not fragment
		s4, d4 := s.As4(), d.As4()
		b = append(append(b, s4[:]...), d4[:]...)
		be.PutUint16(b[start+10:], ^fold(sum(0, b[start:])))
		udp = start + 12
	} else {
		b = append(b, 0x60|tos>>4, tos<<4, 0, 0)
		b = be.AppendUint16(b, udpSize)
		b = append(b, 17, hopLimit)
		s6, d6 := s.As16(), d.As16()
		b = append(append(b, s6[:]...), d6[:]...)
		udp = start + 8
	}
	at := len(b)
	b = be.AppendUint16(b, src.Port())
	b = be.AppendUint16(b, dst.Port())
	b = be.AppendUint16(b, udpSize)
	b = append(b, 0, 0)
	b = append(b, data...)
	check := ^fold(sum(uint32(udpSize)+17, b[udp:])) // addresses, protocol, length, datagram
	if check == 0 {
		check = 0xffff
	}
	be.PutUint16(b[at+6:], check)
	return b
}

// sum is that of the Internet checksum.
func sum(s uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) > 0 {
		s += uint32(b[0]) << 8
	}
	return s
}

func fold(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

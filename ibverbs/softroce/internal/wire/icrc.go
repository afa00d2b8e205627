package wire

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

const (
	ipv4Size = 20
	ipv6Size = 40
	udpSize  = 8
	idOffset = 4 // of the Identification in an IPv4 header

	// afterID is the bytes from behind the Identification to the BTH.
	afterID = ipv4Size - idOffset - 2 + udpSize
	// maxLengths bounds the lengths for which a power is kept: the largest
	// packet is a path MTU of 4096 with 32 bytes of headers, padding, ICRC.
	maxLengths = (4096 + 64) / 4
	// fewBytes is below which length the tables that take the BTH serve for the rest as
	// well: hash/crc32 would read larger ones, which nobody else keeps in the cache.
	fewBytes = 64
	// fewLengths is for how many lengths what they give is kept in one place.
	fewLengths = fewBytes
)

// crcTables is what the register gains from a byte, by how many zero bytes
// follow it. The CRC is linear: the register after several bytes is the sum of
// what each of them gives.
type crcTables struct {
	behind [4][256]uint32 // 0 to 3 bytes behind, for four bytes at a time
	id     [2][256]uint32 // the Identification's bytes, at the BTH
	idLast [2][256]uint32 // and at the last word of the BTH
	len4   [2][256]uint32 // the bytes of a UDP length, at the BTH
	ipLen4 [2][256]uint32 // the bytes of an IPv4 total length, at the BTH
	len6   [2][256]uint32 // the bytes of a length that is there twice, IPv6
	back   [maxLengths]uint32
	few4   [fewLengths]uint32 // what both lengths of a packet of so many times 4 bytes give, IPv4
	few6   [fewLengths]uint32 // and IPv6
}

var tables = newTables()

func newTables() *crcTables {
	t := new(crcTables)
	for i := range t.behind {
		gains(&t.behind[i], i)
	}
	const (
		udpLen = 2                  // bytes behind a UDP length, up to the BTH
		ip4Len = afterID + 2        // behind the total length
		ip6Len = 2 + 2*16 + udpSize // behind the payload length
	)
	for i := range 2 { // 0 is the high byte, which comes first
		far := 1 - i
		gains(&t.id[i], afterID+far)
		gains(&t.idLast[i], afterID+8+far)
		gains(&t.len4[i], udpLen+far)
		gains(&t.ipLen4[i], ip4Len+far)
		gains(&t.len6[i], ip6Len+far)
		for b := range t.len6[i] {
			t.len6[i][b] ^= t.len4[i][b]
		}
	}
	for i := range t.few4 {
		t.few4[i], t.few6[i] = t.lengths4(4*i), t.lengths6(4*i)
	}
	// A difference in the Identification, as it is in the first two bytes of
	// the register, has gone through these two, afterID, and the packet's bytes
	// but the ICRC.
	v := uint32(one)
	for range afterID + 2 {
		v = unstep(v)
	}
	for i := range t.back {
		t.back[i] = v
		for range 4 {
			v = unstep(v)
		}
	}
	return t
}

// gains fills in what each byte gives when so many zero bytes follow it.
func gains(tab *[256]uint32, behind int) {
	for bit := range 8 {
		v := uint32(1) << bit
		for range behind + 1 {
			v = step(v)
		}
		for b := range 1 << bit {
			tab[1<<bit+b] = tab[b] ^ v
		}
	}
}

// Path computes the ICRC of packets from one address and port to another. It is
// immutable, so that goroutines may share one, and a comparable value. Making
// one costs as much as the ICRC of 1 KiB: keep it as long as peer and ports are
// the same.
type Path struct {
	base uint32 // the register at the BTH, for length 0 and Identification 0
	v6   bool
}

// NewPath makes the Path of packets from src to dst. IPv4 addresses in IPv6
// form are IPv4. Both addresses must be of one family.
func NewPath(src, dst netip.AddrPort) Path {
	var buf [8 + ipv6Size + udpSize]byte
	for i := range 8 {
		buf[i] = 0xff
	}
	s, d := src.Addr().Unmap(), dst.Addr().Unmap()
	b := buf[:8]
	if s.Is4() {
		// What routers change is ones: type of service, time to live, checksum.
		b = append(b, 0x45, 0xff, 0, 0, 0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff)
		s4, d4 := s.As4(), d.As4()
		b = append(append(b, s4[:]...), d4[:]...)
	} else {
		b = append(b, 0x6f, 0xff, 0xff, 0xff, 0, 0, 17, 0xff)
		s6, d6 := s.As16(), d.As16()
		b = append(append(b, s6[:]...), d6[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, src.Port())
	b = binary.BigEndian.AppendUint16(b, dst.Port())
	b = append(b, 0, 0, 0xff, 0xff)
	v := ^uint32(0)
	for i := 0; i < len(b); i += 4 {
		v = tables.four(v, binary.LittleEndian.Uint32(b[i:]))
	}
	return Path{v, !s.Is4()}
}

// start is the register at the BTH of a packet of n bytes.
func (p Path) start(n int, id uint16) uint32 {
	t := tables
	few := n%4 == 0 && n < 4*fewLengths
	switch {
	case p.v6 && few:
		return p.base ^ t.few6[n/4]
	case p.v6:
		return p.base ^ t.lengths6(n)
	case few && id == 0:
		return p.base ^ t.few4[n/4]
	}
	return p.base ^ t.lengths4(n) ^ t.id[0][id>>8] ^ t.id[1][id&255]
}

// lengths4 is what the lengths in the headers of a packet of n bytes give, IPv4.
func (t *crcTables) lengths4(n int) uint32 {
	udp := n + udpSize
	ip := udp + ipv4Size
	return t.len4[0][udp>>8&255] ^ t.len4[1][udp&255] ^ t.ipLen4[0][ip>>8&255] ^ t.ipLen4[1][ip&255]
}

// lengths6 is the same for IPv6.
func (t *crcTables) lengths6(n int) uint32 {
	udp := n + udpSize
	return t.len6[0][udp>>8&255] ^ t.len6[1][udp&255]
}

// four takes four bytes, the first in the lowest bits, through the register.
func (t *crcTables) four(v, word uint32) uint32 {
	v ^= word
	return t.behind[3][v&255] ^ t.behind[2][v>>8&255] ^ t.behind[1][v>>16&255] ^ t.behind[0][v>>24]
}

// bth takes the BTH through the register. What switches may change is ones.
func (t *crcTables) bth(v uint32, b []byte) uint32 {
	_ = b[BTHSize-1]
	return t.four(t.bth8(v, binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint32(b[8:]))
}

// bth8 is bth up to the last word.
func (t *crcTables) bth8(v uint32, head uint64) uint32 {
	head |= switches
	return t.four(t.four(v, uint32(head)), uint32(head>>32))
}

// ICRC is that of a packet, whose last four bytes are left out. The
// Identification is that of the IPv4 header; IPv6 has none.
func (p Path) ICRC(pkt []byte, id uint16) uint32 {
	v := p.start(len(pkt), id)
	if n := len(pkt) - ICRCSize; n <= shortAtMost && n >= 16 && n%4 == 0 {
		return ^short(v, pkt, n)
	}
	// The BTH goes by hand: hash/crc32 is slow at lengths like 12 + 1024.
	v = tables.bth(v, pkt)
	rest := pkt[BTHSize : len(pkt)-ICRCSize]
	if len(rest) < fewBytes {
		for ; len(rest) >= 4; rest = rest[4:] {
			v = tables.four(v, binary.LittleEndian.Uint32(rest))
		}
		if len(rest) == 0 {
			return ^v
		}
	}
	return crc32.Update(^v, crc32.IEEETable, rest)
}

// Seal writes the ICRC, for an IPv4 Identification.
func (p Path) Seal(pkt []byte, id uint16) {
	binary.LittleEndian.PutUint32(pkt[len(pkt)-ICRCSize:], p.ICRC(pkt, id))
}

// Verify says whether the ICRC is right, for a link that knows the
// Identification. On IPv6 it is ignored.
func (p Path) Verify(pkt []byte, id uint16) bool {
	return binary.LittleEndian.Uint32(pkt[len(pkt)-ICRCSize:]) == p.ICRC(pkt, id)
}

// Check says whether the ICRC is right for any Identification, and for which,
// since a UDP socket does not show it. It tries hint first, which costs nothing
// more; otherwise one multiplication in GF(2^32) takes the difference back to
// where the Identification is, and it must lie within its 16 bits. Of packets
// that were damaged one in 65,536 passes; on IPv6 the check is exact.
func (p Path) Check(pkt []byte, hint uint16) (id uint16, ok bool) {
	diff := binary.LittleEndian.Uint32(pkt[len(pkt)-ICRCSize:]) ^ p.ICRC(pkt, hint)
	if diff == 0 {
		return hint, true
	}
	if p.v6 {
		return 0, false
	}
	id, ok = recoverID(diff, len(pkt))
	return id ^ hint, ok
}

// recoverID takes a difference in the ICRC of a packet of n bytes back to the
// difference in the Identification that makes it, if there is one.
func recoverID(diff uint32, n int) (id uint16, ok bool) {
	k := (n - ICRCSize) / 4
	if k >= maxLengths || n%4 != 0 {
		return 0, false
	}
	w := mul(diff, tables.back[k])
	return uint16(w<<8 | w>>8), w <= 0xffff
}

var zeros [2048]byte

// Renumber changes the ICRC of a packet that was sealed for one Identification
// to that for another.
func Renumber(pkt []byte, from, to uint16) {
	w := uint32(from ^ to)
	v := w>>8 | w&255<<8
	for n := len(pkt) - ICRCSize + afterID + 2; n > 0; n -= len(zeros) {
		v = ^crc32.Update(^v, crc32.IEEETable, zeros[:min(n, len(zeros))])
	}
	last := pkt[len(pkt)-ICRCSize:]
	binary.LittleEndian.PutUint32(last, binary.LittleEndian.Uint32(last)^v)
}

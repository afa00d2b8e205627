package link

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

var packetEnds = [][2]netip.AddrPort{
	{netip.MustParseAddrPort("10.0.0.1:49999"), netip.MustParseAddrPort("10.0.0.2:4791")},
	{netip.MustParseAddrPort("[fd00::1]:49999"), netip.MustParseAddrPort("[fd00::2]:4791")},
}

// What appendIP writes openIP reads, with padding of a short frame behind it or
// not; nothing else is taken.
func TestOpenIP(t *testing.T) {
	for _, ends := range packetEnds {
		data := packet(7, 1, 33)
		ip := appendIP(nil, ends[0], ends[1], 0x6b, 77, data)
		id := uint16(77)
		if ends[0].Addr().Is6() {
			id = 0
		}
		for _, b := range [][]byte{ip, append(bytes.Clone(ip), make([]byte, 6)...)} {
			var d Datagrams
			to, ok := openIP(b, &d)
			if !ok || to != ends[1].Addr() || d.Addr != ends[0] || d.TOS != 0x6b || d.ID != id || !bytes.Equal(d.Data, data) {
				t.Errorf("%v, %v: %+v", to, ok, d)
			}
		}
		for n := range len(ip) {
			if _, ok := openIP(ip[:n], new(Datagrams)); ok {
				t.Errorf("%d bytes of %d were taken", n, len(ip))
			}
		}
	}
	v4, v6 := func(at int, v byte) []byte {
		b := appendIP(nil, packetEnds[0][0], packetEnds[0][1], 0, 0, packet(7, 1, 33))
		b[at] = v
		return b
	}, func(at int, v byte) []byte {
		b := appendIP(nil, packetEnds[1][0], packetEnds[1][1], 0, 0, packet(7, 1, 33))
		b[at] = v
		return b
	}
	for name, b := range map[string][]byte{
		"options": v4(0, 0x46), "version": v4(0, 0x65), "TCP": v4(9, 6), "first fragment": v4(6, 0x20), "later fragment": v4(7, 1),
		"port": v4(23, 0xb8), "total length": v4(3, 19), "UDP length": v4(25, 8), "longer than it is": v4(2, 1),
		"hop-by-hop options": v6(6, 0), "port, IPv6": v6(43, 0xb8), "payload length": v6(5, 255), "UDP length, IPv6": v6(45, 8),
	} {
		if _, ok := openIP(b, new(Datagrams)); ok {
			t.Errorf("%s: taken", name)
		}
	}
}

// FuzzOpenIP: whatever comes gives no panic, and data that lies in what came.
func FuzzOpenIP(f *testing.F) {
	for _, ends := range packetEnds {
		f.Add(appendIP(nil, ends[0], ends[1], 0x6b, 77, packet(7, 1, 33)))
		f.Add(appendIP(nil, ends[0], ends[1], 0, 0, nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Datagrams
		to, ok := openIP(b, &d)
		if !ok {
			return
		}
		again := appendIP(nil, d.Addr, netip.AddrPortFrom(to, wire.Port), d.TOS, d.ID, d.Data)
		var e Datagrams
		if back, ok := openIP(again, &e); !ok || back.Unmap() != to.Unmap() || !bytes.Equal(e.Data, d.Data) || e.TOS != d.TOS {
			t.Fatalf("%+v to %v is written as %x", d, to, again)
		}
	})
}

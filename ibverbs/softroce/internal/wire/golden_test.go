package wire_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// unwrap takes IP and UDP off a packet to port 4791.
func unwrap(ip []byte) (src, dst netip.AddrPort, id uint16, pkt []byte, err error) {
	other := errors.New("not a RoCE v2 packet")
	var s, d netip.Addr
	var udp []byte
	switch {
	case len(ip) >= 28 && ip[0] == 0x45 && ip[9] == 17:
		s, d = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
		id, udp = binary.BigEndian.Uint16(ip[4:]), ip[20:]
	case len(ip) >= 48 && ip[0]>>4 == 6 && ip[6] == 17:
		s, d = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
		udp = ip[40:]
	default:
		return src, dst, 0, nil, other
	}
	size := int(binary.BigEndian.Uint16(udp[4:]))
	if binary.BigEndian.Uint16(udp[2:]) != wire.Port || size < 8 || size > len(udp) {
		return src, dst, 0, nil, other
	}
	src = netip.AddrPortFrom(s, binary.BigEndian.Uint16(udp))
	dst = netip.AddrPortFrom(d, wire.Port)
	return src, dst, id, udp[8:size], nil
}

type goldenPacket struct {
	name     string
	src, dst netip.AddrPort
	id       uint16
	pkt      []byte
}

// golden are packets of the kernel.
func golden(t testing.TB) (all []goldenPacket) {
	t.Helper()
	text, err := os.ReadFile("testdata/rxe.txt")
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		ip, err := hex.DecodeString(line)
		if err != nil {
			name = line
			continue
		}
		p := goldenPacket{name: name}
		if p.src, p.dst, p.id, p.pkt, err = unwrap(ip); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, p)
	}
	if len(all) < 40 {
		t.Fatalf("only %d golden packets", len(all))
	}
	return all
}

var (
	srcV4, dstV4 = netip.MustParseAddrPort("10.9.0.1:49441"), netip.MustParseAddrPort("10.9.0.2:4791")
	srcV6, dstV6 = netip.MustParseAddrPort("[fe80::1]:49441"), netip.MustParseAddrPort("[fe80::2]:4791")
)

// R41: what the kernel sent has the ICRC that we compute, and the layout that
// we read and write.
func TestKernelPackets(t *testing.T) {
	kinds := map[string]bool{}
	for _, g := range golden(t) {
		p, err := wire.Parse(g.pkt)
		if err != nil {
			t.Errorf("%s: %v", g.name, err)
			continue
		}
		if p.Opcode().String() != g.name {
			t.Errorf("%s is taken for %v", g.name, p.Opcode())
		}
		path := wire.NewPath(g.src, g.dst)
		if !path.Verify(g.pkt, g.id) {
			t.Errorf("%s from %v, ID %#x: ICRC", g.name, g.src, g.id)
		}
		if id, ok := path.Check(g.pkt, 0); g.src.Addr().Is4() && (!ok || id != g.id) {
			t.Errorf("%s: ID %#x recovered as %#x, %v", g.name, g.id, id, ok)
		}
		q := wire.Make(make([]byte, len(g.pkt)), p.Opcode(), len(p.Payload()))
		rewrite(q, p)
		path.Seal(q.Bytes(), g.id)
		if !bytes.Equal(q.Bytes(), g.pkt) {
			t.Errorf("%s\nkernel %x\nours   %x", g.name, g.pkt, q.Bytes())
		}
		kinds[g.name] = true
	}
	t.Logf("%d kinds", len(kinds))
}

//go:build hw && linux

package rxe

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"golang.org/x/sys/unix"
)

// packet is what the way of a RoCEv2 packet is chosen by.
type packet struct {
	class uint8  // IPv4 TOS, IPv6 traffic class
	port  uint16 // UDP source
	qpn   uint32 // destination
}

// sniff returns a function that waits for the next RoCEv2 packet that the net
// device sends to a QP.
func sniff(t *testing.T, index int) func(qpn uint32) packet {
	t.Helper()
	all := int(binary.BigEndian.Uint16([]byte{0, unix.ETH_P_ALL}))
	proto := uint16(all<<8 | all>>8)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(proto))
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: index}))
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}))
	buf := make([]byte, 2048)
	return func(qpn uint32) packet {
		t.Helper()
		for end := time.Now().Add(patience); time.Now().Before(end); {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				continue
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); !ok || ll.Pkttype != unix.PACKET_OUTGOING {
				continue
			}
			if p, ok := roce(buf[:n]); ok && p.qpn == qpn {
				return p
			}
		}
		t.Fatalf("no packet to QP %#x in %v", qpn, patience)
		return packet{}
	}
}

// roce reads an Ethernet frame.
func roce(b []byte) (p packet, ok bool) {
	if len(b) < 14+40+8+12 {
		return p, false
	}
	ip := b[14:]
	var udp []byte
	switch binary.BigEndian.Uint16(b[12:]) {
	case unix.ETH_P_IP:
		if ip[9] != unix.IPPROTO_UDP {
			return p, false
		}
		p.class, udp = ip[1], ip[int(ip[0]&15)*4:]
	case unix.ETH_P_IPV6:
		if ip[6] != unix.IPPROTO_UDP {
			return p, false
		}
		p.class, udp = uint8(binary.BigEndian.Uint32(ip)>>20), ip[40:]
	default:
		return p, false
	}
	if len(udp) < 8+12 || binary.BigEndian.Uint16(udp[2:]) != 4791 {
		return p, false
	}
	p.port = binary.BigEndian.Uint16(udp)
	p.qpn = binary.BigEndian.Uint32(udp[8+4:]) & 0xffffff
	return p, true
}

// portOf is the UDP source port that RoCEv2 derives of a flow label (IBTA annex
// A17): the label folded to 14 bits in the range of dynamic ports.
func portOf(label uint32) uint16 { return uint16(0xc000 | label&0x3fff ^ label>>14) }

// labelOf is the flow label that the kernel makes of both QP numbers where none
// is given.
func labelOf(a, b uint32) uint32 {
	v := uint64(a) * uint64(b)
	v ^= v >> 20
	v ^= v >> 40
	return uint32(v & 0xfffff)
}

// TestHWPath sets flow label and traffic class per QP and looks at the packets:
// the UDP source port is what Probe promises. (The flow label of an IPv6 header
// stays 0 on Linux 6.1.)
func TestHWPath(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to see packets")
	}
	r := random(t)
	at, there := pair(t, r, true)
	next := sniff(t, at.gid.IfIndex)
	labels := []uint32{0, 0, 1, 0x4000, 0xfffff, r.Uint32N(1 << 20), r.Uint32N(1 << 20)}
	for _, label := range labels {
		a, b := open(t, at, shape{}), open(t, there, shape{})
		class := uint8(r.UintN(64) << 2) // ECN bits stay the network's
		must(t, a.qp.toInit())
		attr, mask := a.rtr(b)
		attr.AH.FlowLabel, attr.AH.TrafficClass = label, class
		must(t, a.qp.Modify(attr, mask))
		must(t, a.qp.toRTS())
		b.to(driver.StateRTS, a)
		a.send(driver.SendWR{Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)})
		p := next(b.qp.Num())
		a.one(driver.Success)
		t.Logf("flow label %#x, class %#x, QPs %#x to %#x: %+v", label, class, a.qp.Num(), b.qp.Num(), p)
		if p.class != class {
			t.Errorf("traffic class %#x on the wire, want %#x", p.class, class)
		}
		follows := a.dev.Probe(driver.FeatureFlowLabelPort) == nil
		want := label
		if label == 0 {
			want = labelOf(a.qp.Num(), b.qp.Num())
		}
		if got := p.port == portOf(want); got != follows {
			t.Errorf("source port %d, by flow label %#x it would be %d; Probe says it follows: %v", p.port, want, portOf(want), follows)
		}
	}
}

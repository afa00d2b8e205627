package socketboot

import (
	"bytes"
	"net/netip"
	"path/filepath"
	"reflect"
	"testing"
)

type golden struct {
	file     string
	layout   Layout
	recorded bool
}

var goldens = []golden{
	{"nccl-2.25.1/handshake-qps1.txt", Layout225, true},
	{"nccl-2.25.1/handshake-qps4-gid0.txt", Layout225, true},
	{"nccl-2.25.1/handshake-merged1to2.txt", Layout225, true},
	{"derived/nccl-2.24.3.txt", Layout225, false},
	{"derived/nccl-2.26.6.txt", Layout226, false},
	{"derived/nccl-2.28.9.txt", Layout227, false},
	{"derived/nccl-2.29.3.txt", Layout229, false},
	{"derived/nccl-2.29.7.txt", Layout2297, false},
	{"derived/nccl-2.30.7.txt", Layout230, false},
}

func (g golden) load(t testing.TB) session {
	s := loadSession(t, filepath.Join("testdata", filepath.FromSlash(g.file)))
	if !g.recorded {
		s.handle = HandleFor(netip.MustParseAddrPort("192.0.2.1:40000"), Magic)
	}
	return s
}

func forGoldens(t *testing.T, f func(t *testing.T, g golden, s session)) {
	for _, g := range goldens {
		t.Run(g.file, func(t *testing.T) { f(t, g, g.load(t)) })
	}
}

// Each end, fed what the recorded other end sent, sends what the recorded end sent, in pieces of one byte and at once.
func TestGoldenBothEnds(t *testing.T) {
	forGoldens(t, func(t *testing.T, g golden, s session) {
		for name, cut := range map[string]func(int, int) int{"whole": whole, "bytes": func(int, int) int { return 1 }} {
			conn, acc := s.ends(t, g.layout)
			m := mustConnector(t, g.layout, s.handle, conn)
			sent, err := play(m, s.fromAcc, cut)
			if err != nil || !m.Done() {
				t.Fatalf("%s: connector in %s: %v", name, m.State(), err)
			}
			if !bytes.Equal(sent, s.fromConn) {
				t.Errorf("%s: connector sent other bytes, first at %d", name, firstDiff(sent, s.fromConn))
			}
			if want := []string{"Devices", "Prepare", "Ready"}; !reflect.DeepEqual(conn.calls, want) {
				t.Errorf("%s: connector's owner was asked %v, want %v", name, conn.calls, want)
			}
			m = mustAcceptor(t, g.layout, acc)
			sent, err = play(m, s.fromConn, cut)
			if err != nil || !m.Done() {
				t.Fatalf("%s: acceptor in %s: %v", name, m.State(), err)
			}
			if !bytes.Equal(sent, s.fromAcc) {
				t.Errorf("%s: acceptor sent other bytes, first at %d", name, firstDiff(sent, s.fromAcc))
			}
			if want := []string{"Devices", "Establish"}; !reflect.DeepEqual(acc.calls, want) {
				t.Errorf("%s: acceptor's owner was asked %v, want %v", name, acc.calls, want)
			}
			if !reflect.DeepEqual(*conn.peer, acc.md) || !reflect.DeepEqual(*acc.peer, conn.md) ||
				!reflect.DeepEqual(conn.peerDevs, acc.devs) || !reflect.DeepEqual(acc.peerDevs, conn.devs) {
				t.Errorf("%s: an owner was told something else than the other said", name)
			}
		}
	})
}

func TestRecordedValues(t *testing.T) {
	gid := func(s string) [16]byte { return netip.MustParseAddr(s).As16() }
	for _, c := range []struct {
		file      string
		listen    string
		conn, acc Metadata
		accDevs   []int32
	}{
		{"handshake-qps1.txt", "10.9.0.2:57935",
			Metadata{QPs: []QPInfo{{QPN: 136}}, Devs: []DevInfo{{Port: 1, MTU: 3, LinkLayer: LinkEthernet, GID: gid("::ffff:10.9.0.2"), FIFORKey: 0x1a091}},
				DevName: "rxe1", FIFOAddr: 0x55b774f72180},
			Metadata{QPs: []QPInfo{{QPN: 136}}, Devs: []DevInfo{{Port: 1, MTU: 3, LinkLayer: LinkEthernet, GID: gid("::ffff:10.9.0.1"), FIFORKey: 0x19180}},
				DevName: "rxe0", FIFOAddr: 0x55eac6bf83d8},
			[]int32{0}},
		{"handshake-qps4-gid0.txt", "10.9.0.2:52415",
			Metadata{QPs: []QPInfo{{QPN: 137}, {QPN: 138}, {QPN: 139}, {QPN: 140}},
				Devs:    []DevInfo{{Port: 1, MTU: 3, LinkLayer: LinkEthernet, GID: gid("fe80::a83b:afff:fe88:fe02"), FIFORKey: 0x1aa36}},
				DevName: "rxe1", FIFOAddr: 0x56207687d180},
			Metadata{QPs: []QPInfo{{QPN: 137}, {QPN: 138}, {QPN: 139}, {QPN: 140}},
				Devs:    []DevInfo{{Port: 1, MTU: 3, LinkLayer: LinkEthernet, GID: gid("fe80::6833:dff:fe91:b4f6"), FIFORKey: 0x19be7}},
				DevName: "rxe0", FIFOAddr: 0x55f9eaa893d8},
			[]int32{0}},
		{"handshake-merged1to2.txt", "10.9.0.2:56429",
			Metadata{QPs: []QPInfo{{QPN: 151}, {QPN: 152}},
				Devs:    []DevInfo{{Port: 1, MTU: 3, LinkLayer: LinkEthernet, GID: gid("::ffff:10.9.0.2"), FIFORKey: 0x1d2bb}},
				DevName: "rxe1", FIFOAddr: 0x5603c7a65180},
			Metadata{QPs: []QPInfo{{QPN: 151}, {QPN: 153, DevIndex: 1}},
				Devs: []DevInfo{{Port: 1, MTU: 3, LinkLayer: LinkEthernet, GID: gid("::ffff:10.9.0.1"), FIFORKey: 0x1c3ae},
					{Port: 1, MTU: 3, LinkLayer: LinkEthernet, GID: gid("::ffff:10.9.0.2"), FIFORKey: 0x1d46d}},
				DevName: "rxe0+rxe1", FIFOAddr: 0x55d6778053d8},
			[]int32{0, 1}},
	} {
		s := golden{"nccl-2.25.1/" + c.file, Layout225, true}.load(t)
		conn, acc := s.ends(t, Layout225)
		if !reflect.DeepEqual(conn.md, c.conn) {
			t.Errorf("%s: connector: got %+v, want %+v", c.file, conn.md, c.conn)
		}
		if !reflect.DeepEqual(acc.md, c.acc) {
			t.Errorf("%s: acceptor: got %+v, want %+v", c.file, acc.md, c.acc)
		}
		if !reflect.DeepEqual(conn.devs.Devs, []int32{1}) || !reflect.DeepEqual(acc.devs.Devs, c.accDevs) {
			t.Errorf("%s: device lists %v and %v", c.file, conn.devs, acc.devs)
		}
		listen := netip.MustParseAddrPort(c.listen)
		if err := s.handle.Check(); err != nil || s.handle.Addr() != listen || s.handle.Magic() != Magic {
			t.Errorf("%s: handle %s, magic %#x: %v", c.file, s.handle.Addr(), s.handle.Magic(), err)
		}
		if HandleFor(listen, Magic) != s.handle {
			t.Errorf("%s: HandleFor makes another handle", c.file)
		}
	}
}

// derivedMetadata is what the program that made testdata/derived filled in.
func derivedMetadata(l Layout, from Role) (DevList, Metadata) {
	gid := func(last byte) [16]byte { return netip.AddrFrom4([4]byte{192, 0, 2, last}).As16() }
	md := Metadata{DevName: "mlx5_4+mlx5_5", FIFOAddr: 0x7f5566778800}
	devs := DevList{Devs: []int32{4, 5}, OOORQ: l == Layout230}
	ece := ECE{0x2c9, 0x30000002, 7}
	qpn, rkey, mtu, last := uint32(0x1234), uint32(0x01020304), uint8(5), byte(10)
	if from == Acceptor {
		md = Metadata{DevName: "mlx5_7", FIFOAddr: 0x7f0011223344}
		devs = DevList{Devs: []int32{7}}
		ece.Options++
		qpn, rkey, mtu, last = 0xabc000, 0x01021304, 4, 20
	}
	for i := range 4 {
		md.QPs = append(md.QPs, QPInfo{QPN: qpn + uint32(i), DevIndex: i % len(devs.Devs)})
	}
	md.QPs[0].ECE, md.QPs[0].ECESupported = ece, true
	for i := range devs.Devs {
		md.Devs = append(md.Devs, DevInfo{Port: uint8(1 + i), MTU: mtu, LinkLayer: LinkEthernet, GID: gid(last + byte(i)), FIFORKey: rkey + uint32(i)})
	}
	if l >= Layout226 {
		md.TrafficClass, md.ServiceLevel = 106, 3
	}
	return devs, md
}

func TestDerivedValues(t *testing.T) {
	forGoldens(t, func(t *testing.T, g golden, s session) {
		if g.recorded {
			return
		}
		conn, acc := s.ends(t, g.layout)
		for from, got := range map[Role]*fake{Connector: conn, Acceptor: acc} {
			devs, md := derivedMetadata(g.layout, from)
			if !reflect.DeepEqual(got.devs, devs) {
				t.Errorf("%s: device list %+v, want %+v", from, got.devs, devs)
			}
			if !reflect.DeepEqual(got.md, md) {
				t.Errorf("%s: got %+v, want %+v", from, got.md, md)
			}
		}
	})
}

// One recording is split at every byte, the others at some.
func TestEverySplitPoint(t *testing.T) {
	forGoldens(t, func(t *testing.T, g golden, s session) {
		conn, acc := s.ends(t, g.layout)
		stride := 1
		if g != goldens[0] {
			stride = 41
		}
		for split := 1; split < len(s.fromConn); split += stride {
			cut := func(at, wanted int) int { return split - at }
			if split < len(s.fromAcc) {
				m := mustConnector(t, g.layout, s.handle, conn)
				if sent, err := play(m, s.fromAcc, cut); err != nil || !bytes.Equal(sent, s.fromConn) {
					t.Fatalf("connector, split at %d: %v", split, err)
				}
			}
			m := mustAcceptor(t, g.layout, acc)
			if sent, err := play(m, s.fromConn, cut); err != nil || !bytes.Equal(sent, s.fromAcc) {
				t.Fatalf("acceptor, split at %d: %v", split, err)
			}
		}
	})
}

func firstDiff(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

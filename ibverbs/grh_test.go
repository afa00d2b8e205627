package ibverbs_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

func gid(s string) ibverbs.GID { return netip.MustParseAddr(s).As16() }

// ipv4 is a GRH area with an IPv4 header whose checksum is right, behind 20 bytes
// that begin as first says.
func ipv4(first byte, tos, ttl uint8, src, dst string) []byte {
	b := make([]byte, ibverbs.GRHSize)
	b[0] = first
	ip := b[20:]
	copy(ip, []byte{0x45, tos, 0, 68, 0, 0, 0x40, 0, ttl, 17})
	s, d := netip.MustParseAddr(src).As4(), netip.MustParseAddr(dst).As4()
	copy(ip[12:], s[:])
	copy(ip[16:], d[:])
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum%0xffff))
	return b
}

func ipv6(word uint32, next, hops uint8, src, dst string) []byte {
	b := binary.BigEndian.AppendUint32(nil, word)
	b = append(b, 0, 60, next, hops)
	s, d := gid(src), gid(dst)
	return append(append(b, s[:]...), d[:]...)
}

func TestAHAttrFromWC(t *testing.T) {
	ethernet := []ibverbs.GIDEntry{
		{GID: gid("fe80::1"), Index: 0, Type: ibverbs.GIDTypeRoCEv1},
		{GID: gid("fe80::1"), Index: 1, Type: ibverbs.GIDTypeRoCEv2},
		{GID: gid("::ffff:10.0.0.1"), Index: 2, Type: ibverbs.GIDTypeRoCEv1},
		{GID: gid("::ffff:10.0.0.1"), Index: 5, Type: ibverbs.GIDTypeRoCEv2},
	}
	infiniband := []ibverbs.GIDEntry{{GID: gid("fe80::1"), Index: 0}, {GID: gid("fe80::2"), Index: 3}}
	damaged := ipv4(0x60, 0, 64, "10.0.0.2", "10.0.0.1")
	damaged[31]++ // its checksum; what begins like IPv6 is then taken for it
	for name, c := range map[string]struct {
		link  ibverbs.LinkLayer
		wc    ibverbs.WC
		grh   []byte
		want  ibverbs.AHAttr
		errno error
		text  string
	}{
		"IPv4": {wc: ibverbs.WC{Flags: ibverbs.WCGRH, SL: 3}, grh: ipv4(0, 0x6a, 61, "10.0.0.2", "10.0.0.1"),
			want: ibverbs.AHAttr{DGID: gid("::ffff:10.0.0.2"), SGIDIndex: 5, Port: 1, TrafficClass: 0x6a, HopLimit: 61, SL: 3, IsGlobal: true}},
		"IPv4 behind what looks like IPv6": {wc: ibverbs.WC{Flags: ibverbs.WCGRH}, grh: ipv4(0x60, 0, 64, "10.0.0.2", "10.0.0.1"),
			want: ibverbs.AHAttr{DGID: gid("::ffff:10.0.0.2"), SGIDIndex: 5, Port: 1, HopLimit: 64, IsGlobal: true}},
		"IPv6": {wc: ibverbs.WC{Flags: ibverbs.WCGRH}, grh: ipv6(0x6abc1234, 17, 9, "fe80::77", "fe80::1"),
			want: ibverbs.AHAttr{DGID: gid("fe80::77"), SGIDIndex: 1, Port: 1, FlowLabel: 0xc1234, TrafficClass: 0xab, HopLimit: 9, IsGlobal: true}},
		"RoCE v1": {wc: ibverbs.WC{Flags: ibverbs.WCGRH}, grh: ipv6(0x60000000, 0x1b, 1, "fe80::77", "fe80::1"),
			want: ibverbs.AHAttr{DGID: gid("fe80::77"), SGIDIndex: 0, Port: 1, HopLimit: 1, IsGlobal: true}},
		"InfiniBand": {link: ibverbs.LinkInfiniBand, wc: ibverbs.WC{SLID: 7, SL: 2, PathBits: 1},
			want: ibverbs.AHAttr{DLID: 7, SL: 2, SrcPathBits: 1, Port: 1}},
		"InfiniBand across a router": {link: ibverbs.LinkInfiniBand, wc: ibverbs.WC{Flags: ibverbs.WCGRH, SLID: 7}, grh: ipv6(0x60000001, 0x1b, 3, "fe80::9", "fe80::2"),
			want: ibverbs.AHAttr{DLID: 7, DGID: gid("fe80::9"), SGIDIndex: 3, FlowLabel: 1, HopLimit: 3, Port: 1, IsGlobal: true}},
		"no GRH on Ethernet":     {errno: syscall.EINVAL, text: "WCGRH"},
		"a receive that failed":  {wc: ibverbs.WC{Status: ibverbs.WRFlushErr, Flags: ibverbs.WCGRH}, errno: syscall.EINVAL, text: "WR_FLUSH_ERR"},
		"39 bytes":               {wc: ibverbs.WC{Flags: ibverbs.WCGRH}, grh: make([]byte, 39), errno: syscall.EINVAL, text: "39 bytes, want 40"},
		"nothing":                {wc: ibverbs.WC{Flags: ibverbs.WCGRH}, grh: make([]byte, 40), errno: syscall.EINVAL, text: "neither IPv6 nor IPv4"},
		"IPv4 with options":      {wc: ibverbs.WC{Flags: ibverbs.WCGRH}, grh: func() []byte { b := ipv4(0, 0, 1, "10.0.0.2", "10.0.0.1"); b[20]++; return b }(), errno: syscall.EINVAL, text: "neither"},
		"a checksum that is off": {wc: ibverbs.WC{Flags: ibverbs.WCGRH}, grh: damaged, errno: syscall.EINVAL, text: "protocol 0"},
		"TCP":                    {wc: ibverbs.WC{Flags: ibverbs.WCGRH}, grh: ipv6(0x60000000, 6, 1, "fe80::77", "fe80::1"), errno: syscall.EINVAL, text: "protocol 6"},
		"another address":        {wc: ibverbs.WC{Flags: ibverbs.WCGRH}, grh: ipv4(0, 0, 1, "10.0.0.2", "10.0.0.3"), errno: syscall.EADDRNOTAVAIL, text: "no 10.0.0.3 of type RoCE v2"},
		"another type":           {wc: ibverbs.WC{Flags: ibverbs.WCGRH}, grh: ipv6(0x60000000, 17, 1, "fe80::77", "fe80::2"), errno: syscall.EADDRNOTAVAIL},
		"multicast":              {wc: ibverbs.WC{Flags: ibverbs.WCGRH}, grh: ipv4(0, 0, 1, "10.0.0.2", "239.1.2.3"), errno: syscall.EINVAL, text: "group 239.1.2.3"},
		"multicast of IPv6":      {wc: ibverbs.WC{Flags: ibverbs.WCGRH}, grh: ipv6(0x60000000, 17, 1, "fe80::77", "ff02::1"), errno: syscall.EINVAL, text: "group ff02::1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := memdriver.PortConfig{LinkLayer: ibverbs.LinkEthernet, GIDs: ethernet}
			if c.link == ibverbs.LinkInfiniBand {
				p = memdriver.PortConfig{LinkLayer: c.link, GIDs: infiniband}
			}
			dev := open(t, memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{{Ports: []memdriver.PortConfig{p}}}}))
			got, err := dev.AHAttrFromWC(1, &c.wc, c.grh)
			if c.errno != nil {
				var e *ibverbs.Error
				if !errors.As(err, &e) || !errors.Is(err, c.errno) || !strings.Contains(err.Error(), c.text) || e.Device != "mem0" {
					t.Errorf("GRH %s: %v, want %v and %q", hex.EncodeToString(c.grh), err, c.errno, c.text)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("%+v, %v\nwant %+v", got, err, c.want)
			}
		})
	}
	dev := open(t, memdriver.New(memdriver.Config{}))
	if _, err := dev.AHAttrFromWC(2, &ibverbs.WC{}, nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("port 2: %v", err)
	}
}

// Whatever 40 bytes come, there is a way or an error.
func FuzzAHAttrFromWC(f *testing.F) {
	f.Add(ipv4(0, 1, 2, "10.0.0.2", "10.77.0.1"))
	f.Add(ipv6(0x60000000, 17, 1, "fe80::77", "fe80::1"))
	dev, err := ibverbs.Open("mem0", ibverbs.WithDrivers(memdriver.New(memdriver.Config{})))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = dev.Close() })
	f.Fuzz(func(t *testing.T, grh []byte) {
		a, err := dev.AHAttrFromWC(1, &ibverbs.WC{Flags: ibverbs.WCGRH}, grh)
		if err == nil && (!a.IsGlobal || a.Port != 1 || a.FlowLabel > 0xfffff) {
			t.Errorf("%x gives %+v", grh, a)
		}
	})
}

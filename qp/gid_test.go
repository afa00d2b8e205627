package qp

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
)

// gid is the GID of an address.
func gid(addr string) ibverbs.GID { return netip.MustParseAddr(addr).As16() }

// at is an entry of RoCE v2.
func at(index int, addr, netdev string) ibverbs.GIDEntry {
	return ibverbs.GIDEntry{GID: gid(addr), Index: index, IfIndex: 2, Type: ibverbs.GIDTypeRoCEv2, NetDev: netdev}
}

// v1 is the same entry of RoCE v1.
func v1(e ibverbs.GIDEntry) ibverbs.GIDEntry { e.Type = ibverbs.GIDTypeRoCEv1; return e }

// away is the same entry with its net device out of sight.
func away(e ibverbs.GIDEntry) ibverbs.GIDEntry { e.NetDev = ""; return e }

// usual is the table of an adapter of RoCE with one IPv4 address.
var usual = []ibverbs.GIDEntry{
	v1(at(0, "fe80::1", "eth0")), at(1, "fe80::1", "eth0"), v1(at(2, "10.1.2.3", "eth0")), at(3, "10.1.2.3", "eth0"),
}

func TestChooseGID(t *testing.T) {
	for _, tt := range []struct {
		name  string
		table []ibverbs.GIDEntry
		want  GIDWant
		index int
		// why and whyNot are parts of the reasons.
		why    string
		whyNot map[int]string
	}{
		{name: "usual table", table: usual, index: 3, why: "RoCE v2 10.1.2.3 on eth0",
			whyNot: map[int]string{0: "RoCE v1", 1: "link-local", 2: "RoCE v1"}},
		{name: "slots between are empty or cannot be read", table: []ibverbs.GIDEntry{at(0, "fe80::1", "eth0"), at(7, "192.168.1.1", "eth0")},
			index: 7, whyNot: map[int]string{0: "link-local"}},
		{name: "link-local of v2 comes before routable", index: 3,
			table: []ibverbs.GIDEntry{v1(at(0, "fe80::1", "eth0")), at(1, "fe80::1", "eth0"), at(3, "fd00::1", "eth0")}},
		{name: "link-local of v2 beats routable address of v1", index: 1, why: "link-local, which no router forwards: there is none better",
			table: []ibverbs.GIDEntry{v1(at(0, "10.0.0.1", "eth0")), at(1, "fe80::1", "eth0")}},
		{name: "only IPv6", index: 2, table: []ibverbs.GIDEntry{at(0, "fe80::1", "eth0"), at(2, "fd93:16d3::1", "eth0")}},
		{name: "private addresses are routable", index: 4, whyNot: map[int]string{1: "link-local"},
			table: []ibverbs.GIDEntry{at(1, "fe80::1", "eth0"), at(4, "10.0.0.1", "eth0")}},
		{name: "unique local before link-local", index: 4, table: []ibverbs.GIDEntry{at(1, "fe80::1", "eth0"), at(4, "fd00::1", "eth0")}},
		{name: "IPv4 link-local is link-local", index: 2, table: []ibverbs.GIDEntry{at(1, "169.254.1.1", "eth0"), at(2, "2001:db8::1", "eth0")}},
		{name: "IPv4 before IPv6", index: 5, table: []ibverbs.GIDEntry{at(4, "2001:db8::1", "eth0"), at(5, "10.0.0.1", "eth0")},
			whyNot: map[int]string{4: "IPv6"}},
		{name: "one address on two net devices", index: 6, whyNot: map[int]string{4: `on net device "vxlan0", not the port's own`},
			table: []ibverbs.GIDEntry{at(0, "fe80::1", "bond0"), at(4, "10.0.0.1", "vxlan0"), at(6, "10.0.0.1", "bond0")}},
		{name: "by net device", index: 4, want: GIDWant{NetDev: "vxlan0"}, whyNot: map[int]string{6: `"vxlan0"`},
			table: []ibverbs.GIDEntry{at(0, "fe80::1", "bond0"), at(4, "10.0.0.1", "vxlan0"), at(6, "10.0.0.1", "bond0")}},
		{name: "lower index", index: 3, whyNot: map[int]string{5: "index 3, which comes first"},
			table: []ibverbs.GIDEntry{at(5, "10.0.1.1", "eth0"), at(3, "10.0.0.1", "eth0")}},
		{name: "by family", index: 4, want: GIDWant{Family: IPv6}, whyNot: map[int]string{5: "IPv4, asked for was IPv6"},
			table: []ibverbs.GIDEntry{at(4, "2001:db8::1", "eth0"), at(5, "10.0.0.1", "eth0")}},
		{name: "by range", index: 5, want: GIDWant{Range: netip.MustParsePrefix("10.0.1.0/24")}, whyNot: map[int]string{3: "not in 10.0.1.0/24"},
			table: []ibverbs.GIDEntry{at(3, "10.0.0.1", "eth0"), at(5, "10.0.1.1", "eth0")}},
		{name: "by own rule", index: 2, want: GIDWant{Match: func(e ibverbs.GIDEntry) bool { return e.Type == ibverbs.GIDTypeRoCEv1 && e.Index > 0 }},
			table: usual, whyNot: map[int]string{3: "not what was asked for"}},
		{name: "net device in another namespace is passed over", index: 1, whyNot: map[int]string{3: "another network namespace"},
			table: []ibverbs.GIDEntry{at(1, "fe80::1", "eth0"), away(at(3, "10.0.0.1", ""))}},
		{name: "net device unknown", index: 3, why: "10.0.0.1", table: []ibverbs.GIDEntry{{GID: gid("10.0.0.1"), Index: 3, Type: ibverbs.GIDTypeRoCEv2}}},
		{name: "loopback, if there is nothing else", index: 2, table: []ibverbs.GIDEntry{at(2, "127.0.0.1", "lo")}},
		{name: "groups are no hosts, loopback is the last choice", index: 4, whyNot: map[int]string{1: "not the address of a host", 2: "loopback"},
			table: []ibverbs.GIDEntry{at(1, "239.0.0.1", "eth0"), at(2, "127.0.0.1", "eth0"), at(4, "fe80::1", "eth0")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := ChooseGID(tt.table, tt.want)
			if err != nil {
				t.Fatal(err)
			}
			if c.Index != tt.index || !strings.Contains(c.Reason, tt.why) {
				t.Errorf("chose %d, %q, want %d, %q", c.Index, c.Reason, tt.index, tt.why)
			}
			if len(c.Rejected) != len(tt.table)-1 {
				t.Errorf("%d reasons for %d others: %v", len(c.Rejected), len(tt.table)-1, c.Rejected)
			}
			for i, why := range tt.whyNot {
				if !strings.Contains(c.Rejected[i], why) {
					t.Errorf("index %d was rejected since %q, want %q", i, c.Rejected[i], why)
				}
			}
		})
	}
}

func TestChooseNoGID(t *testing.T) {
	for _, tt := range []struct {
		name  string
		table []ibverbs.GIDEntry
		want  GIDWant
		says  []string
	}{
		{"empty table", nil, GIDWant{}, []string{"table is empty", "another network namespace"}},
		{"all in another namespace", []ibverbs.GIDEntry{away(at(0, "fe80::1", "")), away(at(1, "10.0.0.1", ""))}, GIDWant{},
			[]string{"its net device lives in another network namespace", "run in the network namespace"}},
		{"no such family", []ibverbs.GIDEntry{at(0, "fe80::1", "eth0")}, GIDWant{Family: IPv4}, []string{"fe80::1 on eth0: IPv6, asked for was IPv4", "ask for less"}},
		{"no such range", usual, GIDWant{Range: netip.MustParsePrefix("192.168.0.0/16")}, []string{"not in 192.168.0.0/16"}},
		{"no such net device", usual, GIDWant{NetDev: "eth1"}, []string{`on net device "eth0", asked for was "eth1"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ChooseGID(tt.table, tt.want)
			var e *ibverbs.Error
			if !errors.Is(err, ErrNoGID) || !errors.As(err, &e) || e.Hint == "" {
				t.Fatalf("%v", err)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
		})
	}
}

func TestChooseGIDKeepsTable(t *testing.T) {
	table := []ibverbs.GIDEntry{at(5, "10.0.1.1", "eth0"), at(3, "10.0.0.1", "eth0")}
	if _, err := ChooseGID(table, GIDWant{}); err != nil || table[0].Index != 5 {
		t.Errorf("%v, %v", table, err)
	}
}

func TestGIDByIndex(t *testing.T) {
	p := Defaults()
	WithGIDIndex(1)(&p)
	c, err := p.ChooseGID(ibverbs.LinkEthernet, usual)
	if err != nil || c.Index != 1 || len(c.Rejected) != 3 || !strings.Contains(c.Reason, "asked for by index") {
		t.Errorf("%+v, %v", c, err)
	}
	for _, i := range []int{4, 255} {
		WithGIDIndex(i)(&p)
		if _, err := p.ChooseGID(ibverbs.LinkEthernet, append([]ibverbs.GIDEntry{{Index: 4}}, usual...)); !errors.Is(err, ErrNoGID) ||
			!strings.Contains(err.Error(), "10.1.2.3") {
			t.Errorf("index %d: %v", i, err)
		}
	}
}

// TestChooseGIDAsNCCL has the consequences that the rule is known for.
func TestChooseGIDAsNCCL(t *testing.T) {
	ib := func(index int, prefix uint64, low byte) ibverbs.GIDEntry {
		e := ibverbs.GIDEntry{Index: index, Type: ibverbs.GIDTypeIB, GID: ibverbs.GID{15: low}}
		for i := range 8 {
			e.GID[i] = byte(prefix >> (56 - 8*i))
		}
		return e
	}
	for _, tt := range []struct {
		name  string
		table []ibverbs.GIDEntry
		want  GIDWant
		index int
	}{
		{"first IPv4 of v2", usual, GIDWant{}, 3},
		{"first of several IPv4 addresses", append([]ibverbs.GIDEntry{at(5, "10.9.0.1", "eth1")}, usual...), GIDWant{}, 3},
		{"by range", append([]ibverbs.GIDEntry{at(5, "10.9.0.1", "eth1")}, usual...), GIDWant{Range: netip.MustParsePrefix("10.9.0.0/16")}, 5},
		{"only IPv6 stays at index 0", []ibverbs.GIDEntry{at(0, "fe80::1", "eth0"), at(2, "fd00::1", "eth0")}, GIDWant{}, 0},
		{"IPv6 when asked for", []ibverbs.GIDEntry{at(0, "fe80::1", "eth0"), at(2, "fd00::1", "eth0")}, GIDWant{Family: IPv6}, 2},
		{"v1 of the family is passed through", []ibverbs.GIDEntry{v1(at(0, "fe80::1", "eth0")), v1(at(1, "10.0.0.1", "eth0")), at(2, "10.0.0.1", "eth0")}, GIDWant{}, 2},
		{"InfiniBand", []ibverbs.GIDEntry{ib(0, 0xfe80000000000000, 1), ib(1, 0xfe80000000000000, 1)}, GIDWant{}, 0},
		{"InfiniBand with a routable FLID", []ibverbs.GIDEntry{ib(0, 0xfe80000000000000, 1), ib(1, 0xfec0000012340001, 1)}, GIDWant{}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.AsNCCL = true
			c, err := ChooseGID(tt.table, tt.want)
			if err != nil || c.Index != tt.index || len(c.Rejected) != len(tt.table)-1 {
				t.Errorf("%+v, %v, want %d", c, err, tt.index)
			}
		})
	}
	for name, table := range map[string][]ibverbs.GIDEntry{"empty table": nil, "index 0 empty": {at(2, "fd00::1", "eth0")}} {
		if c, err := ChooseGIDAsNCCL(table, GIDWant{}); !errors.Is(err, ErrNoGID) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

package socketboot

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
)

func iface(name string, flags net.Flags, addrs ...string) Interface {
	i := Interface{Name: name, Flags: flags}
	for _, a := range addrs {
		i.Addrs = append(i.Addrs, netip.MustParseAddr(a))
	}
	return i
}

func TestChooseInterface(t *testing.T) {
	const up, lo, ptp = net.FlagUp, net.FlagUp | net.FlagLoopback, net.FlagUp | net.FlagPointToPoint
	host := []Interface{
		iface("lo", lo, "127.0.0.1", "::1"),
		iface("docker0", up, "172.17.0.1", "fe80::d"),
		iface("eth0", up, "fe80::1", "2001:db8::1", "192.0.2.1"),
		iface("eth1", up, "192.0.2.2"),
		iface("ib0", up, "198.51.100.1", "fe80::2"),
	}
	without := func(ifs []Interface, names ...string) (out []Interface) {
		for _, i := range ifs {
			if !strings.Contains(","+strings.Join(names, ",")+",", ","+i.Name+",") {
				out = append(out, i)
			}
		}
		return out
	}
	for _, c := range []struct {
		why    string
		ifs    []Interface
		ifName string
		family Family
		want   string // interface and address; empty for none
	}{
		{"names that start with ib", host, "", "", "ib0 198.51.100.1"},
		{"then any ordinary one", without(host, "ib0"), "", "", "eth0 2001:db8::1"},
		{"of the family asked for", without(host, "ib0"), "", FamilyIPv4, "eth0 192.0.2.1"},
		{"IPv6 asked for, ib0 has only link-local", host, "", FamilyIPv6, "eth0 2001:db8::1"},
		{"then docker", without(host, "ib0", "eth0", "eth1"), "", "", "docker0 172.17.0.1"},
		{"then loopback", host[:1], "", "", "lo 127.0.0.1"},
		{"IPv6 loopback is for those who ask", host[:1], "", FamilyIPv6, "lo ::1"},
		{"nothing", nil, "", "", ""},
		{"prefix", host, "eth", "", "eth0 2001:db8::1"},
		{"whole name", host, "=eth1", "", "eth1 192.0.2.2"},
		{"whole name only", host, "=eth", "", ""},
		{"prefix takes eth10 too", []Interface{iface("eth10", up, "192.0.2.3"), host[3]}, "eth1", "", "eth10 192.0.2.3"},
		{"list", host, "eno, eth1", "", "eth1 192.0.2.2"},
		{"order is the system's, not the list's", host, "=eth1,eth0", "", "eth0 2001:db8::1"},
		{"set by hand beats all rules", host, "docker", "", "docker0 172.17.0.1"},
		{"set by hand, loopback", host, "lo", "", "lo 127.0.0.1"},
		{"set by hand and absent", host, "bond0", "", ""},
		{"set by hand, without the family", host, "=eth1", FamilyIPv6, ""},
		{"excluded", host, "^ib", "", "eth0 2001:db8::1"},
		{"excluded, whole names", host, "^=ib,eth0,ib0", "", "eth1 192.0.2.2"},
		{"excluded all but loopback", host, "^ib,eth,docker", "", "lo 127.0.0.1"},
		{"empty items", host, ",,", "", "ib0 198.51.100.1"},
		{"only a sign", host, "^", "", "ib0 198.51.100.1"},
		{"unknown family", host, "", "AF_UNIX", ""},
		{"down", []Interface{iface("eth0", 0, "192.0.2.1"), host[0]}, "", "", "lo 127.0.0.1"},
		{"link-local ib1 after eth1", []Interface{iface("ib1", up, "fe80::9"), host[3]}, "", "", "eth1 192.0.2.2"},
		{"link-local before docker", []Interface{host[1], iface("eth2", up, "fe80::7")}, "", "", "eth2 fe80::7%eth2"},
		{"169.254 after the others", []Interface{iface("usb0", up, "169.254.3.4"), host[3]}, "", "", "eth1 192.0.2.2"},
		{"169.254 if there is nothing else", []Interface{iface("usb0", up, "169.254.3.4"), host[0]}, "", "", "usb0 169.254.3.4"},
		{"tunnel by name", []Interface{iface("ip6tnl0", up, "2001:db8::9"), host[3]}, "", "", "eth1 192.0.2.2"},
		{"tunnel by kind", []Interface{iface("office", ptp, "192.0.2.99"), host[3]}, "", "", "eth1 192.0.2.2"},
		{"bridges and pairs", []Interface{iface("br-1f", up, "172.18.0.1"), iface("veth9", up, "172.18.0.2"), iface("virbr0", up, "192.168.122.1"), host[3]}, "", "", "eth1 192.0.2.2"},
		{"virtual ones keep their order", []Interface{host[0], iface("veth9", up, "172.18.0.2"), iface("br-1f", up, "172.18.0.1")}, "", "", "veth9 172.18.0.2"},
		{"an announced host address", []Interface{iface("lo", lo, "127.0.0.1", "203.0.113.5")}, "", "", "lo 203.0.113.5"},
		{"it does not beat a network", []Interface{iface("lo", lo, "127.0.0.1", "203.0.113.5"), host[3]}, "", "", "eth1 192.0.2.2"},
		{"mapped address", []Interface{iface("eth0", up, "::ffff:192.0.2.1")}, "", FamilyIPv4, "eth0 192.0.2.1"},
		{"no address", []Interface{iface("eth0", up), host[0]}, "", "", "lo 127.0.0.1"},
	} {
		got, err := ChooseInterface(c.ifs, c.ifName, c.family)
		if c.want == "" {
			if err == nil {
				t.Errorf("%s: chose %s", c.why, got.Interface.Name)
			} else if c.family != "AF_UNIX" && !errors.Is(err, ErrNoInterface) {
				t.Errorf("%s: %v", c.why, err)
			}
			continue
		}
		if s := got.Interface.Name + " " + got.Addr.String(); err != nil || s != c.want || got.Why == "" {
			t.Errorf("%s: chose %s (%s), want %s: %v", c.why, s, got.Why, c.want, err)
		}
	}
}

func TestSystemInterfaces(t *testing.T) {
	ifs, err := SystemInterfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range ifs {
		for _, a := range i.Addrs {
			if !a.IsValid() || a.Is4In6() {
				t.Errorf("%s has %v", i.Name, a)
			}
		}
	}
}

func FuzzChooseInterface(f *testing.F) {
	for _, s := range []string{"", "eth0", "^=eth,lo", "=,,^", "^^==a"} {
		f.Add(s)
	}
	ifs := []Interface{iface("lo", net.FlagUp|net.FlagLoopback, "127.0.0.1"), iface("eth0", net.FlagUp, "192.0.2.1")}
	f.Fuzz(func(t *testing.T, ifName string) {
		c, err := ChooseInterface(ifs, ifName, AnyFamily)
		if (err == nil) != c.Addr.IsValid() {
			t.Errorf("%q: %v, %v", ifName, c, err)
		}
	})
}

// Addresses that cannot be read for want of a descriptor are an error, and not an interface less to choose from.
func TestInterfacesWithoutDescriptors(t *testing.T) {
	list := func() ([]net.Interface, error) { return []net.Interface{{Name: "eth0"}, {Name: "gone0"}}, nil }
	for err, want := range map[error]bool{syscall.EMFILE: true, syscall.ENFILE: true, syscall.ENODEV: false} {
		ifs, got := listInterfaces(list, func(i *net.Interface) ([]net.Addr, error) {
			return nil, &net.OpError{Op: "route", Net: "ip+net", Err: os.NewSyscallError("netlinkrib", err)}
		})
		if errors.Is(got, err) != want || want && !strings.Contains(got.Error(), "eth0") || len(ifs) != 0 {
			t.Errorf("%v: %v, %v", err, ifs, got)
		}
	}
}

// Where ::1 is all that there is the error says how to take it.
func TestOnlyIPv6Loopback(t *testing.T) {
	_, err := ChooseInterface([]Interface{iface("lo", net.FlagUp|net.FlagLoopback, "::1")}, "", AnyFamily)
	if !errors.Is(err, ErrNoInterface) || !strings.Contains(err.Error(), "NCCL_SOCKET_FAMILY=AF_INET6") {
		t.Error(err)
	}
}

package socketboot

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// Interface is a network interface as far as the choice among them needs it.
type Interface struct {
	Name  string
	Index int
	Flags net.Flags
	Addrs []netip.Addr // in the system's order, without zones
}

// Family restricts the choice to an address family, by the values of NCCL_SOCKET_FAMILY.
type Family string

// The families; any other value is an error.
const (
	AnyFamily  Family = ""
	FamilyIPv4 Family = "AF_INET"
	FamilyIPv6 Family = "AF_INET6"
)

// ErrNoInterface is in the error of a choice among none.
var ErrNoInterface = errors.New("no usable network interface")

// Choice is an interface, the address of it to use, and the reason in words.
type Choice struct {
	Interface Interface
	Addr      netip.Addr // with the interface as zone if it is IPv6 link-local
	Why       string
}

// rank orders interfaces, the least is the best.
type rank int

const (
	rankInfiniBand rank = iota // a name that starts with ib
	rankOrdinary
	rankLinkLocal // no routable address
	rankVirtual   // container bridges, tunnels
	rankVirtualLinkLocal
	rankLoopback
	rankUnusable // down, or no address of the family
)

func (r rank) String() string {
	return [...]string{"IP over InfiniBand", "ordinary interface", "only link-local addresses", "container bridge or tunnel",
		"container bridge or tunnel with link-local addresses", "loopback", "unusable"}[r]
}

// ChooseInterface finds the interface that a listener binds to, following NCCL: names set by hand win; else names that start
// with "ib"; else the first that is not docker or loopback; else docker; else loopback.
//
// ifName has the syntax of NCCL_SOCKET_IFNAME: prefixes separated by commas, "=" in front of the list makes them whole names,
// "^" in front excludes them. If it names interfaces and none of them is usable, that is an error, as in NCCL; if it only
// excludes some, the order above holds among the rest.
//
// It departs from NCCL where users were led astray: an interface with only link-local addresses, container bridges (docker, veth,
// br-, virbr, cni, flannel, cali) and tunnels come after all others, even if their name starts with "ib"; and on one interface a
// routable address goes before a link-local one. NCCL takes the first address of the first interface.
func ChooseInterface(ifs []Interface, ifName string, family Family) (Choice, error) {
	if family != AnyFamily && family != FamilyIPv4 && family != FamilyIPv6 {
		return Choice{}, fmt.Errorf("socketboot: NCCL_SOCKET_FAMILY is %q, want AF_INET or AF_INET6", string(family))
	}
	names := parseNames(ifName)
	var best Choice
	bestRank := rankUnusable
	var refused []string
	for _, i := range ifs {
		if !names.allow(i.Name) {
			continue
		}
		addr, r := i.rate(family, names.explicit())
		if r == rankUnusable {
			refused = append(refused, i.Name+i.hintLoopback6(family))
			continue
		}
		if r < bestRank || bestRank == rankUnusable {
			best, bestRank = Choice{Interface: i, Addr: addr}, r
		}
		if names.explicit() {
			break
		}
	}
	if bestRank == rankUnusable {
		what := "of this machine"
		if ifName != "" {
			what = fmt.Sprintf("fits NCCL_SOCKET_IFNAME=%s", ifName)
		}
		if len(refused) > 0 {
			return Choice{}, fmt.Errorf("socketboot: %w %s (down or without an address of the family: %s)", ErrNoInterface, what,
				strings.Join(refused, ", "))
		}
		return Choice{}, fmt.Errorf("socketboot: %w %s", ErrNoInterface, what)
	}
	best.Why = bestRank.String()
	if names.explicit() {
		best.Why = "first that fits NCCL_SOCKET_IFNAME=" + ifName
	}
	if best.Addr.Is6() && best.Addr.IsLinkLocalUnicast() {
		best.Addr = best.Addr.WithZone(best.Interface.Name)
	}
	return best, nil
}

// rate picks the address of an interface and ranks it. A name set by hand makes even IPv6 loopback usable.
func (i *Interface) rate(family Family, byHand bool) (netip.Addr, rank) {
	if i.Flags&net.FlagUp == 0 {
		return netip.Addr{}, rankUnusable
	}
	loopback := i.Flags&net.FlagLoopback != 0 || strings.HasPrefix(i.Name, "lo")
	var linkLocal, loopbackAddr netip.Addr
	for _, a := range i.Addrs {
		a = a.Unmap()
		switch {
		case family == FamilyIPv4 && !a.Is4(), family == FamilyIPv6 && !a.Is6(), a.IsUnspecified(), a.IsMulticast():
		case a.IsLoopback() && a.Is6() && !byHand && family != FamilyIPv6: // skipped, as NCCL does; hintLoopback6
		case a.IsLinkLocalUnicast():
			if !linkLocal.IsValid() {
				linkLocal = a
			}
		case a.IsLoopback():
			if !loopbackAddr.IsValid() {
				loopbackAddr = a
			}
		case loopback: // a host address that routing protocols announce
			return a, rankLoopback
		case virtual(i):
			return a, rankVirtual
		case strings.HasPrefix(i.Name, "ib"):
			return a, rankInfiniBand
		default:
			return a, rankOrdinary
		}
	}
	switch {
	case loopbackAddr.IsValid():
		return loopbackAddr, rankLoopback
	case !linkLocal.IsValid():
		return linkLocal, rankUnusable
	case virtual(i) || loopback:
		return linkLocal, rankVirtualLinkLocal
	}
	return linkLocal, rankLinkLocal
}

// hintLoopback6 says how to take an interface that is refused because of all addresses it has only ::1.
func (i *Interface) hintLoopback6(family Family) string {
	if family == AnyFamily && i.Flags&net.FlagUp != 0 && slices.Contains(i.Addrs, netip.IPv6Loopback()) {
		return ", whose ::1 is taken with NCCL_SOCKET_FAMILY=AF_INET6"
	}
	return ""
}

func (i *Interface) linkLocal() bool {
	return i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 &&
		slices.ContainsFunc(i.Addrs, func(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() })
}

var virtualPrefixes = []string{"docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "vxlan", "tun", "tap", "wg", "ip6tnl",
	"tunl", "sit", "gre", "erspan", "ip_vti", "ip6_vti", "tailscale", "utun", "lxc", "kube-"}

func virtual(i *Interface) bool {
	return i.Flags&net.FlagPointToPoint != 0 ||
		slices.ContainsFunc(virtualPrefixes, func(p string) bool { return strings.HasPrefix(i.Name, p) })
}

// names is a parsed NCCL_SOCKET_IFNAME.
type names struct {
	list           []string
	exclude, exact bool
}

func parseNames(s string) names {
	var n names
	s, n.exclude = strings.CutPrefix(s, "^")
	s, n.exact = strings.CutPrefix(s, "=")
	for p := range strings.SplitSeq(s, ",") {
		if p = strings.TrimSpace(p); p != "" {
			n.list = append(n.list, p)
		}
	}
	return n
}

func (n names) explicit() bool { return len(n.list) > 0 && !n.exclude }

func (n names) allow(name string) bool {
	if len(n.list) == 0 {
		return true
	}
	hit := slices.ContainsFunc(n.list, func(p string) bool { return name == p || !n.exact && strings.HasPrefix(name, p) })
	return hit != n.exclude
}

// SystemInterfaces lists the interfaces of the machine and their addresses. One that vanishes meanwhile is left out.
func SystemInterfaces() ([]Interface, error) {
	return listInterfaces(net.Interfaces, (*net.Interface).Addrs)
}

func listInterfaces(list func() ([]net.Interface, error), addrsOf func(*net.Interface) ([]net.Addr, error)) ([]Interface, error) {
	sys, err := list()
	if err != nil {
		return nil, fmt.Errorf("socketboot: list network interfaces: %w", err)
	}
	var out []Interface
	for _, s := range sys {
		addrs, err := addrsOf(&s)
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) { // it is there, and not to be passed over
			return nil, fmt.Errorf("socketboot: list the addresses of %s: %w", s.Name, err)
		}
		if err != nil {
			continue
		}
		i := Interface{Name: s.Name, Index: s.Index, Flags: s.Flags}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				i.Addrs = append(i.Addrs, p.Addr().Unmap())
			}
		}
		out = append(out, i)
	}
	return out, nil
}

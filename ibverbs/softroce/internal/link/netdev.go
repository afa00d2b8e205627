package link

import (
	"net"
	"net/netip"
)

// Netdev is what a link needs to know of a network device.
type Netdev struct {
	Name     string
	Index    int
	MTU      int
	Loopback bool
	Prefixes []netip.Prefix // its addresses with their networks
}

// netdevOf is the device that has an address. Linux has all addresses of a
// loopback device's networks.
func netdevOf(devs []Netdev, addr netip.Addr) (Netdev, bool) {
	zone := addr.Zone()
	addr = addr.WithZone("")
	for _, d := range devs {
		if zone != "" && zone != d.Name {
			continue
		}
		for _, p := range d.Prefixes {
			if p.Addr() == addr || d.Loopback && addr.Is4() && p.Contains(addr) {
				return d, true
			}
		}
	}
	return Netdev{}, false
}

func systemNetdevs() ([]Netdev, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	devs := make([]Netdev, 0, len(ifs))
	for _, i := range ifs {
		d := Netdev{Name: i.Name, Index: i.Index, MTU: i.MTU, Loopback: i.Flags&net.FlagLoopback != 0}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it went away meanwhile
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				ip, ok := netip.AddrFromSlice(n.IP)
				if ones, bits := n.Mask.Size(); ok && bits > 0 {
					d.Prefixes = append(d.Prefixes, netip.PrefixFrom(ip.Unmap(), ones))
				}
			}
		}
		devs = append(devs, d)
	}
	return devs, nil
}

package link

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"syscall"
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

// localDevice is the network device of the address that a link is to have; list
// and sys are nil for those of the system. A hint comes with an error.
func localDevice(addr netip.Addr, list func() ([]Netdev, error), sys fs.FS) (dev Netdev, hint string, err error) {
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
		return dev, "a device has one address of this host, for it is inside every packet's checksum", syscall.EADDRNOTAVAIL
	}
	if list == nil {
		list = systemNetdevs
	}
	devs, err := list()
	if err != nil {
		return dev, "the network devices cannot be listed", err
	}
	dev, ok := netdevOf(devs, addr)
	switch {
	case !ok && addr.IsLoopback():
		return dev, "loopback is down, as in a new network namespace, or does not have the address: ip link set lo up (ip addr add 127.0.0.1/8 dev lo)", syscall.EADDRNOTAVAIL
	case !ok:
		return dev, "no network device has this address; on Linux any of 127.0.0.0/8 is there without set-up", syscall.EADDRNOTAVAIL
	}
	if dev.Loopback {
		return dev, "", nil
	}
	if a := adapterOf(sys, dev.Name); a != "" {
		return dev, a + " does RoCE for " + dev.Name + " in hardware and takes the packets to port 4791: open " + a +
			", or take an address of another network device, or switch its RoCE off (devlink dev param, enable_roce)", syscall.EBUSY
	}
	return dev, "", nil
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
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			return nil, err
		}
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

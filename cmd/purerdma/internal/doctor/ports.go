package doctor

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"

	"github.com/purerdma/purerdma/cmd/purerdma/internal/inventory"
)

// eachPort calls f for the ports that could be asked, by their names.
func (w *World) eachPort(f func(name string, d *inventory.Device, p *inventory.Port)) {
	for i := range w.Devices {
		d := &w.Devices[i]
		for j := range d.Ports {
			if p := &d.Ports[j]; p.Problem == "" {
				f(fmt.Sprintf("%s/%d", d.Name, p.Number), d, p)
			}
		}
	}
}

const (
	active   = "ACTIVE"
	ethernet = "Ethernet"
	roceV2   = "RoCE v2"
)

var somePorts = subject{"there is no port to look at", func(w *World) bool {
	return slices.ContainsFunc(w.Devices, func(d inventory.Device) bool { return len(d.Ports) > 0 })
}}

func ports(w *World) (found []Finding) {
	for _, d := range w.Devices {
		for _, p := range d.Ports {
			if p.Problem != "" {
				found = append(found, problem(fmt.Sprintf("%s/%d", d.Name, p.Number), "look at dmesg, and load the device's driver anew", "it cannot be asked: %s", p.Problem))
			}
		}
	}
	w.eachPort(func(name string, _ *inventory.Device, p *inventory.Port) {
		switch {
		case p.State == active:
		case p.LinkLayer == ethernet:
			found = append(found, problem(name, "ip link set "+first(p)+" up, and look at the cable and the switch", "the port is %s", p.State))
		default:
			found = append(found, problem(name, "look at the cable, the switch and the subnet manager (sminfo)", "the port is %s", p.State))
		}
	})
	return found
}

// first is the net device of a port, a word for it if it is not known.
func first(p *inventory.Port) string {
	for _, g := range p.GIDs {
		if g.NetDev != "" {
			return g.NetDev
		}
	}
	return "NETDEV"
}

func gids(w *World) (found []Finding) {
	w.eachPort(func(name string, d *inventory.Device, p *inventory.Port) {
		if p.LinkLayer != ethernet || p.State != active {
			return
		}
		byType, routable, hidden := map[string]int{}, 0, 0
		addresses := map[string]map[string]bool{} // net device, addresses
		for _, g := range p.GIDs {
			byType[g.Type]++
			if g.NetDev == "" {
				hidden++
			}
			a, err := netip.ParseAddr(g.GID)
			if err != nil || g.Type != roceV2 {
				continue
			}
			if a = a.Unmap(); !a.IsLinkLocalUnicast() {
				routable++
				if addresses[g.NetDev] == nil {
					addresses[g.NetDev] = map[string]bool{}
				}
				addresses[g.NetDev][a.String()] = true
			}
		}
		switch {
		case len(p.GIDs) == 0:
			found = append(found, problem(name, "ip link set its net device up and give it an address", "the port has no GID"))
		case byType[roceV2] == 0:
			found = append(found, problem(name, "set the adapter or the peer to RoCE v2, or use RoCE v1 within one Ethernet segment",
				"the port has GIDs of RoCE v1 only"))
		case routable == 0:
			found = append(found, problem(name, "give the net device an address: ip address add 192.0.2.1/24 dev "+first(p),
				"the port has link-local GIDs only: peers in other subnets do not reach it"))
		}
		if hidden == len(p.GIDs) && hidden > 0 && !d.Software {
			found = append(found, hint(name, "start the container with --network=host, or move the net device into it",
				"the net device of its GIDs is in another network namespace"))
		}
		for dev, as := range addresses {
			if len(as) > 2 {
				found = append(found, hint(name, "choose the GID by its index or address, the same at each start",
					"%d addresses are on net device %s: which GID has which index depends on their order", len(as), dev))
			}
		}
	})
	return found
}

// headers is the room that a RoCE v2 packet needs in an Ethernet frame beside its payload, as the kernel counts it.
const headers = 80

func mtu(w *World) (found []Finding) {
	w.eachPort(func(name string, d *inventory.Device, p *inventory.Port) {
		if p.LinkLayer != ethernet || p.State != active || d.Driver == "softroce" {
			return
		}
		dev := first(p)
		frame, err := strconv.Atoi(w.word(path.Join("sys/class/net", dev), "mtu"))
		if err != nil {
			return // the net device is elsewhere
		}
		fits := 0
		for m := 256; m <= 4096 && m+headers <= frame; m *= 2 {
			fits = m
		}
		switch {
		case fits == 0:
			found = append(found, problem(name, fmt.Sprintf("ip link set %s mtu 1500", dev), "MTU %d of %s holds no RoCE packet", frame, dev))
		case p.ActiveMTU < fits:
			found = append(found, hint(name, "set the port's MTU anew: ip link set "+dev+" down, then up",
				"packets have %d bytes of payload, and MTU %d of %s would hold %d", p.ActiveMTU, frame, dev, fits))
		case fits < 4096 && !d.Software:
			found = append(found, hint(name, fmt.Sprintf("ip link set %s mtu 4200, if the switches carry it", dev),
				"packets have %d bytes of payload; larger ones cost less", p.ActiveMTU))
		}
	})
	return found
}

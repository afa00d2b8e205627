package nettransport

import (
	"errors"
	"fmt"
	"strings"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/qp"
	"github.com/purerdma/purerdma/socketboot"
)

// Properties describes a logical NIC.
type Properties struct {
	// Name is that of the device, or of several joined by "+", as the handshake tells it to the peer.
	Name      string
	SpeedMbps int // of all ports together, 0 if unknown
	LinkLayer ibverbs.LinkLayer
	PCI       string // of the first device, empty for software
	NUMANode  int    // of the first device, -1 if unknown
	GUID      uint64 // sys_image_guid of the first device
	MaxRecvs  int    // buffers of one Irecv
	MaxComms  int    // connections, as far as queue pairs bound them
	// Ports tells what each port is, and its GID, as New found them.
	Ports []PortProperties
	// Why lists what was refused on this machine, and the reason: ports that are down, GIDs, devices that do not open.
	Why []string
}

// PortProperties describes a port of a logical NIC.
type PortProperties struct {
	Device string
	Port   int
	MTU    ibverbs.MTU
	// GID is what Config.QP chose when New ran, and GIDReason says why. It is chosen anew for each connection: Paths tells that.
	GID       ibverbs.GIDEntry
	GIDReason string
}

type nic struct {
	name  string
	ports []*port
	why   []string
}

// port is one port of a device, and what a connection needs to know of it.
type port struct {
	dev    *device
	num    int
	index  int32 // our own number of it, which goes into the device list
	attr   ibverbs.PortAttr
	choice qp.Choice
}

func (p *port) String() string { return fmt.Sprintf("%s/%d", p.dev.name, p.num) }

func (n *nic) properties() Properties {
	first := n.ports[0].dev.ctx.Info()
	props := Properties{Name: n.name, LinkLayer: n.ports[0].attr.LinkLayer, PCI: first.PCI, NUMANode: first.NUMANode,
		GUID: first.SysGUID, MaxRecvs: MaxRecvs, MaxComms: n.ports[0].dev.attr.MaxQP, Why: n.why}
	for _, p := range n.ports {
		props.SpeedMbps += p.attr.SpeedMbps
		props.MaxComms = min(props.MaxComms, p.dev.attr.MaxQP)
		props.Ports = append(props.Ports, PortProperties{Device: p.dev.name, Port: p.num, MTU: p.attr.ActiveMTU,
			GID: p.choice.GIDEntry, GIDReason: p.choice.Reason})
	}
	return props
}

func (n *nic) devList() socketboot.DevList {
	l := socketboot.DevList{Devs: make([]int32, len(n.ports))}
	for i, p := range n.ports {
		l.Devs[i] = p.index
	}
	return l
}

// find makes a logical NIC of each usable port of each device there is.
func (t *Transport) find() error {
	filter, err := parseHCA(t.cfg.HCA)
	if err != nil {
		return err
	}
	found, listErr := ibverbs.Devices(t.cfg.Find...)
	var why, names []string
	if listErr != nil {
		why = append(why, listErr.Error())
	}
	index := int32(0)
	for _, d := range found {
		info := d.Info()
		names = append(names, info.Name)
		if !filter.mayMatch(info.Name, info.Ports) {
			why = append(why, info.Name+": not chosen by Config.HCA")
			continue
		}
		ctx, err := d.Open()
		if err != nil {
			why = append(why, err.Error())
			continue
		}
		dev, err := newDevice(t, ctx, true)
		if err != nil {
			why = append(why, err.Error())
			_ = ctx.Close()
			continue
		}
		used := false
		for num := 1; num <= info.Ports; num++ {
			if !filter.match(info.Name, num) {
				why = append(why, fmt.Sprintf("%s/%d: not chosen by Config.HCA", info.Name, num))
				continue
			}
			p, err := t.usable(dev, num)
			if err != nil {
				why = append(why, err.Error())
				continue
			}
			p.index, used = index, true
			index++
			t.nics = append(t.nics, &nic{name: info.Name, ports: []*port{p}})
		}
		if used {
			t.devices = append(t.devices, dev)
		} else {
			_ = ctx.Close()
		}
	}
	for _, n := range t.nics {
		n.why = why
	}
	if len(t.nics) == 0 {
		return noNIC(found, names, t.cfg.HCA, why)
	}
	t.log.Debug("RDMA devices chosen", "nics", len(t.nics), "refused", why)
	return nil
}

func noNIC(found []*ibverbs.Device, names []string, hca string, why []string) error {
	e := &ibverbs.Error{Op: "find RDMA devices", Err: ErrNoNIC}
	switch {
	case len(found) == 0:
		e.Hint = "load a driver for the adapter; without one import ibverbs/softroce, a device in user space, or load the kernel's: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0; in a container pass /dev/infiniband in"
	case hca != "" && !strings.Contains(strings.Join(why, ";"), "port "):
		e.Object = fmt.Sprintf("Config.HCA %q", hca)
		e.Hint = "there are " + strings.Join(names, ", ")
	default:
		e.Hint = "each was refused"
	}
	if len(why) > 0 {
		e.Err = fmt.Errorf("%w: %s", ErrNoNIC, strings.Join(why, "; "))
	}
	return e
}

// adopt checks the NICs of a Config.
func (t *Transport) adopt(nics []NIC) error {
	if len(nics) == 0 {
		return configError("NICs", "is empty; nil takes all devices")
	}
	most := t.cfg.Net.Layout.MaxDevs()
	byContext := map[*ibverbs.Context]*device{}
	indexes := map[Port]int32{}
	for i, given := range nics {
		field := fmt.Sprintf("NICs[%d]", i)
		if len(given) < 1 || len(given) > most {
			return configError(field, fmt.Sprintf("has %d ports, want 1 to %d", len(given), most))
		}
		n := &nic{}
		var names []string
		for _, g := range given {
			if g.Device == nil {
				return configError(field, "has a port without a device")
			}
			dev := byContext[g.Device]
			if dev == nil {
				var err error
				if dev, err = newDevice(t, g.Device, false); err != nil {
					return err
				}
				byContext[g.Device] = dev
				t.devices = append(t.devices, dev)
			}
			p, err := t.choosePort(dev, g.Number)
			if err != nil {
				return err
			}
			g.Number = p.num
			if _, ok := indexes[g]; !ok {
				indexes[g] = int32(len(indexes))
			}
			p.index = indexes[g]
			if len(n.ports) > 0 && p.attr.LinkLayer != n.ports[0].attr.LinkLayer {
				return configError(field, fmt.Sprintf("mixes link layers: %s is %v, %s is %v", n.ports[0], n.ports[0].attr.LinkLayer, p, p.attr.LinkLayer))
			}
			n.ports = append(n.ports, p)
			names = append(names, dev.name)
		}
		n.name = strings.Join(names, "+")
		t.nics = append(t.nics, n)
	}
	return nil
}

// choosePort is port num of the device, or for 0 the first that can be used.
func (t *Transport) choosePort(dev *device, num int) (*port, error) {
	if num != 0 {
		return t.usable(dev, num)
	}
	var errs []error
	for num = 1; num <= dev.ctx.Info().Ports; num++ {
		p, err := t.usable(dev, num)
		if err == nil {
			return p, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

var (
	errPortDown  = errors.New("the port is not active")
	errLinkLayer = errors.New("the link layer is neither InfiniBand nor Ethernet")
)

// usable is the port if a connection could use it now.
func (t *Transport) usable(dev *device, num int) (*port, error) {
	p := &port{dev: dev, num: num}
	var err error
	if p.attr, err = dev.ctx.Port(num); err != nil {
		return nil, err
	}
	refuse := func(err error, hint string) (*port, error) {
		return nil, &ibverbs.Error{Op: "use port", Device: p.String(), Err: err, Hint: hint}
	}
	if p.attr.State != ibverbs.PortActive {
		return refuse(fmt.Errorf("%w: it is %v", errPortDown, p.attr.State),
			"bring its net device up (ip link set … up), or check the cable and, on InfiniBand, the subnet manager")
	}
	if p.attr.LinkLayer != ibverbs.LinkInfiniBand && p.attr.LinkLayer != ibverbs.LinkEthernet {
		return refuse(fmt.Errorf("%w: it is %v", errLinkLayer, p.attr.LinkLayer), "")
	}
	if p.choice, err = t.chooseGID(p); err != nil {
		return nil, err
	}
	return p, nil
}

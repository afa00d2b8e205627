package mlx5

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// portInfo is what of a port never changes while its device is open.
type portInfo struct {
	link     driver.LinkLayer
	gids     int // length of the table
	pkeys    int
	maxMTU   driver.MTU
	needsGRH bool // IBV_QPF_GRH_REQUIRED, or Ethernet
}

// port asks for a port once.
func (c *Context) port(n int) (portInfo, error) {
	if n < 1 || n > c.attr.Ports {
		return portInfo{}, within("the port", n, 1, c.attr.Ports)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, known := c.ports[n]; known {
		return p, nil
	}
	a, err := c.QueryPort(n)
	if err != nil {
		return portInfo{}, err
	}
	const required = 1 << 0
	p := portInfo{link: a.LinkLayer, gids: a.GIDTableLen, pkeys: a.PKeyLen, maxMTU: a.MaxMTU,
		needsGRH: a.LinkLayer == driver.LinkEthernet || a.Flags&required != 0}
	c.ports[n] = p
	return p, nil
}

// takesAV refuses an address that does not fit the fields of the device or the port.
func (p *portInfo) takesAV(a *driver.AHAttr) error {
	if p.needsGRH && !a.IsGlobal {
		return errNotGlobal
	}
	highest := 15
	if p.link == driver.LinkEthernet {
		highest = 7
	}
	if err := firstOutside(
		field{"the service level", int(a.SL), highest},
		field{"the code of the static rate", int(a.StaticRate), maxRate},
		field{"the number of source path bits", int(a.SrcPathBits), 127},
	); err != nil || !a.IsGlobal {
		return err
	}
	return firstOutside(
		field{"the flow label", int(a.FlowLabel), 1<<20 - 1},
		field{"the GID index", a.SGIDIndex, min(p.gids, 1<<8) - 1}, // of 8 bits in the address
	)
}

// field is a number that counts from 0 to most.
type field struct {
	what        string
	asked, most int
}

func firstOutside(fields ...field) error {
	for _, f := range fields {
		if err := within(f.what, f.asked, 0, f.most); err != nil {
			return err
		}
	}
	return nil
}

func emptyGID(port, index int) error {
	return hint(syscall.EINVAL, "GID index %d is empty: list the GIDs of port %d", index, port)
}

// explainAV adds to an errno about an address what it means.
func explainAV(err error, a *driver.AHAttr) error {
	to := a.DGID.Addr()
	switch err {
	case syscall.ETIMEDOUT:
		return hint(err, "no answer to address resolution (ARP, neighbour discovery) of %v from GID index %d: the host is down, not on this link, or routed through another device", to, a.SGIDIndex)
	case syscall.ENETUNREACH, syscall.EHOSTUNREACH:
		return hint(err, "no route to %v from GID index %d", to, a.SGIDIndex)
	case syscall.ENODATA:
		return emptyGID(a.Port, a.SGIDIndex)
	}
	return err
}

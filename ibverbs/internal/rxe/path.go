package rxe

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// checkAV refuses an address that the kernel would take for another, or refuse
// without a reason.
func (c *Context) checkAV(a *driver.AHAttr) error {
	switch {
	case !a.IsGlobal:
		return errNotGlobal
	case a.FlowLabel > 1<<20-1:
		return overLimit(syscall.EINVAL, limit{"the flow label", int(a.FlowLabel), 1<<20 - 1})
	case a.Port < 1 || a.Port > c.attr.Ports:
		return hint(syscall.EINVAL, "the port is %d, the device has 1 to %d", a.Port, c.attr.Ports)
	}
	return nil
}

// explainAV adds to an errno about an address what it means here.
func (c *Context) explainAV(err error, a *driver.AHAttr) error {
	to := a.DGID.Addr()
	switch err {
	case syscall.ETIMEDOUT:
		return hint(err, "no answer to address resolution (ARP, neighbour discovery) of %v from GID index %d: the host is down, not on this link, or routed through another device", to, a.SGIDIndex)
	case syscall.ENETUNREACH, syscall.EHOSTUNREACH:
		return hint(err, "no route to %v from GID index %d", to, a.SGIDIndex)
	case syscall.ENODATA:
		return hint(err, "GID index %d is empty: list the GIDs of port %d", a.SGIDIndex, a.Port)
	case syscall.EINVAL:
		return c.explainFamily(err, a)
	}
	return err
}

// explainFamily tells an address of another family than its source, and a source
// outside the table, from what else the kernel calls invalid.
func (c *Context) explainFamily(err error, a *driver.AHAttr) error {
	port, failed := c.Dev.QueryPort(a.Port)
	if failed != nil {
		return err
	}
	// The field of the kernel's structures has 8 bits.
	if explained := overLimit(err, limit{"the GID index", a.SGIDIndex, min(port.GIDTableLen, 1<<8) - 1}); explained != err {
		return explained
	}
	gids, failed := c.GIDs(a.Port)
	if failed != nil {
		return err
	}
	to := a.DGID.Addr()
	for _, g := range gids {
		if g.Index != a.SGIDIndex {
			continue
		}
		if from := g.GID.Addr(); from.Is4() != to.Is4() {
			return hint(err, "%v and GID index %d (%v) are of two families: choose the index of %s address", to, a.SGIDIndex, from, family(to.Is4()))
		}
	}
	return err
}

func family(is4 bool) string {
	if is4 {
		return "an IPv4"
	}
	return "an IPv6"
}

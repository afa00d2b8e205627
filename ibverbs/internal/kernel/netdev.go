package kernel

import (
	"cmp"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// rdmaDevices is the devices that a net device belongs to, shortest names first:
// those with a GID on it, and the one whose port an IPoIB device is of. A bond
// over two adapters belongs to both.
func (w *World) rdmaDevices(netDevice string) []string {
	if !validName(netDevice) {
		return nil
	}
	address := w.ipoibAddress(netDevice)
	entries, _ := fs.ReadDir(w.Sys, classIB)
	var names []string
	for _, e := range entries {
		belongs := address != "" && w.hasPort(e.Name(), address)
		w.eachNetDev(e.Name(), func(_ int, netDev string) { belongs = belongs || netDev == netDevice })
		if belongs {
			names = append(names, e.Name())
		}
	}
	// Without a GID nothing of the above is there.
	if name, err := w.NetDevice(netDevice); len(names) == 0 && err == nil && name != "" {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return names
}

// ipoibAddress is the last 8 of the 20 bytes of an IPoIB device's hardware address,
// as digits without colons: the GUID of its port. It is "" for other net devices.
func (w *World) ipoibAddress(netDevice string) string {
	const typeInfiniBand, digits = "32", 40 // ARPHRD_INFINIBAND
	dir := path.Join(classNet, netDevice)
	if t, err := w.sysString(dir, "type"); err != nil || t != typeInfiniBand {
		return ""
	}
	a, _ := w.sysString(dir, "address")
	a = strings.ReplaceAll(a, ":", "")
	if len(a) != digits {
		return ""
	}
	return a[digits-16:]
}

// hasPort reports whether a port of the device has this GUID, which is the second
// half of its GID 0. That of the node is another.
func (w *World) hasPort(name, guid string) bool {
	ports, _ := fs.ReadDir(w.Sys, path.Join(classIB, name, "ports"))
	return slices.ContainsFunc(ports, func(p fs.DirEntry) bool {
		g, err := w.sysString(path.Join(classIB, name, "ports", p.Name(), "gids"), "0")
		return err == nil && strings.HasSuffix(strings.ReplaceAll(g, ":", ""), guid)
	})
}

// PortNetDevice implements driver.PortNetDeviceReader. Kernels without RDMA netlink
// do not tell.
func (c *Context) PortNetDevice(port int) (name string, index int, err error) {
	if c.node.Info.Index < 0 {
		return "", 0, nil
	}
	ask := append32(nil, uapi.NLDevAttrDevIndex, uint32(c.node.Info.Index))
	msgs, err := c.w.Netlink(uapi.NLDevCmdPortGet, false, append32(ask, uapi.NLDevAttrPortIndex, uint32(port)))
	if err != nil || len(msgs) == 0 {
		return "", 0, err
	}
	as, err := parseAttrs(msgs[0])
	if err != nil {
		return "", 0, err
	}
	i, _ := as.num(uapi.NLDevAttrNDevIndex)
	return as.str(uapi.NLDevAttrNDevName), int(min(i, 1<<31-1)), nil
}

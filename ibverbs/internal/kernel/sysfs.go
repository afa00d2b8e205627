package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// Folders of sysfs.
const (
	classVerbs = "class/infiniband_verbs"
	classIB    = "class/infiniband"
	classNet   = "class/net"
)

// maxPorts is the most ports that a device has: they are numbered by a byte.
const maxPorts = 255

// bySysfs lists the devices by their nodes.
func (w *World) bySysfs() (nodes []Node, broken []error, err error) {
	entries, err := fs.ReadDir(w.Sys, classVerbs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, w.withoutUverbs(), nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), chardevUverbs) {
			continue // abi_version
		}
		n, err := w.nodeBySysfs(e.Name())
		if err == nil {
			nodes = append(nodes, n)
		} else if !w.vanished(e.Name()) {
			broken = append(broken, err)
		}
	}
	return nodes, broken, nil
}

// vanished reports whether a node has gone since the list was read.
func (w *World) vanished(node string) bool {
	entries, err := fs.ReadDir(w.Sys, classVerbs)
	for _, e := range entries {
		if e.Name() == node {
			return false
		}
	}
	return err == nil
}

// withoutUverbs says which devices there are that the kernel does not show to
// user space.
func (w *World) withoutUverbs() (broken []error) {
	entries, _ := fs.ReadDir(w.Sys, classIB)
	for _, e := range entries {
		broken = append(broken, noUverbs(e.Name()))
	}
	return broken
}

func (w *World) nodeBySysfs(node string) (Node, error) {
	dir := path.Join(classVerbs, node)
	name, err := w.sysString(dir, "ibdev")
	if err != nil {
		return Node{}, fmt.Errorf("%s: %w", node, err)
	}
	if !validName(name) {
		return Node{}, fmt.Errorf("%s: device name %q cannot be", node, name)
	}
	id, err := w.driverIDBySysfs(name)
	if err != nil {
		return Node{}, fmt.Errorf("%s: %w", name, err)
	}
	n := w.node(name, node, id)
	n.Dev = w.sysDev(dir)
	ib := path.Join(classIB, name)
	ports, _ := fs.ReadDir(w.Sys, path.Join(ib, "ports"))
	n.Info.Ports = min(len(ports), maxPorts)
	n.Info.Firmware, _ = w.sysString(ib, "fw_ver")
	n.Info.NodeGUID = w.sysGUID(ib, "node_guid")
	n.Info.SysGUID = w.sysGUID(ib, "sys_image_guid")
	return n, nil
}

// driverIDBySysfs goes by the kernel driver of the device's parent. Software
// devices have none; that of Soft-RoCE names the net device that it sits on.
func (w *World) driverIDBySysfs(name string) (uint32, error) {
	link, err := fs.ReadLink(w.Sys, path.Join(classIB, name, "device/driver"))
	if err != nil {
		if _, err := fs.Stat(w.Sys, path.Join(classIB, name, "parent")); err == nil {
			return uapi.DriverRXE, nil
		}
		return 0, fmt.Errorf("RDMA netlink does not answer and sysfs names no driver: %w", err)
	}
	if id, ok := idOfModule(path.Base(link)); ok {
		return id, nil
	}
	return 0, fmt.Errorf("RDMA netlink does not answer and the driver id of %s is not known", path.Base(link))
}

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// node fills in what only sysfs knows.
func (w *World) node(name, node string, driverID uint32) Node {
	var n Node
	n.Path = path.Join(w.DevDir, devFolder, node)
	n.DriverID = driverID
	n.Info = driver.DeviceInfo{
		Name:     name,
		Driver:   driverName(driverID),
		NUMANode: -1,
		Index:    -1,
		Software: driverID == uapi.DriverRXE || driverID == uapi.DriverSIW,
		NodeType: w.nodeType(name),
		Bond:     w.bond(name),
	}
	n.Info.Board, _ = w.sysString(path.Join(classIB, name), "board_id")
	dev := path.Join(classIB, name, "device")
	if link, err := fs.ReadLink(w.Sys, path.Join(dev, "physfn")); err == nil && pciAddress.MatchString(path.Base(link)) {
		n.Info.Parent = path.Base(link)
	}
	if link, err := fs.ReadLink(w.Sys, dev); err == nil && pciAddress.MatchString(path.Base(link)) {
		n.Info.PCI = path.Base(link)
	}
	if s, err := w.sysString(dev, "numa_node"); err == nil {
		if v, err := strconv.Atoi(s); err == nil && v >= 0 {
			n.Info.NUMANode = v
		}
	}
	return n
}

// nodeType reads a number and a word, "1: CA".
func (w *World) nodeType(name string) driver.NodeType {
	s, _ := w.sysString(path.Join(classIB, name), "node_type")
	number, _, _ := strings.Cut(s, ":")
	v, err := strconv.ParseUint(number, 10, 8)
	if err != nil {
		return driver.NodeUnknown
	}
	return driver.NodeType(v)
}

// bond is the bonding net device that has GIDs of the device, "" for none. The
// name mlx5_bond_0 alone says nothing: udev may change it, and drivers that bond
// keep theirs.
func (w *World) bond(name string) string {
	bond := ""
	w.eachNetDev(name, func(port int, netDev string) {
		if _, err := fs.Stat(w.Sys, path.Join(classNet, netDev, "bonding")); err == nil && bond == "" {
			bond = netDev
		}
	})
	return bond
}

// eachNetDev calls f with the net device of each used GID of a device.
func (w *World) eachNetDev(name string, f func(port int, netDev string)) {
	ports, _ := fs.ReadDir(w.Sys, path.Join(classIB, name, "ports"))
	for _, p := range ports {
		port, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		slots, _ := fs.ReadDir(w.Sys, path.Join(classIB, name, "ports", p.Name(), "gid_attrs/ndevs"))
		for _, s := range slots {
			// Reading an unused slot gives EINVAL.
			if netDev, err := w.sysString(path.Join(classIB, name, "ports", p.Name(), "gid_attrs/ndevs"), s.Name()); err == nil && validName(netDev) {
				f(port, netDev)
			}
		}
	}
}

// sysString is a file of one line.
func (w *World) sysString(dir, file string) (string, error) {
	b, err := fs.ReadFile(w.Sys, path.Join(dir, file))
	return strings.TrimSpace(string(b)), err
}

// sysGUID is a GUID as sysfs writes it, 0011:2233:4455:6677; 0 if there is none.
func (w *World) sysGUID(dir, file string) uint64 {
	s, err := w.sysString(dir, file)
	if err != nil {
		return 0
	}
	v, err := strconv.ParseUint(strings.ReplaceAll(s, ":", ""), 16, 64)
	if err != nil {
		return 0
	}
	return v
}

// sysDev is the device number of a node; 0 if there is none.
func (w *World) sysDev(dir string) uint64 {
	s, _ := w.sysString(dir, "dev")
	major, minor, ok := strings.Cut(s, ":")
	if !ok {
		return 0
	}
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	if err1 != nil || err2 != nil {
		return 0
	}
	return makedev(ma, mi)
}

// makedev is a dev_t of Linux as the C library and RDMA netlink have it.
func makedev(major, minor uint64) uint64 {
	return major&0xfffff000<<32 | major&0xfff<<8 | minor&0xffffff00<<12 | minor&0xff
}

// sysGIDs is the GID table for kernels that cannot be asked for it. Reading an
// unused slot gives a zero GID or EINVAL. A slot that cannot be read hides no
// other: why is told only if no GID is left.
func (w *World) sysGIDs(name string, port int) ([]driver.GIDEntry, error) {
	dir := path.Join(classIB, name, "ports", strconv.Itoa(port))
	entries, err := fs.ReadDir(w.Sys, path.Join(dir, "gids"))
	if err != nil {
		return nil, err
	}
	var gids []driver.GIDEntry
	var errs []error
	for index := range len(entries) {
		slot := strconv.Itoa(index)
		s, err := w.sysString(path.Join(dir, "gids"), slot)
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var g driver.GID
		if err == nil {
			g, err = parseGID(s)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("GID %d of %s/%d: %w", index, name, port, err))
			continue
		}
		if g.IsZero() {
			continue
		}
		e := driver.GIDEntry{GID: g, Index: index}
		if t, err := w.sysString(path.Join(dir, "gid_attrs/types"), slot); err == nil {
			e.Type = gidType(t)
		}
		e.NetDev = w.sysNetDev(name, port, index)
		gids = append(gids, e)
	}
	if len(gids) > 0 {
		return gids, nil
	}
	return nil, errors.Join(errs...)
}

// sysNetDev is the net device of a GID by name, in whatever network namespace.
func (w *World) sysNetDev(name string, port, index int) string {
	s, err := w.sysString(path.Join(classIB, name, "ports", strconv.Itoa(port), "gid_attrs/ndevs"), strconv.Itoa(index))
	if err != nil {
		return ""
	}
	return s
}

// gidType reads the word of sysfs. "IB/RoCE v1" is both, which only the link
// layer tells apart; on InfiniBand the type does not matter.
func gidType(s string) driver.GIDType {
	if s == "RoCE v2" {
		return driver.GIDTypeRoCEv2
	}
	return driver.GIDTypeRoCEv1
}

// parseGID reads eight groups of four hexadecimal digits.
func parseGID(s string) (g driver.GID, err error) {
	groups := strings.Split(s, ":")
	if len(groups) != len(g)/2 {
		return g, fmt.Errorf("%q is no GID", s)
	}
	for i, group := range groups {
		v, err := strconv.ParseUint(group, 16, 16)
		if err != nil || len(group) != 4 {
			return driver.GID{}, fmt.Errorf("%q is no GID", s)
		}
		g[2*i], g[2*i+1] = byte(v>>8), byte(v)
	}
	return g, nil
}

// validName guards what becomes part of a path.
func validName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\x00")
}

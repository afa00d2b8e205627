package uverbs

import (
	"cmp"
	"slices"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// FeatureGIDQuery is missing in kernels before Linux 5.10, where sysfs has the
// same.
const FeatureGIDQuery driver.Feature = "GID query by ioctl"

// GIDs is the used slots of the GID table of a port whose table has tableLen
// slots, by rising index, without the names of net devices. A kernel that
// cannot tell gives a *driver.NotSupportedError.
func (d *Device) GIDs(port, tableLen, ports int) ([]driver.GIDEntry, error) {
	all, err := d.gidTable(min(tableLen*ports, maxLen/sizeOf[uapi.GIDEntry]()))
	switch err {
	case nil:
		return pick(all, port)
	case syscall.EPROTONOSUPPORT, syscall.EOPNOTSUPP, syscall.EINVAL:
		// EINVAL: the table of all ports does not fit one answer.
		return d.gidEntries(port, tableLen)
	}
	return nil, gone(err)
}

// gidTable is the used slots of all ports.
func (d *Device) gidTable(most int) ([]uapi.GIDEntry, error) {
	f, err := d.frame(uapi.ObjectDevice, uapi.MethodQueryGIDTable)
	if err != nil {
		return nil, err
	}
	defer d.put(f)
	size := sizeOf[uapi.GIDEntry]()
	f.constant(uapi.AttrQueryGIDTableEntrySize, uint64(size))
	f.in32(uapi.AttrQueryGIDTableFlags, 0)
	out := f.out(uapi.AttrQueryGIDTableRespEntries, most*size)
	num := f.out(uapi.AttrQueryGIDTableRespNumEntries, 8)
	if err := f.do(d.k, d.fd); err != nil {
		return nil, err
	}
	n := f.u64(num)
	if n > uint64(most) {
		return nil, &ResponseError{"number of GIDs", n}
	}
	es := make([]uapi.GIDEntry, n)
	for i := range es {
		copy(bytesOf(&es[i]), f.bytes(output{off: out.off + i*size, len: size}))
	}
	return es, nil
}

// gidEntries asks for one slot after the other.
func (d *Device) gidEntries(port, tableLen int) ([]driver.GIDEntry, error) {
	var es []uapi.GIDEntry
	for i := range tableLen {
		e, err := d.gidEntry(port, i)
		switch err {
		case nil:
			es = append(es, e)
		case syscall.ENODATA: // an unused slot
		default:
			return nil, lacks(err, FeatureGIDQuery, "Linux 5.10")
		}
	}
	return pick(es, port)
}

func (d *Device) gidEntry(port, index int) (e uapi.GIDEntry, err error) {
	f, err := d.frame(uapi.ObjectDevice, uapi.MethodQueryGIDEntry)
	if err != nil {
		return e, err
	}
	defer d.put(f)
	f.constant(uapi.AttrQueryGIDEntryPort, uint64(port))
	f.constant(uapi.AttrQueryGIDEntryGIDIndex, uint64(index))
	f.in32(uapi.AttrQueryGIDEntryFlags, 0)
	out := f.out(uapi.AttrQueryGIDEntryRespEntry, sizeOf[uapi.GIDEntry]())
	if err := f.do(d.k, d.fd); err != nil {
		return e, err
	}
	copy(bytesOf(&e), f.bytes(out))
	return e, nil
}

// pick checks the entries of one port.
func pick(all []uapi.GIDEntry, port int) ([]driver.GIDEntry, error) {
	var gids []driver.GIDEntry
	for _, e := range all {
		switch {
		case e.PortNum != uint32(port):
			continue
		case e.GIDIndex >= maxGIDs:
			return nil, &ResponseError{"GID index", uint64(e.GIDIndex)}
		case e.GIDType > 255:
			return nil, &ResponseError{"GID type", uint64(e.GIDType)}
		}
		gids = append(gids, driver.GIDEntry{GID: e.GID, Index: int(e.GIDIndex),
			IfIndex: int(e.NetdevIfindex), Type: driver.GIDType(e.GIDType)})
	}
	slices.SortFunc(gids, func(a, b driver.GIDEntry) int { return cmp.Compare(a.Index, b.Index) })
	return gids, nil
}

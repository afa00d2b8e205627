package p2ptransport_test

import (
	"io/fs"
	"testing/fstest"
)

// sysfs has the GPUs of machine on two sockets.
func sysfs() fs.FS {
	link := func(to string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink | 0o777}
	}
	node := func(n string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(n)} }
	return fstest.MapFS{
		"devices/pci0000:00/0000:01:00.0/numa_node": node("0"), "bus/pci/devices/0000:01:00.0": link("../../../devices/pci0000:00/0000:01:00.0"),
		"devices/pci0000:40/0000:02:00.0/numa_node": node("1"), "bus/pci/devices/0000:02:00.0": link("../../../devices/pci0000:40/0000:02:00.0"),
		"devices/pci0000:40/0000:03:00.0/numa_node": node("1"), "bus/pci/devices/0000:03:00.0": link("../../../devices/pci0000:40/0000:03:00.0"),
	}
}

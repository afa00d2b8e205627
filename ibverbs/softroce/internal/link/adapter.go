package link

import (
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
)

const classIB = "class/infiniband"

// adapterOf is the RDMA device that does RoCE v2 in hardware on a network device,
// "" if none does. Such an adapter takes packets to port 4791 before any socket
// sees them. sys is /sys, nil for the real one.
func adapterOf(sys fs.FS, netdev string) string {
	if sys == nil {
		if runtime.GOOS != "linux" {
			return ""
		}
		sys = os.DirFS("/sys")
	}
	devices, _ := fs.ReadDir(sys, classIB) // without RDMA devices it is not there
	for _, d := range devices {
		dir := path.Join(classIB, d.Name())
		if _, err := fs.Stat(sys, path.Join(dir, "parent")); err == nil {
			continue // the kernel's Soft-RoCE names what it sits on
		}
		if speaksOn(sys, dir, netdev) {
			return d.Name()
		}
	}
	return ""
}

// speaksOn says whether a port of the RDMA device has an address for RoCE v2 on the
// network device. Slots without one give errors when they are read.
func speaksOn(sys fs.FS, dir, netdev string) bool {
	slots, _ := fs.Glob(sys, path.Join(dir, "ports/*/gid_attrs/ndevs/*"))
	for _, slot := range slots {
		if word(sys, slot) == netdev && word(sys, strings.Replace(slot, "/ndevs/", "/types/", 1)) == "RoCE v2" {
			return true
		}
	}
	return false
}

func word(sys fs.FS, file string) string {
	b, _ := fs.ReadFile(sys, file)
	return strings.TrimSpace(string(b))
}

package topo

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/purerdma/purerdma/gpu"
)

// Read finds the RDMA devices and the GPUs in sys, the tree of sysfs
// (os.DirFS("/sys")). What is wrong with one of them is joined into the error
// beside the others.
func Read(sys fs.FS) (*System, error) {
	s := &System{}
	entries, err := fs.ReadDir(sys, "class/infiniband")
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	errs := []error{err}
	for _, e := range entries {
		d, err := nic(sys, e.Name())
		errs = append(errs, err)
		s.Devices = append(s.Devices, d)
	}
	slices.SortStableFunc(s.Devices, byName)
	found, err := byPCI(sys)
	s.Devices = append(s.Devices, found...)
	return s, errors.Join(append(errs, err)...)
}

// byName puts mlx5_2 before mlx5_10, and software devices, which have no place, last.
func byName(a, b Device) int {
	placed := func(d Device) int { return min(1, len(d.chain)) }
	return cmp.Or(cmp.Compare(placed(b), placed(a)), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
}

func nic(sys fs.FS, name string) (Device, error) {
	d := Device{Kind: NIC, Name: name, NUMA: -1}
	at, err := resolve(sys, path.Join("class/infiniband", name))
	if err != nil {
		return d, fmt.Errorf("place of %s: %w", name, err)
	}
	at, err = resolve(sys, path.Join(at, "device"))
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil // a software device
	}
	if err != nil {
		return d, fmt.Errorf("place of %s: %w", name, err)
	}
	place(sys, &d, at)
	return d, nil
}

// place fills in where the device with this folder is.
func place(sys fs.FS, d *Device, at string) {
	for part := range strings.SplitSeq(at, "/") {
		if address, err := gpu.ParseBusID(part); err == nil && strings.Contains(part, ".") {
			d.chain, d.PCI = append(d.chain, part), address
		} else if strings.HasPrefix(part, "pci") && len(d.chain) == 0 {
			d.chain = append(d.chain, part)
		}
	}
	if n, err := strconv.Atoi(word(sys, at, "numa_node")); err == nil {
		d.NUMA = n
	}
}

// resolve follows one symbolic link of sysfs, which are relative and lead to a
// real folder.
func resolve(sys fs.FS, name string) (string, error) {
	to, err := fs.ReadLink(sys, name)
	if err != nil {
		return "", err
	}
	return path.Join(path.Dir(name), to), nil
}

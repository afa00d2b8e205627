package topo

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/purerdma/purerdma/gpu"
)

// Makers of GPUs by PCI vendor, and what a class of PCI device begins with that is
// a display or 3D controller.
const (
	vendorNVIDIA = "0x10de"
	vendorAMD    = "0x1002"
	display      = "0x03"
)

// byPCI finds the GPUs that PCI shows, named by their order there, which is that of
// nvidia-smi. Their links are not known without a driver.
func byPCI(sys fs.FS) (found []Device, err error) {
	entries, err := fs.ReadDir(sys, "bus/pci/devices")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range entries {
		at, err := resolve(sys, path.Join("bus/pci/devices", e.Name()))
		if err != nil {
			errs = append(errs, fmt.Errorf("place of %s: %w", e.Name(), err))
			continue
		}
		if class, vendor := word(sys, at, "class"), word(sys, at, "vendor"); !strings.HasPrefix(class, display) ||
			vendor != vendorNVIDIA && vendor != vendorAMD {
			continue
		}
		d := Device{Kind: GPU, Name: fmt.Sprintf("GPU%d", len(found)), NUMA: -1}
		place(sys, &d, at)
		found = append(found, d)
	}
	return found, errors.Join(errs...)
}

func word(sys fs.FS, dir, file string) string {
	b, err := fs.ReadFile(sys, path.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// AddGPUs puts the GPUs of a driver, named GPU0 and so on by their index there, in
// the place of those that Read found: it knows what this process may use, its
// instances, and the links.
func (s *System) AddGPUs(sys fs.FS, d gpu.Driver) error {
	devices, err := d.Devices()
	if err != nil {
		return err
	}
	s.Devices = slices.DeleteFunc(s.Devices, func(d Device) bool { return d.Kind == GPU })
	var errs []error
	for _, info := range devices {
		g := Device{Kind: GPU, Name: fmt.Sprintf("GPU%d", info.Index), PCI: info.PCI, NUMA: info.NUMANode}
		if info.PCI.Valid {
			at, err := resolve(sys, "bus/pci/devices/"+info.PCI.String())
			if err == nil {
				place(sys, &g, at)
			} else {
				errs = append(errs, fmt.Errorf("place of %s: %w", g.Name, err))
			}
		}
		if l, ok := d.(gpu.Linker); ok {
			var err error
			g.links, err = l.Links(info.Index)
			errs = append(errs, err)
		}
		s.Devices = append(s.Devices, g)
	}
	return errors.Join(errs...)
}

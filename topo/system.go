package topo

import (
	"slices"

	"github.com/purerdma/purerdma/gpu"
)

// Kind is a kind of device.
type Kind string

// Kinds.
const (
	NIC Kind = "NIC" // an RDMA device
	GPU Kind = "GPU"
)

// Device is one device of the machine.
type Device struct {
	Kind Kind
	Name string    // "mlx5_0", "GPU0"
	PCI  gpu.BusID // none for software devices
	NUMA int       // -1 if unknown
	// chain is the way down to it: the host bridge, then each bridge, then itself.
	chain []string
	links []gpu.Link
}

// System is the devices of a machine. It does not change but by AddGPUs, and may
// be read by any goroutine.
type System struct {
	Devices []Device // NICs by name, mlx5_2 before mlx5_10, those without a place last; then GPUs by index
}

// Find is the device with a name.
func (s *System) Find(name string) (Device, bool) {
	i := slices.IndexFunc(s.Devices, func(d Device) bool { return d.Name == name })
	if i < 0 {
		return Device{}, false
	}
	return s.Devices[i], true
}

// Nearest is the devices of a kind by rising distance from d, those of equal
// distance by name. d itself is not among them.
func (s *System) Nearest(d Device, kind Kind) []Device {
	var all []Device
	for _, o := range s.Devices {
		if o.Kind == kind && !same(o, d) {
			all = append(all, o)
		}
	}
	slices.SortStableFunc(all, func(a, b Device) int { return int(s.Path(d, a)) - int(s.Path(d, b)) })
	return all
}

// same reports whether both are one device. Several instances of a GPU are: what
// one reaches, the others do.
func same(a, b Device) bool {
	return a.Kind == b.Kind && (a.Name == b.Name || a.PCI.Valid && a.PCI == b.PCI)
}

// Path is what lies between two devices; PXN only where PCI alone is farther than
// that.
func (s *System) Path(a, b Device) Path {
	direct := s.direct(a, b)
	if direct <= PXB {
		return direct
	}
	if a.Kind == GPU && b.Kind == NIC {
		return min(direct, s.overNeighbour(a, b))
	}
	if a.Kind == NIC && b.Kind == GPU {
		return min(direct, s.overNeighbour(b, a))
	}
	return direct
}

// overNeighbour is PXN if a GPU that g has links with is near the NIC.
func (s *System) overNeighbour(g, nic Device) Path {
	for _, o := range s.Devices {
		if o.Kind == GPU && !same(o, g) && s.nvlink(g, o) && pci(o, nic) <= PXB {
			return PXN
		}
	}
	return DIS
}

func (s *System) direct(a, b Device) Path {
	if same(a, b) {
		return LOC
	}
	if a.Kind == GPU && b.Kind == GPU {
		if s.nvlink(a, b) {
			return NVL
		}
		if _, ok := s.Between(a, b); ok {
			return min(NVB, pci(a, b))
		}
	}
	return pci(a, b)
}

// Between is the GPU over which NVLink joins two that it does not join directly. Of several it is the one with the lowest PCI address,
// whoever asks.
func (s *System) Between(a, b Device) (Device, bool) {
	var best Device
	for _, o := range s.Devices {
		if o.Kind == GPU && !same(o, a) && !same(o, b) && s.nvlink(a, o) && s.nvlink(o, b) &&
			(best.Name == "" || o.PCI.Valid && o.PCI.Int64() < best.PCI.Int64()) {
			best = o
		}
	}
	return best, best.Name != ""
}

// nvlink reports whether two GPUs have links with each other, or both with a
// switch: one joins all GPUs on it.
func (*System) nvlink(a, b Device) bool {
	return slices.ContainsFunc(a.links, func(l gpu.Link) bool {
		if l.ToGPU {
			return l.To == b.PCI
		}
		return slices.ContainsFunc(b.links, func(m gpu.Link) bool { return !m.ToGPU })
	})
}

// Links is how many lanes of NVLink lie between two GPUs, 0 for none or an unknown
// number.
func (s *System) Links(a, b Device) int {
	var direct, switched int
	for _, l := range a.links {
		switch {
		case l.ToGPU && l.To == b.PCI:
			direct += l.Count
		case !l.ToGPU:
			switched += l.Count
		}
	}
	if direct > 0 || !s.nvlink(a, b) {
		return direct
	}
	return switched
}

// pci is the path by PCI and between NUMA nodes.
func pci(a, b Device) Path {
	if len(a.chain) == 0 || len(b.chain) == 0 {
		return DIS
	}
	common := 0
	for common < len(a.chain) && common < len(b.chain) && a.chain[common] == b.chain[common] {
		common++
	}
	switch {
	case common == 0 && a.NUMA >= 0 && a.NUMA == b.NUMA:
		return NODE
	case common == 0:
		return SYS
	case common == 1:
		return PHB
	}
	// A switch is two levels: the port above, and one below for each device.
	if len(a.chain)-common <= 2 && len(b.chain)-common <= 2 {
		return PIX
	}
	return PXB
}

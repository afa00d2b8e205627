package topo

import "fmt"

// Matrix is the paths between all devices, by row and column in the order of
// Devices, as nvidia-smi topo -m shows them: "X" for the device itself, "NV18" for
// 18 lanes of NVLink.
func (s *System) Matrix() [][]string {
	rows := make([][]string, len(s.Devices))
	for i, a := range s.Devices {
		rows[i] = make([]string, len(s.Devices))
		for j, b := range s.Devices {
			rows[i][j] = s.word(a, b)
		}
	}
	return rows
}

func (s *System) word(a, b Device) string {
	p := s.Path(a, b)
	switch {
	case a.Name == b.Name:
		return "X"
	case p == NVL && s.Links(a, b) > 0:
		return fmt.Sprintf("NV%d", s.Links(a, b))
	}
	return p.String()
}

// Legend explains the words of Matrix, in the order of distance.
func Legend() [][2]string {
	return [][2]string{
		{"X", "the device itself"},
		{"LOC", "another instance of the same GPU"},
		{"NV#", "that many lanes of NVLink"},
		{"NVB", "NVLink through another GPU"},
		{"PIX", "at most one PCI switch"},
		{"PXB", "several PCI switches, no host bridge"},
		{"PXN", "NVLink to another GPU, from there PCI"},
		{"PHB", "a PCI host bridge"},
		{"NODE", "several PCI host bridges of one NUMA node"},
		{"SYS", "the link between NUMA nodes"},
		{"DIS", "none that is known: software devices have no place"},
	}
}

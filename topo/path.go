package topo

import (
	"fmt"
	"strings"
)

// Path is what lies between two devices, the nearest first. The order is that of
// NCCL (PATH_…), with nvidia-smi's NODE between PHB and SYS; NCCL calls both PHB.
type Path uint8

// Paths.
const (
	LOC  Path = iota // the device itself
	NVL              // NVLink
	NVB              // NVLink through another GPU
	PIX              // at most one PCI switch
	PXB              // several PCI switches, no host bridge
	PXN              // NVLink to another GPU, and from there PCI to a NIC
	PHB              // a PCI host bridge
	NODE             // several host bridges of one NUMA node
	SYS              // the link between NUMA nodes
	DIS              // none that is known
)

var names = [...]string{"LOC", "NVL", "NVB", "PIX", "PXB", "PXN", "PHB", "NODE", "SYS", "DIS"}

// String is the word.
func (p Path) String() string {
	if int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("Path(%d)", uint8(p))
}

// MarshalText is String, for JSON.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// ParseLevel reads the greatest distance that a setting allows, as NCCL_P2P_LEVEL
// and NCCL_NET_GDR_LEVEL give it: a word, or an old number from 0 to 5. PHB allows
// NODE, since NCCL does not tell them apart.
func ParseLevel(s string) (Path, error) {
	switch s {
	case "0":
		return LOC, nil
	case "1":
		return PIX, nil
	case "2":
		return PXB, nil
	case "3":
		return NODE, nil
	case "4", "5":
		return SYS, nil
	}
	for i, name := range names {
		if strings.EqualFold(s, name) && Path(i) != DIS {
			if Path(i) == PHB {
				return NODE, nil
			}
			return Path(i), nil
		}
	}
	return DIS, fmt.Errorf("distance %q: it is one of %s, or a number from 0 to 5", s, strings.Join(names[:DIS], ", "))
}

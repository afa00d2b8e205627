// Package doctor looks for what people trip over with RDMA, and says what to do.
package doctor

import (
	"fmt"
	"io/fs"

	"github.com/purerdma/purerdma/cmd/purerdma/internal/inventory"
)

// Level is how much a finding matters.
type Level string

// Levels.
const (
	Fine    Level = "ok"      // looked at, nothing found
	Hint    Level = "hint"    // works, but may be slower or surprise
	Problem Level = "problem" // something will not work
	Unknown Level = "unknown" // could not be looked at
)

// Finding is one thing that was looked at.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	On     string `json:"on,omitempty"` // device, port, file
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

// World is the machine as the checks see it.
type World struct {
	Root    fs.FS // its files: sys, proc, dev
	Devices []inventory.Device
	// ListError is what was wrong with the list of devices, nil for nothing.
	ListError error
	// CanUse tells whether this process may open a file of Root for reading and writing.
	CanUse func(name string) error
	// MemLock is the limit of locked memory in bytes, ^0 for none; Privileged processes have none.
	MemLock    uint64
	Privileged bool
	// ShmSize is the size of /dev/shm in bytes, 0 if there is none.
	ShmSize uint64
	// Namespaces is the mode of RDMA network namespaces, "shared" or "exclusive", "" if unknown.
	Namespaces string
	// MPSPipe is where the control daemon of NVIDIA's MPS has its pipes, as a name in Root, "" for the default.
	MPSPipe string
}

// check is one of the things looked at. It returns what it found; nothing means that all is well, unless there was nothing to look
// at.
type check struct {
	name string
	fine string // what to say when nothing was found
	look func(*World) []Finding
	of   *subject // nil for the machine itself, which is always there
}

// subject is what some checks look at.
type subject struct {
	none string // what to say without any
	any  func(*World) bool
}

var checks = []check{
	{"devices", "there are RDMA devices", devices, nil},
	{"modules", "the kernel's modules for the verbs are loaded", modules, nil},
	{"nodes", "the device nodes are there and may be used", nodes, &someNodes},
	{"ports", "all ports are active", ports, &somePorts},
	{"GIDs", "each active Ethernet port has a routable RoCE v2 address", gids, &somePorts},
	{"MTU", "no port sends smaller packets than its net device could carry", mtu, &somePorts},
	{"memlock", "locked memory is not limited, or not by much", memlock, nil},
	{"namespaces", "RDMA devices are shared by all network namespaces", namespaces, nil},
	{"shared memory", "/dev/shm is large enough for many connections", shm, nil},
	{"huge pages", "the kernel has huge pages", hugePages, nil},
	{"GPUDirect", "NICs can reach GPU memory, or there is no GPU", gpuDirect, nil},
	{"GPU sharing", "kernels of several processes run beside each other on a GPU (MPS), or there is no GPU", gpuSharing, nil},
	{"PCI", "PCI neither detours nor orders what need not be", pci, nil},
	{"RoCE settings", "no setting of RoCE was found that hinders", roce, &somePorts},
}

// Examine makes all checks. Each gives one finding at least.
func Examine(w *World) []Finding {
	var all []Finding
	for _, c := range checks {
		found := c.look(w)
		switch {
		case len(found) > 0:
		case c.of != nil && !c.of.any(w):
			found = []Finding{unknown("", "%s", c.of.none)}
		default:
			found = []Finding{{Level: Fine, Text: c.fine}}
		}
		for _, f := range found {
			f.Check = c.name
			all = append(all, f)
		}
	}
	return all
}

// Problems is how many findings say that something will not work.
func Problems(all []Finding) (n int) {
	for _, f := range all {
		if f.Level == Problem {
			n++
		}
	}
	return n
}

func problem(on, remedy, format string, args ...any) Finding {
	return Finding{Level: Problem, On: on, Text: fmt.Sprintf(format, args...), Remedy: remedy}
}

func hint(on, remedy, format string, args ...any) Finding {
	return Finding{Level: Hint, On: on, Text: fmt.Sprintf(format, args...), Remedy: remedy}
}

func unknown(on, format string, args ...any) Finding {
	return Finding{Level: Unknown, On: on, Text: fmt.Sprintf(format, args...)}
}

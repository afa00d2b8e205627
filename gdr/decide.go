package gdr

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/topo"
)

// Way is how a device reaches the memory of a GPU.
type Way uint8

// Ways.
const (
	Staged     Way = iota // not at all: the data goes through host memory
	PeerMemory            // by a kernel module of the GPU's driver
	DMABuf                // by a descriptor of the memory
)

// String is the way in words.
func (w Way) String() string {
	switch w {
	case PeerMemory:
		return "peer memory"
	case DMABuf:
		return "DMA-BUF"
	}
	return "staging"
}

// Config is what Decide looks at.
type Config struct {
	Driver gpu.Driver // of the GPU
	GPU    gpu.DeviceInfo
	Device *ibverbs.Context

	// System gives the distance; nil, or one without the two, leaves the distance
	// unknown, which does not count against the pair.
	System *topo.System
	// Level is the greatest distance allowed, topo.LOC for the default, PXB
	// (NCCL_NET_GDR_LEVEL).
	Level topo.Path
	// Never leaves staging only (NCCL_NET_GDR_LEVEL=LOC).
	Never bool
	// AllowRead tells whether devices may send from the GPU's memory, nil is NCCL's rule (NCCL_NET_GDR_READ). MayRead asks.
	AllowRead *bool
	// NoDMABuf does without DMA-BUF (NCCL_DMABUF_ENABLE=0).
	NoDMABuf bool
	// NoFlush never flushes (NCCL_GDR_FLUSH_DISABLE=1), ForceFlush always
	// (NCCL_NET_FORCE_FLUSH=1).
	NoFlush, ForceFlush bool
	// Sys is the tree of sysfs, os.DirFS("/sys") if nil.
	Sys fs.FS
}

// Decision is what Decide found.
type Decision struct {
	Way    Way
	Path   topo.Path // topo.DIS if unknown
	Reason string    // why this way, and why not those before it
	// Flush tells that data which the device wrote is not sure to be seen by the
	// GPU before a read of the device behind it has ended.
	Flush       bool
	FlushReason string
}

// Decide looks for the best way. An error is only for what cannot be asked; that a
// way does not exist is in the Reason.
func Decide(c Config) (Decision, error) {
	if c.Level == topo.LOC {
		c.Level = topo.PXB
	}
	d := Decision{Path: distance(c)}
	var err error
	if d.Flush, d.FlushReason, err = flush(c); err != nil {
		return d, err
	}
	if c.Never {
		d.Reason = "GPUDirect RDMA is switched off"
		return d, nil
	}
	if d.Path > c.Level && d.Path != topo.DIS {
		d.Reason = fmt.Sprintf("%v lies between the GPU and %s, and at most %v is allowed", d.Path, c.Device.Info().Name, c.Level)
		return d, nil
	}
	why, err := noDMABuf(c)
	if err != nil {
		return d, err
	}
	if why == "" {
		d.Way, d.Reason = DMABuf, "the GPU, the kernel and the device have it"
		return d, nil
	}
	module := peerModule(c.sys())
	if c.Device.Info().Software {
		d.Reason = fmt.Sprintf("no DMA-BUF: %s; no peer memory: %s moves data with the processor", why, c.Device.Info().Name)
		return d, nil
	}
	if module != "" {
		d.Way, d.Reason = PeerMemory, fmt.Sprintf("no DMA-BUF: %s; the kernel has %s", why, module)
		return d, nil
	}
	d.Reason = fmt.Sprintf("no DMA-BUF: %s; no peer memory: the kernel has none of the modules for it (load nvidia_peermem)", why)
	return d, nil
}

// MayRead reports whether the device may send from the GPU's memory where it reaches it, and if not why. GPUs before Ampere answer
// reads badly beside other traffic, so they send from host memory where they have other GPUs that no NVLink reaches
// (ncclTopoCheckGdr).
func (c *Config) MayRead() (ok bool, why string) {
	const ampere = 8
	switch {
	case c.AllowRead != nil && !*c.AllowRead:
		return false, "sending from GPU memory is switched off"
	case c.AllowRead != nil || c.GPU.Major >= ampere || c.System == nil:
		return true, ""
	}
	g, found := c.System.Find(fmt.Sprintf("GPU%d", c.GPU.Index))
	others := false
	for _, d := range c.System.Devices {
		if d.Kind != topo.GPU || d.Name == g.Name {
			continue
		}
		if others = true; found && c.System.Path(g, d) == topo.NVL {
			return true, ""
		}
	}
	if others {
		return false, fmt.Sprintf("GPUs of compute capability %d.%d without NVLink do not send from their memory", c.GPU.Major, c.GPU.Minor)
	}
	return true, ""
}

func (c *Config) sys() fs.FS {
	if c.Sys == nil {
		return os.DirFS("/sys")
	}
	return c.Sys
}

// distance is what lies between the two, as far as that is known.
func distance(c Config) topo.Path {
	if c.System == nil {
		return topo.DIS
	}
	nic, ok := c.System.Find(c.Device.Info().Name)
	g, found := c.System.Find(fmt.Sprintf("GPU%d", c.GPU.Index))
	if !ok || !found {
		return topo.DIS
	}
	return c.System.Path(g, nic)
}

// noDMABuf is why DMA-BUF does not work, "" if it does.
func noDMABuf(c Config) (string, error) {
	if c.NoDMABuf {
		return "it is switched off", nil
	}
	has, err := c.Driver.Attribute(c.GPU.Index, gpu.HasDMABuf)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return "the GPU's driver is too old for it", nil
	case err != nil:
		return "", fmt.Errorf("ask GPU %d for DMA-BUF: %w", c.GPU.Index, err)
	case has == 0:
		return "the GPU's driver does not offer it", nil
	}
	if err := c.Device.Probe(ibverbs.FeatureDMABuf); err != nil {
		var not *ibverbs.NotSupportedError
		if errors.As(err, &not) {
			return not.Error(), nil
		}
		return "", err
	}
	return "", nil
}

// peerModules is where the kernel shows a module that lets devices register GPU
// memory.
var peerModules = []string{"kernel/mm/memory_peers/nv_mem/version", "kernel/mm/memory_peers/nv_mem_nc/version",
	"module/nvidia_peermem/version"}

func peerModule(sys fs.FS) string {
	for _, name := range peerModules {
		if _, err := fs.Stat(sys, name); err == nil {
			parts := strings.Split(name, "/")
			return parts[len(parts)-2]
		}
	}
	return ""
}

// flush is whether the GPU needs flushes, and why.
func flush(c Config) (needed bool, reason string, err error) {
	switch {
	case c.NoFlush:
		return false, "flushes are switched off", nil
	case c.ForceFlush:
		return true, "flushes are forced", nil
	case c.GPU.Major >= 9:
		return false, fmt.Sprintf("compute capability %d.%d orders writes itself", c.GPU.Major, c.GPU.Minor), nil
	}
	const toOwner = 100 // CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER
	order, err := c.Driver.Attribute(c.GPU.Index, gpu.GDRWritesOrdering)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return false, "", fmt.Errorf("ask GPU %d for the order of writes: %w", c.GPU.Index, err)
	}
	if err == nil && order >= toOwner {
		return false, "the GPU's driver says that the GPU sees writes in order", nil
	}
	return true, fmt.Sprintf("compute capability %d.%d does not order writes of other devices", c.GPU.Major, c.GPU.Minor), nil
}

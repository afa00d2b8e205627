package gputest

import (
	"fmt"
	"sync"

	"github.com/purerdma/purerdma/gpu"
)

// Config is the machine. Without Devices it has one GPU.
type Config struct {
	Devices []gpu.DeviceInfo
	// Peers says which devices reach each other's memory; nil is all others.
	Peers func(device, peer int) bool
	// Attributes replaces answers; those that are not there are as on a new GPU.
	Attributes map[gpu.Attribute]int
	// Kernels is what Load finds, by name, whatever the text.
	Kernels map[string]Kernel
	// OpaqueDMABuf makes descriptors of DMABuf ones that cannot be mapped, as those of NVIDIA's GPUs.
	OpaqueDMABuf bool
	// Links is the answer of Links for each device.
	Links map[int][]gpu.Link
}

// Kernel is what a launch runs, on the goroutine of its stream. An error breaks the
// context.
type Kernel func(m Machine, l gpu.Launch) error

// Driver implements gpu.Driver and gpu.Linker. It is not registered by itself.
type Driver struct {
	config Config
	space  *space

	mu       sync.Mutex
	failures map[string]*failure
	counts   map[string]int
	left     map[string]int // what is there, by kind
}

type failure struct {
	after int
	err   error
}

// Defaults of Config.
const (
	granularity = 64 << 10
	memorySize  = 1 << 30
)

// New makes a machine.
func New(c Config) *Driver {
	if c.Devices == nil {
		c.Devices = make([]gpu.DeviceInfo, 1)
	}
	for i := range c.Devices {
		d := &c.Devices[i]
		d.Index = i
		if d.Name == "" {
			d.Name = "Test GPU"
		}
		if d.UUID == "" {
			d.UUID = fmt.Sprintf("GPU-%08x-0000-0000-0000-000000000000", i+1)
		}
		if !d.PCI.Valid {
			d.PCI = gpu.BusID{Bus: uint8(i + 1), Valid: true}
		}
		if d.Major == 0 {
			d.Major = 9
		}
		if d.Memory == 0 {
			d.Memory = memorySize
		}
	}
	return &Driver{config: c, space: newSpace(), failures: map[string]*failure{}, counts: map[string]int{}, left: map[string]int{}}
}

// Fail makes the n-th call from now, counted from 1, of a method of gpu.Driver or
// gpu.Context fail with err, an *gpu.Error for example. Calls after it work again.
func (d *Driver) Fail(method string, n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failures[method] = &failure{n, err}
}

// Calls is how often each method was called.
func (d *Driver) Calls() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := make(map[string]int, len(d.counts))
	for name, n := range d.counts {
		calls[name] = n
	}
	return calls
}

// Left is what was made and not freed, by kind: contexts, allocations, mappings,
// reservations, registrations, imported handles, streams, events, modules. Tests
// want none at the end.
func (d *Driver) Left() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := map[string]int{}
	for kind, n := range d.left {
		if n != 0 {
			left[kind] = n
		}
	}
	return left
}

func (d *Driver) count(kind string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left[kind] += n
}

// enter counts a call and fails it if it was told to.
func (d *Driver) enter(method string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[method]++
	f := d.failures[method]
	if f == nil {
		return nil
	}
	if f.after--; f.after > 0 {
		return nil
	}
	delete(d.failures, method)
	return f.err
}

// Name is "test".
func (d *Driver) Name() string { return "test" }

// Devices is those of the Config.
func (d *Driver) Devices() ([]gpu.DeviceInfo, error) {
	if err := d.enter("Devices"); err != nil {
		return nil, err
	}
	return append([]gpu.DeviceInfo(nil), d.config.Devices...), nil
}

// attributes is those of a new GPU.
var attributes = map[gpu.Attribute]int{gpu.Multiprocessors: 4, gpu.AsyncEngines: 2, gpu.HasVMM: 1, gpu.HasFDHandles: 1, gpu.HasDMABuf: 1,
	gpu.GDRSupported: 1, gpu.GDRWithVMM: 1, gpu.GDRFlushOptions: 1, gpu.GDRWritesOrdering: 100, gpu.StreamMemOps: 1, gpu.HostRegister: 1,
	gpu.SharedByProcesses: 1}

// Attribute is that of the Config or of a new GPU.
func (d *Driver) Attribute(device int, a gpu.Attribute) (int, error) {
	if err := d.enter("Attribute"); err != nil {
		return 0, err
	}
	if err := d.check(device); err != nil {
		return 0, err
	}
	return d.attribute(a), nil
}

func (d *Driver) attribute(a gpu.Attribute) int {
	if v, ok := d.config.Attributes[a]; ok {
		return v
	}
	return attributes[a]
}

func (d *Driver) check(device int) error {
	if device < 0 || device >= len(d.config.Devices) {
		return &gpu.Error{Call: "device", Name: "INVALID_DEVICE", Code: 101, Device: device}
	}
	return nil
}

// CanAccessPeer is by the Config.
func (d *Driver) CanAccessPeer(device, peer int) (bool, error) {
	if err := d.enter("CanAccessPeer"); err != nil {
		return false, err
	}
	return device != peer && (d.config.Peers == nil || d.config.Peers(device, peer)), nil
}

// Links is by the Config.
func (d *Driver) Links(device int) ([]gpu.Link, error) {
	if err := d.enter("Links"); err != nil {
		return nil, err
	}
	return d.config.Links[device], nil
}

// Open gives a context.
func (d *Driver) Open(device int) (gpu.Context, error) {
	if err := d.enter("Open"); err != nil {
		return nil, err
	}
	if err := d.check(device); err != nil {
		return nil, err
	}
	d.count("contexts", 1)
	return &context{d: d, info: d.config.Devices[device], made: map[made]func(*context){}}, nil
}

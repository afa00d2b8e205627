package memdriver

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/cause"
)

// Driver is a fabric with its devices. Its methods may be called from any
// goroutine.
type Driver struct {
	cfg Config

	mu      sync.Mutex // the whole fabric
	made    int        // devices ever made
	devices []*Device
	watch   []chan<- struct{}
	stalled []*qp  // send queues whose first request cannot run yet, oldest first
	posted  uint64 // requests ever posted, their order over all queues

	// Scratch memory of the request that is running.
	kicked   []*qp
	src, dst [][]byte
	old      [8]byte
}

// New makes a fabric. It panics if two devices have one name.
func New(c Config) *Driver {
	if c.Name == "" {
		c.Name = "mem"
	}
	if c.Devices == nil {
		c.Devices = []DeviceConfig{{}}
	}
	d := &Driver{cfg: c}
	for _, dc := range c.Devices {
		d.Add(dc)
	}
	return d
}

// Name is Config.Name.
func (d *Driver) Name() string { return d.cfg.Name }

// Devices lists the devices in the order in which they were added.
func (d *Driver) Devices() ([]driver.Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]driver.Device, len(d.devices))
	for i, dev := range d.devices {
		list[i] = dev
	}
	return list, nil
}

// Watch sends after each Add and Remove.
func (d *Driver) Watch(ctx context.Context, changed chan<- struct{}) error {
	d.mu.Lock()
	d.watch = append(d.watch, changed)
	d.mu.Unlock()
	<-ctx.Done()
	d.mu.Lock()
	d.watch = slices.DeleteFunc(d.watch, func(c chan<- struct{}) bool { return c == changed })
	d.mu.Unlock()
	return cause.Of(ctx)
}

// Add plugs a device in. It panics if there is one of that name.
func (d *Driver) Add(c DeviceConfig) *Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.made
	d.made++
	if c.Name == "" {
		c.Name = fmt.Sprintf("mem%d", n)
	}
	if d.find(c.Name) != nil {
		panic("memdriver: two devices are called " + c.Name)
	}
	dev := newDevice(d, c, n)
	d.devices = append(d.devices, dev)
	d.changed()
	return dev
}

// Device is the device of that name, for its switches. It panics if there is
// none.
func (d *Driver) Device(name string) *Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	dev := d.find(name)
	if dev == nil {
		panic("memdriver: no device is called " + name)
	}
	return dev
}

func (d *Driver) find(name string) *Device {
	for _, dev := range d.devices {
		if dev.info.Name == name {
			return dev
		}
	}
	return nil
}

func (d *Driver) changed() {
	for _, c := range d.watch {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

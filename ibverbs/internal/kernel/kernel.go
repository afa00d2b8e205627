package kernel

import (
	"cmp"
	"errors"
	"slices"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
)

// Node is a device as it was listed: how to open it and what is known of it.
type Node struct {
	uverbs.Node
	Info driver.DeviceInfo
}

// Provider drives the devices of one kernel driver.
type Provider interface {
	// DriverID is enum rdma_driver_id.
	DriverID() uint32
	// Open opens a device of that driver, by OpenContext.
	Open(w *World, n Node) (driver.Context, error)
}

// New is a driver for all devices of a world that one of ps knows. The others
// are listed too, and say at Open what is missing.
func New(w World, ps ...Provider) driver.Driver { return &kernelDriver{w: w, providers: ps} }

type kernelDriver struct {
	w         World
	providers []Provider
}

// Name implements driver.Driver.
func (*kernelDriver) Name() string { return "kernel" }

// Devices implements driver.Driver: hardware first, then by name.
func (k *kernelDriver) Devices() ([]driver.Device, error) {
	nodes, broken, nlErr := k.w.byNetlink()
	if nlErr != nil {
		var err error
		if nodes, broken, err = k.w.bySysfs(); err != nil {
			return nil, errors.Join(nlErr, err)
		}
	}
	slices.SortFunc(nodes, func(a, b Node) int {
		if a.Info.Software != b.Info.Software {
			if b.Info.Software {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(len(a.Info.Name), len(b.Info.Name)), cmp.Compare(a.Info.Name, b.Info.Name))
	})
	devices := make([]driver.Device, len(nodes))
	for i, n := range nodes {
		devices[i] = &device{k: k, n: n}
	}
	return devices, errors.Join(broken...)
}

// FindNetDevice implements driver.NetDeviceFinder.
func (k *kernelDriver) FindNetDevice(netDevice string) []string { return k.w.rdmaDevices(netDevice) }

type device struct {
	k *kernelDriver
	n Node
}

// Info implements driver.Device.
func (d *device) Info() driver.DeviceInfo { return d.n.Info }

// Open implements driver.Device.
func (d *device) Open() (driver.Context, error) {
	for _, p := range d.k.providers {
		if p.DriverID() != d.n.DriverID {
			continue
		}
		c, err := p.Open(&d.k.w, d.n)
		if err != nil {
			return nil, d.k.w.openError(d.n, err)
		}
		return c, nil
	}
	return nil, noProvider(d.n)
}

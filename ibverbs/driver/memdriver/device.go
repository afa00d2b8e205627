package memdriver

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/softdev"
)

// Device is a device of the fabric, and the switches that a test turns on it.
type Device struct {
	d         *Driver
	info      driver.DeviceInfo
	attr      driver.DeviceAttr
	maxInline int
	dmaBuf    func(driver.DMABuf) error

	// Under Driver.mu.
	ports    []*port
	contexts []*memContext
	qps      map[uint32]*qp
	lkeys    map[uint32]*mr
	rkeys    map[uint32]*mr
	pds, cqs int
	lastQPN  uint32
	lastKey  uint32
	faults   faults
}

type port struct {
	attr driver.PortAttr
	gids []driver.GIDEntry
}

func newDevice(d *Driver, c DeviceConfig, n int) *Device {
	guid := 0x0202_0300_0000_0000 + uint64(n)<<16
	dev := &Device{
		d: d, attr: c.attr(guid), maxInline: c.MaxInline, dmaBuf: c.DMABuf,
		qps: map[uint32]*qp{}, lkeys: map[uint32]*mr{}, rkeys: map[uint32]*mr{},
		// Numbers of different devices differ, so that a mix-up shows.
		lastQPN: 0x10 + uint32(n)<<12, lastKey: 0x1000 + uint32(n)<<20,
	}
	if dev.maxInline == 0 {
		dev.maxInline = 512
	}
	ports := c.Ports
	if len(ports) == 0 {
		ports = []PortConfig{{}}
	}
	for i, p := range ports {
		dev.ports = append(dev.ports, p.port(n, i+1, guid))
	}
	dev.info = driver.DeviceInfo{
		Name: c.Name, Driver: d.cfg.Name, Firmware: dev.attr.Firmware, PCI: c.PCI, NodeGUID: guid, SysGUID: guid,
		Ports: len(ports), NUMANode: c.NUMANode, Index: -1, Software: !c.Hardware, NodeType: driver.NodeCA,
	}
	return dev
}

// Info is the device as configured.
func (dev *Device) Info() driver.DeviceInfo { return dev.info }

// Open gives a context.
func (dev *Device) Open() (driver.Context, error) {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	if err := dev.faults.next(OpOpen); err != nil {
		return nil, err
	}
	if dev.faults.gone {
		return nil, driver.ErrNoDevice
	}
	c := &memContext{dev: dev, events: softdev.NewMailbox[driver.Event](&dev.d.mu)}
	dev.contexts = append(dev.contexts, c)
	return c, nil
}

func (dev *Device) port(n int) (*port, error) {
	if n < 1 || n > len(dev.ports) {
		return nil, syscall.EINVAL
	}
	return dev.ports[n-1], nil
}

// control begins a call that is not on the data path.
func (dev *Device) control(op Op) error {
	if dev.faults.gone {
		return driver.ErrDeviceGone
	}
	return dev.faults.next(op)
}

// gid is the entry with that index of the port's table.
func (p *port) gid(index int) (driver.GID, bool) {
	for i := range p.gids {
		if p.gids[i].Index == index {
			return p.gids[i].GID, true
		}
	}
	return driver.GID{}, false
}

// raise delivers an event about a port or the device to every context.
func (dev *Device) raise(e driver.Event) {
	for _, c := range dev.contexts {
		c.events.Put(e)
	}
}

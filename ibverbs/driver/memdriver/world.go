package memdriver

import (
	"cmp"
	"slices"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// SetPort changes the state of a port and raises IBV_EVENT_PORT_ACTIVE or
// IBV_EVENT_PORT_ERR. Requests that meet a port that is not active wait as for
// a peer that does not answer.
func (dev *Device) SetPort(number int, s driver.PortState) {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	dev.ports[number-1].attr.State = s
	event := driver.EventPortErr
	if s == driver.PortActive {
		event = driver.EventPortActive
	}
	dev.raise(driver.Event{Type: event, Port: number})
	dev.d.kick()
}

// SetGIDs replaces the GID table of a port and raises IBV_EVENT_GID_CHANGE.
func (dev *Device) SetGIDs(number int, gids []driver.GIDEntry) {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	dev.ports[number-1].gids = slices.Clone(gids)
	dev.raise(driver.Event{Type: driver.EventGIDChange, Port: number})
	dev.d.kick()
}

// SetMTU changes the active MTU of a port. QPs that exist keep theirs.
func (dev *Device) SetMTU(number int, m driver.MTU) {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	dev.ports[number-1].attr.ActiveMTU = m
}

// Raise delivers an event about the device or a port to all contexts.
func (dev *Device) Raise(e driver.Event) {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	dev.raise(e)
}

// RaiseQP delivers an event about the QP of that number to its context, and
// reports whether there is such a QP.
func (dev *Device) RaiseQP(qpn uint32, t driver.EventType) bool {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	q := dev.qps[qpn]
	if q != nil {
		q.raise(t)
	}
	return q != nil
}

// Fatal is an adapter that died: IBV_EVENT_DEVICE_FATAL in all contexts, QPs in
// the error state, and ErrDeviceGone from all calls but Close.
func (dev *Device) Fatal() {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	dev.fatal()
}

func (dev *Device) fatal() {
	for _, q := range dev.byNumber() {
		q.fail()
	}
	dev.faults.gone, dev.faults.silent = true, true
	dev.raise(driver.Event{Type: driver.EventDeviceFatal})
	dev.d.kick()
}

// Remove pulls the device of that name out: Fatal, and it is listed no more.
func (d *Driver) Remove(name string) {
	dev := d.Device(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.devices = slices.DeleteFunc(d.devices, func(o *Device) bool { return o == dev })
	dev.fatal()
	d.changed()
}

// QPs is the numbers of the QPs that exist, rising.
func (dev *Device) QPs() []uint32 {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	var list []uint32
	for _, q := range dev.byNumber() {
		list = append(list, q.num)
	}
	return list
}

// Leaks counts open contexts, and the objects in them: 0 at the end of a test.
func (dev *Device) Leaks() (contexts, objects int) {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	for _, c := range dev.contexts {
		objects += c.users
	}
	return len(dev.contexts), objects + len(dev.qps) + len(dev.lkeys)
}

func (dev *Device) byNumber() []*qp {
	list := make([]*qp, 0, len(dev.qps))
	for _, q := range dev.qps {
		list = append(list, q)
	}
	slices.SortFunc(list, func(a, b *qp) int { return cmp.Compare(a.num, b.num) })
	return list
}

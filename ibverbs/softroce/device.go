package softroce

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"slices"
	"sync"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/softdev"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
)

// device is a listed device. It binds its address when it is first opened, and
// frees it when its last context is closed.
type device struct {
	drv  *softDriver
	name string
	addr netip.Addr // the zero value takes a free one of loopback
	guid uint64

	mu       sync.Mutex
	engine   *engine
	contexts []*softContext
}

func newDevice(drv *softDriver, name string, addr netip.Addr) *device {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name + addr.String()))
	guid := binary.BigEndian.Uint64(h.Sum(nil))
	return &device{drv: drv, name: name, addr: addr, guid: guid&^(3<<56) | 2<<56} // a local, individual address
}

func (d *device) Info() driver.DeviceInfo {
	return driver.DeviceInfo{
		Name: d.name, Driver: driverName, Firmware: firmwareLabel, NodeGUID: d.guid, SysGUID: d.guid, Ports: 1, NUMANode: -1, Index: -1, Software: true, NodeType: driver.NodeCA,
	}
}

func (d *device) Open() (driver.Context, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.engine == nil {
		l, err := d.drv.network.Open(d.addr)
		if err != nil {
			return nil, err
		}
		var netdev link.Netdev
		if n, ok := l.(interface{ Netdev() link.Netdev }); ok {
			netdev = n.Netdev()
		}
		if d.drv.ecn {
			if err := showClass(l); err != nil {
				_ = l.Close()
				return nil, err
			}
		}
		if l, err = d.drv.capture(l, d.name); err != nil {
			return nil, err
		}
		d.engine = startEngine(d, l, netdev)
		if w, ok := l.(link.PortWatcher); ok {
			w.OnPort(d.portChanged)
		}
	}
	c := &softContext{e: d.engine, events: softdev.NewMailbox[driver.Event](nil)}
	d.contexts = append(d.contexts, c)
	return c, nil
}

// leave closes a context; the last closes the engine.
func (d *device) leave(c *softContext) error {
	d.mu.Lock()
	d.contexts = slices.DeleteFunc(d.contexts, func(o *softContext) bool { return o == c })
	var last *engine
	if len(d.contexts) == 0 {
		last, d.engine = d.engine, nil
	}
	d.mu.Unlock()
	if last == nil {
		return nil
	}
	return last.close()
}

// portChanged tells all contexts.
func (d *device) portChanged(up bool) {
	t := driver.EventPortErr
	if up {
		t = driver.EventPortActive
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.contexts {
		c.events.Put(driver.Event{Type: t, Port: 1})
	}
}

package kernel

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
)

// Context is the part of an open device that all providers share. They embed
// it, and add Probe, AllocPD and CreateCQ to make it a driver.Context.
type Context struct {
	// Dev is for the commands of the provider.
	Dev *uverbs.Device

	w     *World
	node  Node
	async *uverbs.AsyncEvents
}

// OpenContext opens a node and makes its context, with what the provider has to
// say to that, and the file of asynchronous events.
func OpenContext(w *World, n Node, u uverbs.UHW) (*Context, error) {
	dev, err := uverbs.Open(w.Kernel, n.Node)
	if err != nil {
		return nil, err
	}
	c := &Context{Dev: dev, w: w, node: n}
	if err = w.still(n); err == nil {
		err = dev.GetContext(u)
	}
	if err == nil {
		c.async, err = dev.AllocAsyncEvents()
	}
	if err != nil {
		_ = dev.Close()
		return nil, err
	}
	return c, nil
}

// still reports whether an opened node is of the device that was listed. Numbers of
// nodes are given again at once, device numbers with them; the kernel's index is not.
// A device that udev has renamed meanwhile is the same.
func (w *World) still(n Node) error {
	node := path.Base(n.Path)
	name, err := w.sysString(path.Join(classVerbs, node), "ibdev")
	if err != nil || name == n.Info.Name {
		return nil // without sysfs the device number has to do
	}
	if n.Info.Index >= 0 {
		if c, err := w.chardev(uint32(n.Info.Index)); err == nil && c.str(uapi.NLDevAttrChardevName) == node {
			return nil
		}
	}
	return fmt.Errorf("%s is of %s by now: %w", n.Path, name, driver.ErrDeviceGone)
}

// name is what the device is called now: udev may have renamed it since it was
// opened, and sysfs has it under its new name alone.
func (c *Context) name() string {
	if name, err := c.w.sysString(path.Join(classVerbs, path.Base(c.node.Path)), "ibdev"); err == nil && validName(name) {
		return name
	}
	return c.node.Info.Name
}

// Info is what was known of the device when it was listed.
func (c *Context) Info() driver.DeviceInfo { return c.node.Info }

// QueryDevice implements driver.Context.
func (c *Context) QueryDevice() (driver.DeviceAttr, error) {
	a, err := c.Dev.QueryDevice()
	if fw := c.node.Info.Firmware; fw != "" {
		a.Firmware = fw
	}
	return a, err
}

// QueryPort implements driver.Context.
func (c *Context) QueryPort(port int) (driver.PortAttr, error) { return c.Dev.QueryPort(port) }

// GIDs implements driver.Context. Kernels that cannot be asked have them in
// sysfs.
func (c *Context) GIDs(port int) ([]driver.GIDEntry, error) {
	a, err := c.Dev.QueryPort(port)
	if err != nil {
		return nil, err
	}
	gids, err := c.Dev.GIDs(port, a.GIDTableLen, c.node.Info.Ports)
	if errors.Is(err, driver.ErrNotSupported) {
		return c.w.sysGIDs(c.name(), port)
	}
	name := c.name()
	for i := range gids {
		gids[i].NetDev = c.netDev(name, port, &gids[i])
	}
	return gids, err
}

// netDev is the name of a GID's net device if it is in this network namespace.
// Indices are unique within a namespace only, so sysfs, which knows the name in
// any, has to agree.
func (c *Context) netDev(device string, port int, e *driver.GIDEntry) string {
	if e.IfIndex == 0 {
		return ""
	}
	name := c.w.InterfaceName(e.IfIndex)
	if s := c.w.sysNetDev(device, port, e.Index); s != "" && s != name {
		return ""
	}
	return name
}

// CreateCompChannel implements driver.Context.
func (c *Context) CreateCompChannel() (driver.CompChannel, error) {
	ch, err := c.Dev.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	return ch, nil
}

// NextEvent implements driver.Context.
func (c *Context) NextEvent(ctx context.Context) (driver.Event, error) { return c.async.Next(ctx) }

// Close implements driver.Context: the event file first, which would otherwise
// keep the device busy, then the device.
func (c *Context) Close() error { return errors.Join(c.async.Close(), c.Dev.Close()) }

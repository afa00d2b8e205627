package ibverbs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/absent"
)

// Option changes where Devices, Open and Watch look, and where Open logs.
type Option func(*options)

type options struct {
	drivers []driver.Driver
	log     *slog.Logger
}

// WithDrivers looks through ds alone, of which nil ones count for nothing. Without
// it the kernel's devices come first, then those of the drivers that the program
// imports.
func WithDrivers(ds ...driver.Driver) Option {
	return func(o *options) {
		o.drivers = slices.DeleteFunc(append([]driver.Driver{}, ds...), func(d driver.Driver) bool { return d == nil })
	}
}

// WithLogger sends to l what Open decided and why. The default is
// slog.Default().
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

func collect(opts []Option) options {
	var o options
	for _, f := range opts {
		if f != nil {
			f(&o)
		}
	}
	if o.drivers == nil {
		o.drivers = append(builtin(), driver.Registered()...)
	}
	if o.log == nil {
		o.log = slog.Default()
	}
	return o
}

// Device is a device that was found. Its methods may be called from any
// goroutine.
type Device struct {
	d   driver.Device
	log *slog.Logger
}

// Info is a snapshot of when the device was found.
func (d *Device) Info() DeviceInfo { return d.d.Info() }

// Open opens the device. Each call gives an independent Context, which the
// caller closes.
func (d *Device) Open() (*Context, error) {
	info := d.d.Info()
	dc, err := d.d.Open()
	if err != nil {
		return nil, wrap("open", info.Name, "", err)
	}
	return newContext(dc, info, d.log), nil
}

// Devices lists what there is: hardware first, then the kernel's software
// devices, then the rest. Entries that could not be read are left out and are
// in the error beside the list, which is valid all the same.
func Devices(opts ...Option) ([]*Device, error) { return devices(collect(opts)) }

func devices(o options) ([]*Device, error) {
	var found []*Device
	var errs []error
	for _, drv := range o.drivers {
		ds, err := drv.Devices()
		if err != nil {
			errs = append(errs, err)
		}
		for _, d := range ds {
			found = append(found, &Device{d, o.log})
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return !found[i].Info().Software && found[j].Info().Software })
	return found, errors.Join(errs...)
}

// Open opens a device by its name ("mlx5_0"), its PCI address ("0000:3b:00.0"),
// the name of its net device ("eth2") or an IP address that one of its GIDs
// has. With "" it is the first of Devices that has an active port with a GID
// that can be routed, else the first with an active port; which one, and why
// the ones before it were not, is logged.
func Open(name string, opts ...Option) (*Context, error) {
	o := collect(opts)
	found, listErr := devices(o)
	if len(found) == 0 {
		return nil, &Error{Op: "open", Device: name, Err: join(ErrNoDevice, listErr), Hint: hintNoDevice}
	}
	if name == "" {
		return openBest(o, found)
	}
	if i := slices.IndexFunc(found, func(d *Device) bool { in := d.Info(); return in.Name == name || in.PCI == name }); i >= 0 {
		return found[i].Open()
	}
	if ds := byNetDevice(o.drivers, found, name); len(ds) > 0 {
		if len(ds) > 1 {
			o.log.Warn("several RDMA devices belong to one net device; the first is taken", "net device", name, "devices", deviceNames(ds))
		}
		return ds[0].Open()
	}
	dev, err := openByGID(found, name)
	if dev != nil {
		return dev, nil
	}
	return nil, &Error{Op: "open", Device: name, Err: join(ErrNoDevice, listErr, err), Hint: "there are " + strings.Join(deviceNames(found), ", ")}
}

func deviceNames(ds []*Device) []string {
	names := make([]string, len(ds))
	for i, d := range ds {
		names[i] = d.Info().Name
	}
	return names
}

const hintNoDevice = "load a driver for the adapter; without one import ibverbs/softroce, a device in user space, or load the kernel's: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0; in a container pass /dev/infiniband in"

func join(err error, more ...error) error {
	more = slices.DeleteFunc(more, func(e error) bool { return e == nil })
	if len(more) == 0 {
		return err
	}
	return errors.Join(append([]error{err}, more...)...)
}

// byNetDevice is the devices that a driver says the net device belongs to.
func byNetDevice(drivers []driver.Driver, found []*Device, netDevice string) (ds []*Device) {
	for _, drv := range drivers {
		f, ok := drv.(driver.NetDeviceFinder)
		if !ok {
			continue
		}
		names := f.FindNetDevice(netDevice)
		for _, d := range found {
			if slices.Contains(names, d.Info().Name) {
				ds = append(ds, d)
			}
		}
	}
	return ds
}

// openByGID opens the device of which a GID has this address, or this net
// device.
func openByGID(found []*Device, name string) (*Context, error) {
	addr, _ := netip.ParseAddr(name)
	addr = addr.Unmap().WithZone("")
	var errs []error
	for _, d := range found {
		dev, err := d.Open()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for port := 1; port <= dev.Info().Ports; port++ {
			gids, _ := dev.GIDs(port)
			for _, g := range gids {
				if (addr.IsValid() && g.GID.Addr() == addr) || (g.NetDev != "" && g.NetDev == name) {
					return dev, nil
				}
			}
		}
		errs = append(errs, dev.Close())
	}
	return nil, errors.Join(errs...)
}

// openBest opens the first device that can reach other hosts.
func openBest(o options, found []*Device) (*Context, error) {
	var second *Context
	var passed, idle []string
	var errs []error
	for _, d := range found {
		dev, err := d.Open()
		if err != nil {
			errs, passed = append(errs, err), append(passed, err.Error())
			continue
		}
		port, routable := bestPort(dev)
		if routable {
			if second != nil {
				if err := second.Close(); err != nil {
					o.log.Warn("RDMA device that was passed over", "device", second.Info().Name, "err", err)
				}
			}
			o.log.Debug("RDMA device chosen", "device", dev.Info().Name, "port", port, "reason", "first with an active port and a routable GID", "passed", passed)
			return dev, nil
		}
		if port == 0 {
			idle = append(idle, dev.Info().Name)
			passed = append(passed, dev.Info().Name+": no active port")
		} else {
			passed = append(passed, fmt.Sprintf("%s: no routable GID on port %d", dev.Info().Name, port))
			if second == nil {
				second = dev
				continue
			}
		}
		errs = append(errs, dev.Close())
	}
	if second != nil {
		o.log.Debug("RDMA device chosen", "device", second.Info().Name, "reason", "first with an active port; no device has a routable GID", "passed", passed)
		return second, nil
	}
	hint := "no device can be opened"
	if len(idle) > 0 {
		hint = "there is no active port on " + strings.Join(idle, ", ")
	}
	return nil, &Error{Op: "open", Err: join(ErrNoDevice, errs...), Hint: hint}
}

// bestPort is the first active port, preferring one with a routable GID; 0 if
// none is active.
func bestPort(dev *Context) (port int, routable bool) {
	for p := dev.Info().Ports; p >= 1; p-- {
		a, err := dev.Port(p)
		if err != nil || a.State != PortActive {
			continue
		}
		r := a.LinkLayer == LinkInfiniBand
		if gids, err := dev.GIDs(p); err == nil && !r {
			r = slices.ContainsFunc(gids, func(g GIDEntry) bool { return !g.GID.IsZero() && !g.GID.Addr().IsLinkLocalUnicast() })
		}
		if r || !routable {
			port, routable = p, r || routable
		}
	}
	return port, routable
}

// Watch sends the list of Devices now and after each change, until ctx is done;
// then the channel is closed. A reader that is slow gets the newest list. A nil ctx
// panics, as there is no error to return.
func Watch(ctx context.Context, opts ...Option) <-chan []*Device {
	if ctx == nil {
		panic("ibverbs: Watch: " + absent.ErrContext.Error())
	}
	o := collect(opts)
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	var watchers sync.WaitGroup
	for _, drv := range o.drivers {
		watchers.Go(func() {
			if err := drv.Watch(ctx, changed); err != nil && ctx.Err() == nil {
				o.log.Warn("RDMA devices of a driver are not watched any more", "driver", drv.Name(), "err", err)
			}
		})
	}
	lists := make(chan []*Device, 1)
	go func() {
		defer close(lists)
		defer watchers.Wait()
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
			found, err := devices(o)
			if err != nil {
				o.log.Warn("some RDMA devices could not be listed", "err", err)
			}
			select {
			case <-lists:
			default:
			}
			lists <- found
		}
	}()
	return lists
}

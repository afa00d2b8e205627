package nettransport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/purerdma/purerdma/gdr"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
)

// device is an open device. Its protection domain and the cache of registrations in it live as long as a connection uses them.
type device struct {
	t     *Transport
	ctx   *ibverbs.Context
	owned bool // by New
	name  string
	attr  ibverbs.DeviceAttr

	mu    sync.Mutex
	users int
	pd    *ibverbs.PD
	cache *mr.Cache
	reach *gdr.Registrar // of the Transport's GPU, from the first use on; its domain may be one before pd
	comms map[any]*Comm  // by QP and CQ, for events
	news  map[int]string

	stop func()
}

func newDevice(t *Transport, ctx *ibverbs.Context, owned bool) (*device, error) {
	d := &device{t: t, ctx: ctx, owned: owned, name: ctx.Info().Name, comms: map[any]*Comm{}, news: map[int]string{}}
	var err error
	d.attr, err = ctx.Query()
	return d, err
}

// acquire gives the protection domain and the cache to a connection, which calls release once.
func (d *device) acquire() (*ibverbs.PD, *mr.Cache, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users == 0 {
		pd, err := d.ctx.AllocPD()
		if err != nil {
			return nil, nil, err
		}
		d.pd, d.cache = pd, mr.NewCache(pd)
	}
	d.users++
	return d.pd, d.cache, nil
}

func (d *device) release() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users--
	if d.users > 0 {
		return nil
	}
	err := d.pd.Close()
	d.pd, d.cache = nil, nil
	return err
}

// registrar registers memory of the Transport's GPU with the protection domain, for who has acquired that.
func (d *device) registrar() (*gdr.Registrar, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reach != nil {
		d.reach = d.reach.On(d.pd)
		return d.reach, nil
	}
	var err error
	d.reach, err = gdr.NewRegistrar(d.gdr(), d.t.cfg.GPU, d.pd, d.t.log)
	return d.reach, err
}

// gdr is what decides how the device reaches the Transport's GPU.
func (d *device) gdr() gdr.Config {
	c := d.t.cfg.GDR
	c.GPU, c.Device = d.t.cfg.GPU.Device(), d.ctx
	return c
}

// watch reads the device's asynchronous events until stop.
func (d *device) watch() {
	sub := d.ctx.Subscribe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			ev, err := sub.Next(ctx)
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, ErrClosed) {
					d.failAll(err)
				}
				return
			}
			d.event(ev)
		}
	}()
	d.stop = func() {
		cancel()
		<-done
		_ = sub.Close()
	}
}

// event acts as NCCL does: what breaks a queue or the device fails the connections on it, and the rest is told. Queues of others
// who use the device are not our matter.
func (d *device) event(ev ibverbs.Event) {
	what := fmt.Sprintf("asynchronous event %v", ev.Type)
	ours := true
	switch ev.Type {
	case ibverbs.EventDeviceFatal:
		d.failAll(fmt.Errorf("%s: %w", what, ibverbs.ErrDeviceGone))
	case ibverbs.EventCQErr:
		ours = d.fail(ev.Object, fmt.Errorf("%s: %w", what, ibverbs.ErrCQOverrun))
	case ibverbs.EventQPFatal, ibverbs.EventQPReqErr, ibverbs.EventQPAccessErr:
		ours = d.fail(ev.Object, errors.New(what))
	case ibverbs.EventPortErr, ibverbs.EventPortActive, ibverbs.EventGIDChange:
		d.mu.Lock()
		d.news[ev.Port] = fmt.Sprintf("%v at %s", ev.Type, time.Now().Format("15:04:05"))
		d.mu.Unlock()
	case eventCommEst:
		return
	}
	if ours {
		d.t.log.Warn("asynchronous event of an RDMA device", "device", d.name, "port", ev.Port, "event", ev.Type, "count", ev.Count)
	}
}

// eventCommEst says that a first message has come, which everybody knows already.
const eventCommEst ibverbs.EventType = 4

// fail ends the connection that an object belongs to, and says whether there is one.
func (d *device) fail(object any, err error) bool {
	d.mu.Lock()
	c := d.comms[object]
	d.mu.Unlock()
	if c == nil {
		return false
	}
	c.faults.CompareAndSwap(nil, &fault{d, object, err})
	return true
}

func (d *device) failAll(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for object, c := range d.comms {
		c.faults.CompareAndSwap(nil, &fault{d, object, err})
	}
}

// route makes events about objects reach c; a nil c ends that.
func (d *device) route(c *Comm, objects ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range objects {
		if c == nil {
			delete(d.comms, o)
		} else {
			d.comms[o] = c
		}
	}
}

// newsOf is the last event of a port, for the hint of an error: a link that flaps shows as a time-out of its connections.
func (d *device) newsOf(port int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.news[port]
}

func (t *Transport) closeDevices() error {
	var errs []error
	for _, d := range t.devices {
		if d.stop != nil {
			d.stop()
		}
		if d.owned {
			errs = append(errs, d.ctx.Close())
		}
	}
	return errors.Join(errs...)
}

// chooseGID is the GID that a new connection on p would use.
func (t *Transport) chooseGID(p *port) (qp.Choice, error) {
	table, err := p.dev.ctx.GIDs(p.num)
	if err != nil {
		return qp.Choice{}, err
	}
	params := applied(t.cfg.QP)
	c, err := params.ChooseGID(p.attr.LinkLayer, table)
	var e *ibverbs.Error
	if errors.As(err, &e) {
		e.Device = p.String()
	}
	return c, err
}

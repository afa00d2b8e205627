package softroce

import (
	"context"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/softdev"
)

// softContext is an open device. All contexts of a device share its engine.
type softContext struct {
	e      *engine
	events *softdev.Mailbox[driver.Event]
	users  atomic.Int64 // open objects
}

func (c *softContext) QueryDevice() (driver.DeviceAttr, error) { return deviceAttr(c.e.dev.guid), nil }

func (c *softContext) QueryPort(n int) (driver.PortAttr, error) {
	if n != 1 {
		return driver.PortAttr{}, syscall.EINVAL
	}
	return c.e.port(), nil
}

func (c *softContext) GIDs(n int) ([]driver.GIDEntry, error) {
	if n != 1 {
		return nil, syscall.EINVAL
	}
	return []driver.GIDEntry{{GID: gidOf(c.e.addr), Type: driver.GIDTypeRoCEv2, NetDev: c.e.netdev.Name, IfIndex: c.e.netdev.Index}}, nil
}

// Counters is those of the device, which all its contexts share, since it was
// opened first. See the package for what they mean.
func (c *softContext) Counters(n int) ([]driver.Counter, error) {
	if n != 1 {
		return nil, syscall.EINVAL
	}
	return c.e.counters.list(c.e.link.Stats()), nil
}

func (c *softContext) Probe(f driver.Feature) error {
	switch f {
	case driver.FeatureAtomics, driver.FeatureResizeCQ, driver.FeatureCounters, driver.FeatureSRQ, driver.FeatureResizeSRQ,
		driver.FeatureUC, driver.FeatureUD, driver.FeatureAH, driver.FeatureMW2, driver.FeatureDMABuf, driver.FeatureReregMR, driver.FeatureModerateCQ:
		return nil
	}
	return &driver.NotSupportedError{Feature: f, By: driver.LacksDriver}
}

func (c *softContext) AllocPD() (driver.PD, error) {
	c.users.Add(1)
	return &pd{ctx: c, e: c.e}, nil
}

func (c *softContext) CreateCompChannel() (driver.CompChannel, error) {
	c.users.Add(1)
	return &compChannel{ctx: c, events: softdev.NewMailbox[*cq](nil)}, nil
}

func (c *softContext) CreateCQ(cfg driver.CQConfig) (driver.CQ, error) {
	if cfg.Depth < 1 || cfg.Depth > maxCQE || cfg.Vector < 0 || cfg.Vector >= compVectors {
		return nil, syscall.EINVAL
	}
	q := &cq{ctx: c, cookie: cfg.Cookie, ring: make([]cqe, cfg.Depth)}
	if cfg.Channel != nil {
		ch, ok := cfg.Channel.(*compChannel)
		if !ok || ch.ctx != c {
			return nil, syscall.EINVAL
		}
		q.channel = ch
	}
	if c.e.cqs.Add(1) > maxCQ {
		c.e.cqs.Add(-1)
		return nil, syscall.ENOMEM
	}
	if q.channel != nil {
		q.channel.users.Add(1)
	}
	c.users.Add(1)
	return q, nil
}

func (c *softContext) NextEvent(ctx context.Context) (driver.Event, error) {
	return c.events.Wait(ctx)
}

func (c *softContext) Close() error {
	if c.users.Load() > 0 {
		return driver.ErrBusy
	}
	c.events.Close()
	return c.e.dev.leave(c)
}

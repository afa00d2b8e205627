package memdriver

import (
	"cmp"
	"context"
	"slices"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/softdev"
)

type memContext struct {
	dev    *Device
	events *softdev.Mailbox[driver.Event]
	turn   turn // of NextEvent
	users  int  // open objects
}

func (c *memContext) QueryDevice() (driver.DeviceAttr, error) {
	c.dev.d.mu.Lock()
	defer c.dev.d.mu.Unlock()
	return c.dev.attr, c.dev.control(OpQueryDevice)
}

func (c *memContext) QueryPort(n int) (driver.PortAttr, error) {
	c.dev.d.mu.Lock()
	defer c.dev.d.mu.Unlock()
	if err := c.dev.control(OpQueryPort); err != nil {
		return driver.PortAttr{}, err
	}
	p, err := c.dev.port(n)
	if err != nil {
		return driver.PortAttr{}, err
	}
	return p.attr, nil
}

func (c *memContext) GIDs(n int) ([]driver.GIDEntry, error) {
	c.dev.d.mu.Lock()
	defer c.dev.d.mu.Unlock()
	if err := c.dev.control(OpGIDs); err != nil {
		return nil, err
	}
	p, err := c.dev.port(n)
	if err != nil {
		return nil, err
	}
	list := slices.Clone(p.gids)
	slices.SortFunc(list, func(a, b driver.GIDEntry) int { return cmp.Compare(a.Index, b.Index) })
	return list, nil
}

func (c *memContext) Probe(f driver.Feature) error {
	if f == driver.FeatureAtomics || f == driver.FeatureReregMR || f == driver.FeatureDMABuf && c.dev.dmaBuf != nil {
		return nil
	}
	return &driver.NotSupportedError{Feature: f, By: driver.LacksDriver}
}

func (c *memContext) AllocPD() (driver.PD, error) {
	c.dev.d.mu.Lock()
	defer c.dev.d.mu.Unlock()
	if err := c.dev.control(OpAllocPD); err != nil {
		return nil, err
	}
	if c.dev.pds >= c.dev.attr.MaxPD {
		return nil, syscall.ENOMEM
	}
	c.dev.pds++
	c.users++
	return &pd{ctx: c}, nil
}

func (c *memContext) CreateCompChannel() (driver.CompChannel, error) {
	c.dev.d.mu.Lock()
	defer c.dev.d.mu.Unlock()
	if err := c.dev.control(OpCreateCompChannel); err != nil {
		return nil, err
	}
	c.users++
	return &compChannel{ctx: c, events: softdev.NewMailbox[*cq](&c.dev.d.mu)}, nil
}

func (c *memContext) CreateCQ(cfg driver.CQConfig) (driver.CQ, error) {
	c.dev.d.mu.Lock()
	defer c.dev.d.mu.Unlock()
	if err := c.dev.control(OpCreateCQ); err != nil {
		return nil, err
	}
	if cfg.Depth < 1 || cfg.Depth > c.dev.attr.MaxCQE || cfg.Vector < 0 || cfg.Vector >= c.dev.attr.CompVectors {
		return nil, syscall.EINVAL
	}
	if c.dev.cqs >= c.dev.attr.MaxCQ {
		return nil, syscall.ENOMEM
	}
	q := &cq{ctx: c, cookie: cfg.Cookie, ring: make([]cqe, cfg.Depth)}
	if cfg.Channel != nil {
		ch, ok := cfg.Channel.(*compChannel)
		if !ok || ch.ctx != c {
			return nil, syscall.EINVAL
		}
		q.channel = ch
		ch.users++
	}
	c.dev.cqs++
	c.users++
	return q, nil
}

func (c *memContext) NextEvent(ctx context.Context) (driver.Event, error) {
	c.turn.take("NextEvent")
	defer c.turn.give()
	return c.events.Wait(ctx)
}

func (c *memContext) Close() error {
	c.dev.d.mu.Lock()
	defer c.dev.d.mu.Unlock()
	if c.users > 0 {
		return driver.ErrBusy
	}
	c.dev.contexts = slices.DeleteFunc(c.dev.contexts, func(o *memContext) bool { return o == c })
	c.events.Close()
	return nil
}

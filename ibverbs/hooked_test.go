package ibverbs_test

import (
	"cmp"
	"context"
	"errors"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// hooked is a driver around another that runs functions at chosen moments. What
// is nil does not run.
type hooked struct {
	driver.Driver
	cqMade        func()
	beforeModify  func(*driver.QPAttr)
	afterModify   func(driver.QP, *driver.QPAttr)
	beforeQPClose func()
	qpClosed      error // what the device answers to a Close that it carried out
	nextEvent     func() error
}

type (
	hookedDevice struct {
		driver.Device
		h *hooked
	}
	hookedContext struct {
		driver.Context
		h *hooked
	}
	hookedPD struct {
		driver.PD
		h *hooked
	}
	hookedQP struct {
		driver.QP
		h *hooked
	}
	// mappedCQ polls as a queue in mapped memory does: it never sees that the
	// device is gone.
	mappedCQ struct{ driver.CQ }
)

func (h *hooked) Devices() ([]driver.Device, error) {
	ds, err := h.Driver.Devices()
	for i := range ds {
		ds[i] = hookedDevice{ds[i], h}
	}
	return ds, err
}

func (d hookedDevice) Open() (driver.Context, error) {
	c, err := d.Device.Open()
	return hookedContext{c, d.h}, err
}

func (c hookedContext) AllocPD() (driver.PD, error) {
	p, err := c.Context.AllocPD()
	return hookedPD{p, c.h}, err
}

func (c hookedContext) CreateCQ(config driver.CQConfig) (driver.CQ, error) {
	q, err := c.Context.CreateCQ(config)
	if c.h.cqMade != nil {
		c.h.cqMade()
	}
	return mappedCQ{q}, err
}

func (c hookedContext) NextEvent(ctx context.Context) (driver.Event, error) {
	if c.h.nextEvent != nil {
		if err := c.h.nextEvent(); err != nil {
			return driver.Event{}, err
		}
	}
	return c.Context.NextEvent(ctx)
}

func (p hookedPD) CreateQP(config driver.QPConfig) (driver.QP, error) {
	for _, cq := range []*driver.CQ{&config.SendCQ, &config.RecvCQ} {
		*cq = (*cq).(mappedCQ).CQ
	}
	q, err := p.PD.CreateQP(config)
	return hookedQP{q, p.h}, err
}

func (q hookedQP) Modify(a *driver.QPAttr, mask driver.QPMask) error {
	if q.h.beforeModify != nil {
		q.h.beforeModify(a)
	}
	err := q.QP.Modify(a, mask)
	if q.h.afterModify != nil {
		q.h.afterModify(q.QP, a)
	}
	return err
}

func (q hookedQP) Close() error {
	if q.h.beforeQPClose != nil {
		q.h.beforeQPClose()
	}
	return cmp.Or(q.QP.Close(), q.h.qpClosed)
}

func (q mappedCQ) Poll(wcs []driver.WC) (int, error) {
	n, err := q.CQ.Poll(wcs)
	if errors.Is(err, driver.ErrDeviceGone) {
		return n, nil
	}
	return n, err
}

package softroce

import (
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// pd is a protection domain: keys work with QPs of the same one only.
type pd struct {
	driver.BasePD
	ctx   *softContext
	e     *engine
	users atomic.Int64
}

func (p *pd) Close() error {
	if p.users.Load() > 0 {
		return driver.ErrBusy
	}
	p.ctx.users.Add(-1)
	return nil
}

func lacks(f driver.Feature) error {
	return &driver.NotSupportedError{Feature: f, By: driver.LacksDevice}
}

package mlx5

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
)

// PD is a protection domain. It implements driver.PD.
type PD struct {
	driver.BasePD
	dev *Context
	h   uverbs.PDHandle
}

// Close implements driver.PD.
func (p *PD) Close() error { return p.dev.Dev.DeallocPD(p.h) }

package mlx5model

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// pd is a protection domain.
type pd struct {
	num  uint32
	used int // objects made from it
}

func (c *call) allocPD([]byte) ([]byte, error) {
	p := &pd{num: c.m.number()}
	if err := c.out(uapi.AttrUHWOut, u32(p.num)); err != nil {
		return nil, err
	}
	return u32(c.add(p)), nil
}

func (c *call) destroyPD() error {
	h := c.number(uapi.AttrDestroyPDHandle)
	p, err := object[*pd](c.context, h)
	if err != nil {
		return err
	}
	if p.used != 0 {
		return syscall.EBUSY
	}
	delete(c.objects, uint32(h))
	return nil
}

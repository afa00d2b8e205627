package mlx5model

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

const pageSize = 4096

// uar is a page of doorbells. It lies in the file that the program maps, at the offset
// of its number.
type uar struct {
	index  uint32 // page_id
	handle uint32
	used   int // objects that ring in it
	flames [2]flame
}

// allocUAR answers UAR_OBJ_ALLOC.
func (c *call) allocUAR() error {
	if t := c.number(uapi.AttrMLX5UARAllocType); t != uapi.MLX5UARTypeBF && t != uapi.MLX5UARTypeNC {
		return syscall.EOPNOTSUPP
	}
	u := &uar{index: c.freePage()}
	if u.index == 0 {
		return syscall.ENOMEM
	}
	u.handle = c.add(u)
	c.uars[u.index] = u
	if err := c.outs(map[uint16][]byte{
		uapi.AttrMLX5UARAllocMMapOffset: u64(uint64(u.index) * pageSize),
		uapi.AttrMLX5UARAllocMMapLength: u32(pageSize),
		uapi.AttrMLX5UARAllocPageID:     u32(u.index),
	}); err != nil {
		return err
	}
	return c.made(uapi.AttrMLX5UARAllocHandle, u.handle)
}

// maxUARs is the pages that a context may have; the file has as many.
const maxUARs = 1024

// freePage is the least number that no page of the context has. 0 is never given, so
// that a program that forgets to name a page is caught.
func (c *context) freePage() uint32 {
	for i := uint32(1); i < maxUARs; i++ {
		if c.uars[i] == nil {
			return i
		}
	}
	return 0
}

func (c *call) freeUAR() error {
	h := c.number(uapi.AttrMLX5UARDestroyHandle)
	u, err := object[*uar](c.context, h)
	if err != nil {
		return err
	}
	if u.used != 0 {
		return syscall.EBUSY
	}
	delete(c.uars, u.index)
	delete(c.objects, uint32(h))
	return nil
}

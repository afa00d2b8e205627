package mlx5

import (
	"errors"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	"github.com/purerdma/purerdma/internal/mmio"
)

// doorbell is a send doorbell of a UAR, which belongs to one QP: so a store needs
// no lock but the send queue's. The halves of the register are stored to in
// turns, so that the processor does not combine two doorbells into one.
type doorbell struct {
	reg  [2]*uint64
	turn uint8
	page uint32
}

// ring tells the device of the entry that c is the head of, after its doorbell
// record was stored. The last fence empties the buffers of a write-combining
// mapping.
func (d *doorbell) ring(c *mlx5prm.Ctrl) {
	mmio.StoreFence()
	mmio.Store64(d.reg[d.turn&1], mlx5prm.SendRegister(c))
	mmio.StoreFence()
	d.turn ^= 1
}

// doorbellsPerUAR is how many a UAR of 4096 bytes has for entries like ours.
const doorbellsPerUAR = 2

// takeDoorbell gives a doorbell that no other QP has.
func (c *Context) takeDoorbell() (*doorbell, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.doorbells) == 0 {
		u, err := c.Dev.AllocUAR(uapi.MLX5UARTypeBF)
		if err != nil {
			return nil, err
		}
		c.uars = append(c.uars, u)
		size := c.bfRegSize
		for i := range doorbellsPerUAR {
			at := mlx5prm.UARBlueFlame + i*size
			c.doorbells = append(c.doorbells, &doorbell{page: u.PageID,
				reg: [2]*uint64{register(u.Mem, at), register(u.Mem, at+size/2)}})
		}
	}
	d := c.doorbells[len(c.doorbells)-1]
	c.doorbells = c.doorbells[:len(c.doorbells)-1]
	return d, nil
}

func (c *Context) giveDoorbell(d *doorbell) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doorbells = append(c.doorbells, d)
}

// freeUARs comes when no object is left that uses one.
func (c *Context) freeUARs() error {
	var errs []error
	for _, u := range append(c.uars, c.armUAR) {
		if u.Mem.Len() > 0 {
			errs = append(errs, u.Mem.Release(), c.Dev.FreeUAR(u.Handle))
		}
	}
	c.uars, c.doorbells, c.armUAR = nil, nil, uverbs.UAR{}
	return errors.Join(errs...)
}

package mlx5

import (
	"errors"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	"github.com/purerdma/purerdma/internal/mmio"
)

// doorbell is a send doorbell of a UAR, which belongs to one QP: so a store needs
// no lock but the send queue's. The halves of a write-combining register are stored to
// in turns, so that the processor does not combine two doorbells into one.
type doorbell struct {
	reg  [2]*uint64
	turn uint8
	page uint32
	// room is the bytes of a half that take a copy of an entry (BlueFlame), 0 where the
	// register is not write-combining.
	room uint32
}

// ring stores the doorbell record, count, and tells the device of the entry that c is
// the head of. The last fence empties the buffers of a write-combining mapping.
func (d *doorbell) ring(record *uint32, count uint32, c *mlx5prm.Ctrl) {
	mmio.PostWord(record, count, d.reg[d.turn&1], mlx5prm.SendRegister(c))
	d.turn ^= 1
}

// flame stores the doorbell record, count, and hands the entry of n bytes at off of the
// ring to the device: the copy is the doorbell too, and the device need not fetch the
// entry. n is at most room.
func (d *doorbell) flame(record *uint32, count uint32, v *view, off, n uint32) {
	dst := openView(d.reg[d.turn&1])
	d.turn ^= 1
	if n <= mlx5prm.SendBB {
		mmio.PostBlock(record, count, dst.block(0), v.block(off))
		return
	}
	mmio.OrderStores()
	mmio.Store32(record, count)
	mmio.StoreFence()
	for at := uint32(0); at < n; at += mlx5prm.SendBB {
		mmio.CopyBlock(dst.block(at), v.block(off+at))
	}
	mmio.StoreFence()
}

// doorbellsPerUAR is how many a UAR of 4096 bytes has for entries like ours.
const doorbellsPerUAR = 2

// takeDoorbell gives a doorbell that no other QP has.
func (c *Context) takeDoorbell() (*doorbell, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.doorbells) == 0 {
		kind, size, half, room := uapi.MLX5UARTypeBF, c.bfRegSize, c.bfRegSize/2, c.bfRegSize/2
		if c.bfRegSize == 0 {
			kind, size, half, room = uapi.MLX5UARTypeNC, mlx5prm.BlueFlameSize, 0, 0
		}
		u, err := c.Dev.AllocUAR(kind)
		if err != nil {
			return nil, err
		}
		c.uars = append(c.uars, u)
		for i := range doorbellsPerUAR {
			at := mlx5prm.UARBlueFlame + i*size
			c.doorbells = append(c.doorbells, &doorbell{page: u.PageID, room: uint32(room),
				reg: [2]*uint64{register(u.Mem, at), register(u.Mem, at+half)}})
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

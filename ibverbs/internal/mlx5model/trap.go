package mlx5model

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// store is a doorbell that was caught as it was rung, before the program did anything
// else: what it announces must be in memory.
func (c *context) store(at uint64) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	page, off := uint32(at/pageSize), uint32(at%pageSize)
	u := c.uars[page]
	if u == nil {
		c.m.faultf("a store into the page of doorbells %d, which is not the program's", page)
		return
	}
	var b [8]byte
	switch {
	case off == mlx5prm.UARArm:
		binary.NativeEndian.PutUint64(b[:], c.rang(page, off))
		c.armed(binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[:]))
	case off < mlx5prm.UARBlueFlame || off >= mlx5prm.UARBlueFlame+2*mlx5prm.BlueFlameSize:
		c.m.faultf("a store at %#x of a page of doorbells", off)
	case slices.Contains(sendRegisters[:], off):
		binary.NativeEndian.PutUint64(b[:], c.rang(page, off))
		u.flame(off).leave(c.m)
		c.posted(u, off, b)
	default:
		u.flame(off).take(off, *c.pages.register(page, off))
	}
}

// armed takes the word that arms a CQ, which its record has too.
func (c *context) armed(num, word uint32) {
	q := c.cqs[num]
	if q == nil {
		c.m.faultf("CQ %#x is armed, which is not the program's", num)
		return
	}
	var b [4]byte
	if c.mem.read(q.db+4, b[:]) != nil || binary.BigEndian.Uint32(b[:]) != word {
		c.m.faultf("CQ %#x is armed with %#x, its record says %#x", num, word, b)
	}
	if c.m.config.Trace != nil {
		c.m.tracef("arm of %s: %08x, %s", c.nameOfObject(q), word, q.index())
	}
	if word != q.arm {
		q.ask(word)
	}
}

// posted takes the head of the last entry that a program has posted. The entry and the
// record behind it must be there.
func (c *context) posted(u *uar, off uint32, register [8]byte) {
	head := structOf[mlx5prm.Ctrl](register[:])
	q := c.m.qps[head.QPN()]
	if q == nil || q.c != c || q.uar != u {
		c.m.faultf("queue pair %#x is rung in page %d, which is not its own", head.QPN(), u.index)
		return
	}
	if b, err := q.blocks(head.Index(), len(register)); err != nil || !slices.Equal(b, register[:]) {
		c.m.faultf("queue pair %#x is rung with %x, its entry begins with %x", q.num, register, b)
	}
	want := head.Index() + uint16(head.DS()+3)/4
	if have, ok := counter(c.mem, q.db+4); !ok || have != want {
		c.m.faultf("queue pair %#x is rung for entries before %d, its record says %d", q.num, want, have)
	}
	if c.m.config.Trace != nil {
		half := off / (mlx5prm.BlueFlameSize / 2) % 2
		c.m.tracef("half %d of the register of %s: opcode %x, ds %x, %s", half, c.nameOfObject(q), register[:4], register[7], q.records())
	}
	u.flame(off).begin(q, head, off)
	q.run(time.Now())
}

package mlx5model

import (
	"encoding/binary"

	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// flame is the copy of an entry into a register (BlueFlame), as far as it has come. The
// adapter takes the entry from it rather than from the queue, so both must have the same
// bytes. It has them in rising order.
type flame struct {
	q       *qp
	index   uint16 // of the entry
	first   uint32 // where in the page the copy begins
	at, end uint32 // where the next word goes, and where the copy ends
}

const wordSize = 8

// flame is that of the register that lies at an offset.
func (u *uar) flame(off uint32) *flame {
	return &u.flames[(off-mlx5prm.UARBlueFlame)/mlx5prm.BlueFlameSize]
}

// begin comes with a doorbell, which may be the first word of a copy.
func (f *flame) begin(q *qp, head mlx5prm.Ctrl, off uint32) {
	size := uint32(head.DS()*mlx5prm.DSUnit+mlx5prm.SendBB-1) &^ (mlx5prm.SendBB - 1)
	*f = flame{q: q, index: head.Index(), first: off, at: off + wordSize, end: off + min(size, mlx5prm.BlueFlameSize/2)}
}

// take has the next word.
func (f *flame) take(off uint32, word uint64) {
	switch {
	case f.q == nil:
		return // the doorbell was a fault
	case off != f.at, off >= f.end:
		f.q.c.m.faultf("queue pair %#x: entry %d is copied to %#x of a register, where %#x to %#x are next", f.q.num, f.index, off, f.at, f.end)
		f.q = nil
		return
	}
	b, err := f.q.blocks(f.index, int(f.end-f.first))
	if at := off - f.first; err != nil || binary.NativeEndian.Uint64(b[at:]) != word {
		f.q.c.m.faultf("queue pair %#x: entry %d is copied into a register, and differs in the word at %d", f.q.num, f.index, at)
	}
	if f.at += wordSize; f.at == f.end {
		f.q.c.m.tracef("which is the first of %d bytes of the entry", f.end-f.first)
		f.q = nil
	}
}

// leave comes before the next doorbell: a copy that has begun is whole by then.
func (f *flame) leave(m *Model) {
	if f.q != nil && f.at != f.first+wordSize {
		m.faultf("queue pair %#x: %d bytes of entry %d were copied into a register, of %d", f.q.num, f.at-f.first, f.index, f.end-f.first)
	}
	f.q = nil
}

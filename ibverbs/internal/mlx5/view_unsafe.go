package mlx5

import (
	"unsafe"

	"github.com/purerdma/purerdma/internal/mlx5prm"
	"github.com/purerdma/purerdma/internal/offheap"
)

// view is a ring of a power of two of bytes. The memory is off-heap and stays
// mapped until the object is destroyed, so raw pointers into it are safe, and the
// mask is the bounds check of segments: what is longer than mlx5prm.DSUnit ends with a
// block of 64 bytes at the latest.
type view struct {
	base unsafe.Pointer
	mask uint32
}

// viewOf is size bytes of mem from off on.
func viewOf(mem offheap.Span, off, size int) view {
	if size == 0 || size&(size-1) != 0 || off < 0 || off+size > mem.Len() {
		return view{}
	}
	return view{unsafe.Add(mem.Pointer(), off), uint32(size - 1)}
}

func (v *view) at(off uint32) unsafe.Pointer { return unsafe.Add(v.base, uintptr(off&v.mask)) }

func (v *view) ctrl(off uint32) *mlx5prm.Ctrl     { return (*mlx5prm.Ctrl)(v.at(off)) }
func (v *view) raddr(off uint32) *mlx5prm.RAddr   { return (*mlx5prm.RAddr)(v.at(off)) }
func (v *view) atomic(off uint32) *mlx5prm.Atomic { return (*mlx5prm.Atomic)(v.at(off)) }
func (v *view) klm(off uint32) *mlx5prm.KLM       { return (*mlx5prm.KLM)(v.at(off)) }
func (v *view) av(off uint32) *mlx5prm.AV         { return (*mlx5prm.AV)(v.at(off)) }
func (v *view) data(off uint32) *mlx5prm.Data     { return (*mlx5prm.Data)(v.at(off)) }
func (v *view) inline(off uint32) *mlx5prm.Inline { return (*mlx5prm.Inline)(v.at(off)) }
func (v *view) umrCtrl(off uint32) *mlx5prm.UMRCtrl {
	return (*mlx5prm.UMRCtrl)(v.at(off))
}
func (v *view) mkey(off uint32) *mlx5prm.MkeyContext {
	return (*mlx5prm.MkeyContext)(v.at(off))
}
func (v *view) srqNext(off uint32) *mlx5prm.SRQNext {
	return (*mlx5prm.SRQNext)(v.at(off))
}
func (v *view) cqe(off uint32) *mlx5prm.CQE       { return (*mlx5prm.CQE)(v.at(off)) }
func (v *view) errCQE(off uint32) *mlx5prm.ErrCQE { return (*mlx5prm.ErrCQE)(v.at(off)) }

// last is the word of a completion that has the owner bit. The device writes it
// last.
func (v *view) last(off uint32) *uint32 { return (*uint32)(v.at(off + cqeSize - 4)) }

// block is 64 bytes from off on, which end no ring.
func (v *view) block(off uint32) *[8]uint64 { return (*[8]uint64)(v.at(off)) }

// openView is what lies from a register on, without an end.
func openView(reg *uint64) view { return view{unsafe.Pointer(reg), ^uint32(0)} }

// bytes is n bytes from off on, or those up to the end of the ring.
func (v *view) bytes(off uint32, n int) []byte {
	off &= v.mask
	return unsafe.Slice((*byte)(unsafe.Add(v.base, uintptr(off))), min(n, int(v.mask-off)+1))
}

// word is 32 bits at off of a mapping, register 64 bits.
func word(mem offheap.Span, off int) *uint32 { return (*uint32)(unsafe.Add(mem.Pointer(), off)) }

func register(mem offheap.Span, off int) *uint64 {
	return (*uint64)(unsafe.Add(mem.Pointer(), off))
}

// bytesOf is the bytes of a structure of package uapi.
func bytesOf[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

const sentSize = int(unsafe.Sizeof(sent{}))

// sentTable is n elements at off of a mapping, idTable and flagTable the same of
// numbers.
func sentTable(mem offheap.Span, off, n int) []sent {
	return unsafe.Slice((*sent)(unsafe.Add(mem.Pointer(), off)), n)
}

func flagTable(mem offheap.Span, off, n int) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Add(mem.Pointer(), off)), n)
}

func idTable(mem offheap.Span, off, n int) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Add(mem.Pointer(), off)), n)
}

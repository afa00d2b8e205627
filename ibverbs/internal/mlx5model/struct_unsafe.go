package mlx5model

import (
	"unsafe"

	"github.com/purerdma/purerdma/internal/offheap"
)

// bytesOf is the bytes of a structure of packages uapi and mlx5prm, which is all it
// may be used with: those have neither pointers nor hidden padding.
func bytesOf[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

// structOf is a structure that begins as b does, and is zero where b ends.
func structOf[T any](b []byte) (v T) {
	copy(bytesOf(&v), b)
	return v
}

// wordOf is a word of a mapping.
func wordOf(mem offheap.Span, off int) *uint64 { return (*uint64)(unsafe.Add(mem.Pointer(), off)) }

// addressOf is where memory outside the Go heap lies.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

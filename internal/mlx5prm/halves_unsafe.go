package mlx5prm

import (
	"encoding/binary"
	"math/bits"
	"runtime"
	"unsafe"
)

// half is 8 bytes of a segment, of which one store makes all.
type half uint64

// halves is a segment of DSUnit as the two words that it is stored by. Stores of single
// fields are more, and slower to read back as words, which a copy into a register does.
func halves[T Ctrl | RAddr | Data](s *T) *[DSUnit / 8]half {
	return (*[DSUnit / 8]half)(unsafe.Pointer(s))
}

// set stores v, most significant byte first. Of encoding/binary's PutUint64 the compiler
// would make a store for each part that v is put together from.
func (h *half) set(v uint64) {
	if runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64" { // known to have the other order
		*h = half(bits.ReverseBytes64(v))
		return
	}
	binary.BigEndian.PutUint64((*[8]byte)(unsafe.Pointer(h))[:], v)
}

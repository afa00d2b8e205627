package softroce

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/purerdma/purerdma/internal/mmio"
)

// orderedTail is how many bytes at the end of a packet are stored in order, all of
// a packet that has no more: rows of a FIFO, whose last word says that the rest is
// there.
const orderedTail = 64

// place copies src to dst. Its last bytes become visible after all before them,
// word by word, so that a processor that watches the last word of a message sees
// the rest of it; copy promises no order.
func place(dst, src []byte) {
	n := len(src)
	body := n - orderedTail
	if n <= 8*orderedTail {
		body = 0
	}
	copy(dst[:body], src[:body])
	i := body
	for i < n && uintptr(unsafe.Pointer(&dst[i]))%8 != 0 {
		dst[i] = src[i]
		i++
	}
	for ; n-i >= 8; i += 8 {
		mmio.StoreRelease64((*uint64)(unsafe.Pointer(&dst[i])), binary.NativeEndian.Uint64(src[i:]))
	}
	if n-i >= 4 {
		mmio.StoreRelease32((*uint32)(unsafe.Pointer(&dst[i])), binary.NativeEndian.Uint32(src[i:]))
		i += 4
	}
	for ; i < n; i++ {
		dst[i] = src[i]
	}
}

// compareSwap and fetchAdd are atomic also towards processors.
func compareSwap(b []byte, compare, swap uint64) (old uint64) {
	p := (*uint64)(unsafe.Pointer(&b[0]))
	for {
		old = atomic.LoadUint64(p)
		if old != compare || atomic.CompareAndSwapUint64(p, old, swap) {
			return old
		}
	}
}

func fetchAdd(b []byte, n uint64) (old uint64) {
	return atomic.AddUint64((*uint64)(unsafe.Pointer(&b[0])), n) - n
}

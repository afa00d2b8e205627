package memdriver

import (
	"sync/atomic"
	"unsafe"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// ordered is how many bytes at the end of a piece are stored in order.
const ordered = 2048

// place copies src to dst, which may overlap. The last bytes become visible
// after all before them, word by word in rising order, so that a processor that
// watches the last word of a message sees the rest of it. copy promises no
// order, and no order is seen through plain stores on arm64.
func place(dst, src []byte) {
	n := len(dst)
	body := max(0, n-ordered)
	if overlap(dst, src) {
		copy(dst, src)
		return
	}
	copy(dst[:body], src[:body])
	for i := body; i < n; {
		p := unsafe.Pointer(&dst[i])
		switch {
		case uintptr(p)%8 == 0 && n-i >= 8:
			atomic.StoreUint64((*uint64)(p), *(*uint64)(unsafe.Pointer(&src[i])))
			i += 8
		case uintptr(p)%4 == 0 && n-i >= 4:
			atomic.StoreUint32((*uint32)(p), *(*uint32)(unsafe.Pointer(&src[i])))
			i += 4
		default:
			dst[i] = src[i]
			i++
		}
	}
}

// overlap compares the addresses of mapped memory, which does not move.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	pa, pb := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return pa < pb+uintptr(len(b)) && pb < pa+uintptr(len(a))
}

// atomically does the operation on the 8 bytes of b, which are aligned, and
// gives what was there. It is atomic also towards processors.
func atomically(b []byte, op driver.Opcode, compare, add uint64) (old [8]byte) {
	p := (*uint64)(unsafe.Pointer(&b[0]))
	for {
		v := atomic.LoadUint64(p)
		next := v + add
		if op == driver.OpCmpSwap {
			if next = add; v != compare {
				next = v
			}
		}
		if atomic.CompareAndSwapUint64(p, v, next) {
			*(*uint64)(unsafe.Pointer(&old)) = v
			return old
		}
	}
}

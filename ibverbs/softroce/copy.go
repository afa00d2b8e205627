package softroce

import (
	"runtime"
	"runtime/debug"
)

// Memory that a registration covers may have been unmapped or truncated by its
// owner. A copy that touches it fails; the process goes on.

// putBytes copies src into memory of a registration. It reports false if that is gone.
func putBytes(dst, src []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer caught(&ok)
	place(dst, src)
	return true
}

// getBytes copies from memory of a registration.
func getBytes(dst, src []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer caught(&ok)
	copy(dst, src)
	return true
}

// operate does an atomic operation on 8 aligned bytes of a registration: it adds,
// or stores swap if what is there equals compare.
func operate(b []byte, swaps bool, compareAdd, swap uint64) (old uint64, ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer caught(&ok)
	if swaps {
		return compareSwap(b, compareAdd, swap), true
	}
	return fetchAdd(b, compareAdd), true
}

// caught turns a fault into false and passes on all other panics.
func caught(ok *bool) {
	switch r := recover().(type) {
	case nil:
	case interface {
		runtime.Error
		Addr() uintptr
	}:
		*ok = false
	default:
		panic(r)
	}
}

package nettransport

import (
	"sync/atomic"
	"unsafe"
)

// linesLL tells whether both flags of every line of 16 bytes are flag. b lies in a connection's buffer, which is aligned.
func linesLL(b []byte, flag uint32) bool {
	for ; len(b) >= 16; b = b[16:] {
		if atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[4]))) != flag || atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[12]))) != flag {
			return false
		}
	}
	return true
}

// linesLL128 tells whether the flag at the end of every line of 128 bytes is flag.
func linesLL128(b []byte, flag uint64) bool {
	for ; len(b) >= 128; b = b[128:] {
		if atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[120]))) != flag {
			return false
		}
	}
	return true
}

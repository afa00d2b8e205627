package tracer

import (
	"encoding/binary"
	"unsafe"
)

// wordOf is the first word of a page.
func wordOf(page []byte) *uint64 { return (*uint64)(unsafe.Pointer(&page[0])) }

func little(data []byte) uint64 { return binary.LittleEndian.Uint64(data) }

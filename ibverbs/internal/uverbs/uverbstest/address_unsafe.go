package uverbstest

import "unsafe"

// addressOf is where a frame lies. Frames are off-heap memory, so it stays true.
func addressOf(frame []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(frame)))) }

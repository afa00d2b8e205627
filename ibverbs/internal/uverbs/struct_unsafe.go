package uverbs

import "unsafe"

// bytesOf is the bytes of a structure of package uapi, which is all it may be
// used with: those have neither pointers nor hidden padding.
func bytesOf[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

// sizeOf is the size of a structure of package uapi.
func sizeOf[T any]() int { var v T; return int(unsafe.Sizeof(v)) }

// Package mmio, in a build for TestMutants: each store and each fence is told to Traced
// after it was made.
package mmio

import (
	"sync/atomic"
	"unsafe"
)

// ForDevices is that of the package.
const ForDevices = true

// What is told.
const (
	Store = iota
	Register
	Block
	Stored
	Ordered
	Loaded
)

// Traced is told. at and v are of a store.
var Traced = func(what int, at uintptr, v uint64) {}

// Store32 is a store to a record.
func Store32(p *uint32, v uint32) {
	atomic.StoreUint32(p, v)
	Traced(Store, uintptr(unsafe.Pointer(p)), uint64(v))
}

// Store64 is a store to a register.
func Store64(p *uint64, v uint64) {
	atomic.StoreUint64(p, v)
	Traced(Register, uintptr(unsafe.Pointer(p)), v)
}

// CopyBlock is a copy into a register, which is told word by word.
func CopyBlock(dst, src *[8]uint64) {
	for i := range dst {
		atomic.StoreUint64(&dst[i], src[i])
		Traced(Block, uintptr(unsafe.Pointer(&dst[i])), src[i])
	}
}

// PostWord is told as what it is made of.
func PostWord(record *uint32, count uint32, reg *uint64, v uint64) {
	OrderStores()
	Store32(record, count)
	StoreFence()
	Store64(reg, v)
	StoreFence()
}

// PostBlock is told likewise.
func PostBlock(record *uint32, count uint32, dst, src *[8]uint64) {
	OrderStores()
	Store32(record, count)
	StoreFence()
	CopyBlock(dst, src)
	StoreFence()
}

// StoreFence is that of the package.
func StoreFence() { Traced(Stored, 0, 0) }

// OrderStores is that of the package.
func OrderStores() { Traced(Ordered, 0, 0) }

// LoadFence is that of the package.
func LoadFence() { Traced(Loaded, 0, 0) }

// FullFence is that of the package.
func FullFence() { Traced(Stored, 0, 0) }

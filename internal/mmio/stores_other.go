//go:build !amd64 && !arm64

package mmio

import "sync/atomic"

// ForDevices says whether the fences also order what a device does. Here they
// order processors only.
const ForDevices = false

// fence is what the fences do an atomic addition on.
var fence atomic.Uint32

// StoreRelease32 stores v after everything written before.
func StoreRelease32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// StoreRelease64 is StoreRelease32 for 64 bits.
func StoreRelease64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

// Store32 is one store of 32 bits.
func Store32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// Store64 is one store of 64 bits. It never tears.
func Store64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

// CopyBlock copies 64 bytes in rising order.
func CopyBlock(dst, src *[8]uint64) {
	for i := range dst {
		Store64(&dst[i], src[i])
	}
}

// PostWord is OrderStores, Store32, StoreFence, Store64, StoreFence.
func PostWord(record *uint32, count uint32, reg *uint64, v uint64) {
	OrderStores()
	Store32(record, count)
	StoreFence()
	Store64(reg, v)
	StoreFence()
}

// PostBlock is OrderStores, Store32, StoreFence, CopyBlock, StoreFence.
func PostBlock(record *uint32, count uint32, dst, src *[8]uint64) {
	OrderStores()
	Store32(record, count)
	StoreFence()
	CopyBlock(dst, src)
	StoreFence()
}

// StoreFence orders stores among processors.
func StoreFence() { fence.Add(1) }

// OrderStores orders stores among processors.
func OrderStores() { fence.Add(1) }

// LoadFence orders loads among processors.
func LoadFence() { fence.Add(1) }

// FullFence orders loads and stores among processors.
func FullFence() { fence.Add(1) }

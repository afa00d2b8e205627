//go:build amd64 || arm64

package mmio

// ForDevices says whether the fences also order what a device does. A driver of
// hardware refuses to work where they do not; Soft-RoCE needs no more than
// LoadAcquire and StoreRelease, which are right everywhere.
const ForDevices = true

// Store32 is exactly one plain store of 32 bits, ordered by nothing, for a
// doorbell register.
//
//go:noescape
func Store32(p *uint32, v uint32)

// Store64 is exactly one plain store of 64 bits, ordered by nothing, for a
// doorbell register. It never tears.
//
//go:noescape
func Store64(p *uint64, v uint64)

// CopyBlock copies 64 bytes into a write-combining register, in rising order by stores
// of 8 bytes or more, each to its own place: such a buffer leaves the processor as one
// write where it is filled so. Nothing orders it.
//
//go:noescape
func CopyBlock(dst, src *[8]uint64)

// PostWord is OrderStores, Store32 of count to record, StoreFence, Store64 of v to reg and
// StoreFence in one call: calls of assembly are not inlined, and are felt in a post.
//
//go:noescape
func PostWord(record *uint32, count uint32, reg *uint64, v uint64)

// PostBlock is PostWord with CopyBlock in the place of Store64.
//
//go:noescape
func PostBlock(record *uint32, count uint32, dst, src *[8]uint64)

// StoreFence makes what was stored before it visible to a device before what
// is stored after it, and drains what sits in write-combining buffers: SFENCE
// on amd64, DMB OSHST on arm64.
func StoreFence()

// LoadFence keeps loads after it from being served before the loads ahead of
// it, where a device wrote what both read: DMB OSHLD on arm64, nothing on amd64,
// which serves loads in order.
func LoadFence()

// FullFence orders all loads and stores before it before all after it: MFENCE
// on amd64, DMB OSH on arm64.
func FullFence()

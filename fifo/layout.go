package fifo

import (
	"fmt"
	"unsafe"
)

const (
	// Rows is how many rows both rings have (NCCL's MAX_REQUESTS).
	Rows = 256
	// MaxRecvs is how many buffers a row offers at most (NCCL_NET_IB_MAX_RECVS).
	MaxRecvs = 8
	// MaxDevs is how many keys an offer holds at most, one for each device of
	// the receiver.
	MaxDevs = 8
	// MaxSize is the longest message in bytes: sizes are 32-bit signed numbers.
	MaxSize = 1<<31 - 1
	// Align is what a ring of offers must be aligned to, so that no offer is
	// split over cache lines. NCCL asserts half of it.
	Align = 64
)

// Layout is how the versions of NCCL lay the rings out. The names are those of
// the handshake's layouts in package socketboot, where the bytes differ; both
// ends must use the same. The zero value is that of 2.25.1.
type Layout uint8

const (
	// Layout225 is NCCL 2.24.3 to 2.29.3: offers with 4 keys, 32 bytes of sizes.
	Layout225 Layout = iota
	// Layout2297 is NCCL 2.29.7: the sizes are the head of a completion record
	// of 160 bytes.
	Layout2297
	// Layout230 is NCCL 2.30.3 to 2.30.7: offers with 8 keys too.
	Layout230
	layouts
)

// String is the versions of NCCL that have the layout.
func (l Layout) String() string {
	switch l {
	case Layout225:
		return "NCCL 2.24.3 to 2.29.3"
	case Layout2297:
		return "NCCL 2.29.7"
	case Layout230:
		return "NCCL 2.30.3 to 2.30.7"
	}
	return fmt.Sprintf("Layout(%d)", uint8(l))
}

// Keys is how many keys an offer holds.
func (l Layout) Keys() int {
	if l == Layout230 {
		return len(offer8{}.RKeys)
	}
	return len(offer4{}.RKeys)
}

const (
	offerBytes  = int(unsafe.Sizeof(offer4{}))
	creditRow   = MaxRecvs * offerBytes
	creditBytes = Rows * creditRow
	sizesBytes  = Rows * sizesRow
	sizesRow    = int(unsafe.Sizeof(sizes{}))
	recordBytes = int(unsafe.Sizeof(record{}))
)

// recordRow is the distance of rows in the receiver's ring of sizes.
func (l Layout) recordRow() int {
	if l == Layout225 {
		return sizesRow
	}
	return recordBytes
}

// CreditAddr is where message k's row lies in the ring of offers at base, the
// address that the sender of data told.
func (l Layout) CreditAddr(base, k uint64) uint64 { return base + row(k)*uint64(creditRow) }

// SizesAddr is where message k's row lies in the ring of sizes at base, the
// address that the receiver of data told.
func (l Layout) SizesAddr(base, k uint64) uint64 { return base + row(k)*uint64(l.recordRow()) }

// CheckCreditBase refuses an address that a peer's ring of offers cannot have.
func (l Layout) CheckCreditBase(base uint64) error {
	return checkBase("ring of offers", base, creditBytes, Align/2)
}

// CheckSizesBase refuses an address that a peer's ring of sizes cannot have.
func (l Layout) CheckSizesBase(base uint64) error {
	return checkBase("ring of sizes", base, Rows*l.recordRow(), 4)
}

func checkBase(what string, base uint64, size, align int) error {
	switch {
	case base == 0:
		return fmt.Errorf("%w: its %s is at address 0", ErrPeer, what)
	case base%uint64(align) != 0:
		return fmt.Errorf("%w: its %s is at %#x, which is not aligned to %d", ErrPeer, what, base, align)
	case base > -uint64(size):
		return fmt.Errorf("%w: its %s at %#x runs over the end of memory", ErrPeer, what, base)
	}
	return nil
}

// row is the row of message k.
func row(k uint64) uint64 { return k % Rows }

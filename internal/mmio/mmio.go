package mmio

import "sync/atomic"

// LoadAcquire32 loads *p. What the processor that stored it with StoreRelease32
// wrote before is visible after. The compiler makes one instruction of it, MOV
// on amd64 and LDAR on arm64.
func LoadAcquire32(p *uint32) uint32 { return atomic.LoadUint32(p) }

// LoadAcquire64 is LoadAcquire32 for 64 bits.
func LoadAcquire64(p *uint64) uint64 { return atomic.LoadUint64(p) }

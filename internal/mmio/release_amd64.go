package mmio

// amd64 keeps stores in order and no load passes behind a later store, so a
// plain store is enough if the compiler keeps that order too. Go's does: its
// intermediate form threads every load and store on one chain of memory states,
// and a load must be scheduled before the store that ends its state. That the
// stores are inlined is worth 2 to 4 ns to each post and poll. The test of the
// instructions sees that they stay one MOV.

// StoreRelease32 stores v after everything read and written before. It is MOV
// on amd64, which needs no fence, and STLR on arm64.
func StoreRelease32(p *uint32, v uint32) { *p = v }

// StoreRelease64 is StoreRelease32 for 64 bits.
func StoreRelease64(p *uint64, v uint64) { *p = v }

package mmio

// StoreRelease32 stores v after everything written before. It is MOV on amd64,
// which needs no fence, and STLR on arm64.
//
//go:noescape
func StoreRelease32(p *uint32, v uint32)

// StoreRelease64 is StoreRelease32 for 64 bits.
//
//go:noescape
func StoreRelease64(p *uint64, v uint64)

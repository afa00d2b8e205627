package mmio

// amd64 keeps stores in order, so a plain one is enough if the compiler keeps
// them in order too, which it does around a call. These are functions in Go
// rather than assembly because their arguments then come in registers: assembly
// takes them from the stack, 2 to 4 ns on the hot path of every queue. The test
// of the instructions sees that they stay one MOV.

// StoreRelease32 stores v after everything written before. It is MOV on amd64,
// which needs no fence, and STLR on arm64.
//
//go:noinline
func StoreRelease32(p *uint32, v uint32) { *p = v }

// StoreRelease64 is StoreRelease32 for 64 bits.
//
//go:noinline
func StoreRelease64(p *uint64, v uint64) { *p = v }

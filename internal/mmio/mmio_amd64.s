#include "textflag.h"

// func Store32(p *uint32, v uint32)
TEXT ·Store32(SB), NOSPLIT, $0-12
	MOVQ p+0(FP), AX
	MOVL v+8(FP), CX
	MOVL CX, (AX)
	RET

// func Store64(p *uint64, v uint64)
TEXT ·Store64(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ CX, (AX)
	RET

// func StoreFence()
TEXT ·StoreFence(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func LoadFence()
// Loads are in order already; the call keeps the compiler from moving them.
TEXT ·LoadFence(SB), NOSPLIT, $0-0
	RET

// func FullFence()
TEXT ·FullFence(SB), NOSPLIT, $0-0
	MFENCE
	RET

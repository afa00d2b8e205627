#include "textflag.h"

// The operand of DMB: which accesses of the outer shareable domain, where the
// devices are, it orders.
#define OSHLD $1
#define OSHST $2
#define OSH $3

// func StoreRelease32(p *uint32, v uint32)
TEXT ·StoreRelease32(SB), NOSPLIT, $0-12
	MOVD p+0(FP), R0
	MOVW v+8(FP), R1
	STLRW R1, (R0)
	RET

// func StoreRelease64(p *uint64, v uint64)
TEXT ·StoreRelease64(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD v+8(FP), R1
	STLR R1, (R0)
	RET

// func Store32(p *uint32, v uint32)
TEXT ·Store32(SB), NOSPLIT, $0-12
	MOVD p+0(FP), R0
	MOVW v+8(FP), R1
	MOVW R1, (R0)
	RET

// func Store64(p *uint64, v uint64)
TEXT ·Store64(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD v+8(FP), R1
	MOVD R1, (R0)
	RET

// func StoreFence()
TEXT ·StoreFence(SB), NOSPLIT, $0-0
	DMB OSHST
	RET

// func LoadFence()
TEXT ·LoadFence(SB), NOSPLIT, $0-0
	DMB OSHLD
	RET

// func FullFence()
TEXT ·FullFence(SB), NOSPLIT, $0-0
	DMB OSH
	RET

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

// func CopyBlock(dst, src *[8]uint64)
TEXT ·CopyBlock(SB), NOSPLIT, $0-16
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	LDP  0(R1), (R2, R3)
	LDP  16(R1), (R4, R5)
	LDP  32(R1), (R6, R7)
	LDP  48(R1), (R8, R9)
	STP  (R2, R3), 0(R0)
	STP  (R4, R5), 16(R0)
	STP  (R6, R7), 32(R0)
	STP  (R8, R9), 48(R0)
	RET

// func PostWord(record *uint32, count uint32, reg *uint64, v uint64)
TEXT ·PostWord(SB), NOSPLIT, $0-32
	MOVD record+0(FP), R10
	MOVW count+8(FP), R11
	MOVD reg+16(FP), R0
	MOVD v+24(FP), R1
	DMB  OSHST
	MOVW R11, (R10)
	DMB  OSHST
	MOVD R1, (R0)
	DMB  OSHST
	RET

// func PostBlock(record *uint32, count uint32, dst, src *[8]uint64)
TEXT ·PostBlock(SB), NOSPLIT, $0-32
	MOVD record+0(FP), R10
	MOVW count+8(FP), R11
	MOVD dst+16(FP), R0
	MOVD src+24(FP), R1
	DMB  OSHST
	MOVW R11, (R10)
	LDP  0(R1), (R2, R3)
	LDP  16(R1), (R4, R5)
	LDP  32(R1), (R6, R7)
	LDP  48(R1), (R8, R9)
	DMB  OSHST
	STP  (R2, R3), 0(R0)
	STP  (R4, R5), 16(R0)
	STP  (R6, R7), 32(R0)
	STP  (R8, R9), 48(R0)
	DMB  OSHST
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

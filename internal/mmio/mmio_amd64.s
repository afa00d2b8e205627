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

// func CopyBlock(dst, src *[8]uint64)
TEXT ·CopyBlock(SB), NOSPLIT, $0-16
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ 0(SI), R8
	MOVQ 8(SI), R9
	MOVQ 16(SI), R10
	MOVQ 24(SI), R11
	MOVQ R8, 0(DI)
	MOVQ R9, 8(DI)
	MOVQ R10, 16(DI)
	MOVQ R11, 24(DI)
	MOVQ 32(SI), R8
	MOVQ 40(SI), R9
	MOVQ 48(SI), R10
	MOVQ 56(SI), R11
	MOVQ R8, 32(DI)
	MOVQ R9, 40(DI)
	MOVQ R10, 48(DI)
	MOVQ R11, 56(DI)
	RET

// func PostWord(record *uint32, count uint32, reg *uint64, v uint64)
TEXT ·PostWord(SB), NOSPLIT, $0-32
	MOVQ record+0(FP), AX
	MOVL count+8(FP), CX
	MOVQ reg+16(FP), DI
	MOVQ v+24(FP), DX
	MOVL CX, (AX)
	SFENCE
	MOVQ DX, (DI)
	SFENCE
	RET

// func PostBlock(record *uint32, count uint32, dst, src *[8]uint64)
TEXT ·PostBlock(SB), NOSPLIT, $0-32
	MOVQ record+0(FP), AX
	MOVL count+8(FP), CX
	MOVQ dst+16(FP), DI
	MOVQ src+24(FP), SI
	MOVL CX, (AX)
	MOVQ 0(SI), R8
	MOVQ 8(SI), R9
	MOVQ 16(SI), R10
	MOVQ 24(SI), R11
	SFENCE
	MOVQ R8, 0(DI)
	MOVQ R9, 8(DI)
	MOVQ R10, 16(DI)
	MOVQ R11, 24(DI)
	MOVQ 32(SI), R8
	MOVQ 40(SI), R9
	MOVQ 48(SI), R10
	MOVQ 56(SI), R11
	MOVQ R8, 32(DI)
	MOVQ R9, 40(DI)
	MOVQ R10, 48(DI)
	MOVQ R11, 56(DI)
	SFENCE
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

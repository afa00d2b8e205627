#include "textflag.h"

// func PollHigh(p *uint64, want uint32, looks int) uint64
TEXT ·PollHigh(SB), NOSPLIT, $0-32
	MOVQ p+0(FP), SI
	MOVL want+8(FP), DX
	MOVQ looks+16(FP), CX
look:
	MOVQ (SI), AX
	MOVQ AX, BX
	SHRQ $32, BX
	CMPL BX, DX
	JEQ  done
	PAUSE
	DECQ CX
	JGT  look
done:
	MOVQ AX, ret+24(FP)
	RET

// func CopyPast(dst, src *byte, n int)
TEXT ·CopyPast(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	SHRQ $6, CX
	JZ   done
line:
	MOVOU  (SI), X0
	MOVOU  16(SI), X1
	MOVOU  32(SI), X2
	MOVOU  48(SI), X3
	MOVNTO X0, (DI)
	MOVNTO X1, 16(DI)
	MOVNTO X2, 32(DI)
	MOVNTO X3, 48(DI)
	ADDQ   $64, SI
	ADDQ   $64, DI
	DECQ   CX
	JNZ    line
	SFENCE
done:
	RET

// func copyHalves(dst, src *byte, n int)
// The registers from 16 on need no VZEROUPPER after them.
TEXT ·copyHalves(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ CX, AX
	SHRQ $1, AX
	SHRQ $7, CX
	JZ   halved
pair:
	VMOVDQU64 (SI), Z16
	VMOVDQU64 (SI)(AX*1), Z17
	VMOVDQU64 Z16, (DI)
	VMOVDQU64 Z17, (DI)(AX*1)
	ADDQ $64, SI
	ADDQ $64, DI
	DECQ CX
	JNZ  pair
halved:
	RET

// func copyLines(dst, src *byte, n int)
TEXT ·copyLines(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	SHRQ $7, CX
	JZ   copied
two:
	VMOVDQU64 (SI), Z16
	VMOVDQU64 64(SI), Z17
	VMOVDQU64 Z16, (DI)
	VMOVDQU64 Z17, 64(DI)
	ADDQ $128, SI
	ADDQ $128, DI
	DECQ CX
	JNZ  two
copied:
	RET

// func Evict(p *byte, n int)
TEXT ·Evict(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), DI
	MOVQ n+8(FP), CX
	CMPB ·Evicts(SB), $1
	JNE  evicted
evict:
	CMPQ CX, $0
	JLE  evicted
	CLFLUSHOPT (DI)
	ADDQ $64, DI
	SUBQ $64, CX
	JMP  evict
evicted:
	RET

// func hasEvict() bool
TEXT ·hasEvict(SB), NOSPLIT, $0-1
	MOVB  $0, ret+0(FP)
	MOVL  $0, AX
	MOVL  $0, CX
	CPUID
	CMPL  AX, $7
	JLT   told
	MOVL  $7, AX
	MOVL  $0, CX
	CPUID
	SHRL  $23, BX
	ANDL  $1, BX
	MOVB  BX, ret+0(FP)
told:
	RET

// func TimeLoad(p *uint64) uint64
TEXT ·TimeLoad(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), SI
	LFENCE
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, BX
	LFENCE
	MOVQ (SI), CX
	LFENCE
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	SUBQ BX, AX
	MOVQ AX, ret+8(FP)
	RET

// func Ticks() uint64
TEXT ·Ticks(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET

// func Pause(n int)
TEXT ·Pause(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX
again:
	PAUSE
	DECQ CX
	JGT  again
	RET

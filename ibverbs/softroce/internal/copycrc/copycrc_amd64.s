#include "textflag.h"

// The CRC register and the data are polynomials over GF(2), reflected: bit 0 of a
// byte is the highest power in it. To fold a block by D bits is to multiply it by
// x^D modulo the polynomial P of the CRC, so that it can be added to the block D
// bits on: its lower half, which lies 64 bits further ahead, by x^(D+32), its upper
// half by x^(D-32), where 32 of the 64 bits come from the product's being one bit
// and 32 bits short. Each constant is such a power modulo P, its bits reversed,
// shifted left by one; TestConstants computes them anew.

DATA fold2048<>+0(SB)/8, $0x11542778a
DATA fold2048<>+8(SB)/8, $0x1322d1430
GLOBL fold2048<>(SB), RODATA|NOPTR, $16

DATA fold1536<>+0(SB)/8, $0x1821d8bc0
DATA fold1536<>+8(SB)/8, $0x12e958ac4
GLOBL fold1536<>(SB), RODATA|NOPTR, $16

DATA fold1024<>+0(SB)/8, $0x1e88ef372
DATA fold1024<>+8(SB)/8, $0x14a7fe880
GLOBL fold1024<>(SB), RODATA|NOPTR, $16

DATA fold512<>+0(SB)/8, $0x154442bd4
DATA fold512<>+8(SB)/8, $0x1c6e41596
GLOBL fold512<>(SB), RODATA|NOPTR, $16

// The four blocks of 512 bits onto the last of them, which stays.
DATA lanes<>+0(SB)/8, $0x3db1ecdc
DATA lanes<>+8(SB)/8, $0x174359406
DATA lanes<>+16(SB)/8, $0xf1da05aa
DATA lanes<>+24(SB)/8, $0x15a546366
DATA lanes<>+32(SB)/8, $0x1751997d0
DATA lanes<>+40(SB)/8, $0xccaa009e
DATA lanes<>+48(SB)/8, $0
DATA lanes<>+56(SB)/8, $0
GLOBL lanes<>(SB), RODATA|NOPTR, $64

DATA fold128<>+0(SB)/8, $0x1751997d0
DATA fold128<>+8(SB)/8, $0xccaa009e
GLOBL fold128<>(SB), RODATA|NOPTR, $16

// x^64, for 96 bits to 64.
DATA fold64<>+0(SB)/8, $0x163cd6124
DATA fold64<>+8(SB)/8, $0
GLOBL fold64<>(SB), RODATA|NOPTR, $16

// P and the quotient of x^64 by P, for the last reduction (Barrett).
DATA barrett<>+0(SB)/8, $0x1db710641
DATA barrett<>+8(SB)/8, $0x1f7011641
GLOBL barrett<>(SB), RODATA|NOPTR, $16

DATA low32<>+0(SB)/8, $0xffffffff
DATA low32<>+8(SB)/8, $0
GLOBL low32<>(SB), RODATA|NOPTR, $16

// FOLD folds block x by the constants in k and adds block y; t is overwritten.
#define FOLD(x, k, y, t) \
	MOVOA     x, t      \
	PCLMULQDQ $0, k, x  \
	PCLMULQDQ $0x11, k, t \
	PXOR      t, x      \
	PXOR      y, x

// TAIL takes the CX bytes that are left, 16 at a time, into X1 and returns.
#define TAIL(copy16, done) \
	MOVOU fold128<>(SB), X0 \
copy16: \
	CMPQ  CX, $16  \
	JLT   done     \
	MOVOU (SI), X5 \
	MOVOU X5, (DI) \
	FOLD(X1, X0, X5, X6) \
	ADDQ  $16, SI  \
	ADDQ  $16, DI  \
	SUBQ  $16, CX  \
	JMP   copy16   \
done: \
	MOVOU     low32<>(SB), X4 \
	MOVO      X1, X2          \
	PCLMULQDQ $0x01, X1, X0   \
	PSRLDQ    $8, X2          \
	PXOR      X0, X2          \
	MOVO      X2, X1          \
	PSRLDQ    $4, X2          \
	PAND      X4, X1          \
	MOVOU     fold64<>(SB), X0 \
	PCLMULQDQ $0, X0, X1      \
	PXOR      X2, X1          \
	MOVOU     barrett<>(SB), X0 \
	MOVO      X1, X2          \
	PAND      X4, X1          \
	PCLMULQDQ $0x10, X0, X1   \
	PAND      X4, X1          \
	PCLMULQDQ $0, X0, X1      \
	PXOR      X2, X1          \
	PEXTRD    $1, X1, AX      \
	NOTL      AX              \
	MOVL      AX, ret+56(FP)  \
	RET

// func blocksSSE(crc uint32, dst, src []byte) uint32
TEXT ·blocksSSE(SB), NOSPLIT, $0-60
	MOVL crc+0(FP), AX
	MOVQ dst_base+8(FP), DI
	MOVQ src_base+32(FP), SI
	MOVQ src_len+40(FP), CX

	NOTL  AX
	MOVQ  AX, X0
	MOVOU (SI), X1
	MOVOU 16(SI), X2
	MOVOU 32(SI), X3
	MOVOU 48(SI), X4
	MOVOU X1, (DI)
	MOVOU X2, 16(DI)
	MOVOU X3, 32(DI)
	MOVOU X4, 48(DI)
	PXOR  X0, X1
	MOVOU fold512<>(SB), X0
	SUBQ  $64, CX

four:
	ADDQ  $64, SI
	ADDQ  $64, DI
	CMPQ  CX, $64
	JLT   one
	MOVOU (SI), X5
	MOVOU 16(SI), X6
	MOVOU 32(SI), X7
	MOVOU 48(SI), X8
	MOVOU X5, (DI)
	MOVOU X6, 16(DI)
	MOVOU X7, 32(DI)
	MOVOU X8, 48(DI)
	FOLD(X1, X0, X5, X9)
	FOLD(X2, X0, X6, X10)
	FOLD(X3, X0, X7, X11)
	FOLD(X4, X0, X8, X12)
	SUBQ  $64, CX
	JMP   four

one:
	MOVOU fold128<>(SB), X0
	FOLD(X1, X0, X2, X5)
	FOLD(X1, X0, X3, X5)
	FOLD(X1, X0, X4, X5)
	TAIL(rest, end)

// WFOLD is FOLD for blocks of 512 bits, each lane by itself.
#define WFOLD(x, k, y, t) \
	VPCLMULQDQ $0x11, k, x, t \
	VPCLMULQDQ $0, k, x, x    \
	VPTERNLOGD $0x96, y, t, x

// AHEAD asks for the lines at 256 bytes to come, some blocks ahead. The processor's own
// prefetchers stop at the end of a page, which is where a packet's payload mostly ends
// and the next one's begins. An address that is not mapped does no harm.
#define AHEAD(p) \
	PREFETCHT0 1024(p) \
	PREFETCHT0 1088(p) \
	PREFETCHT0 1152(p) \
	PREFETCHT0 1216(p)

// func blocksAVX512(crc uint32, dst, src []byte) uint32
TEXT ·blocksAVX512(SB), NOSPLIT, $0-60
	MOVL crc+0(FP), AX
	MOVQ dst_base+8(FP), DI
	MOVQ src_base+32(FP), SI
	MOVQ src_len+40(FP), CX

	NOTL      AX
	VMOVD     AX, X0
	VMOVDQU64 (SI), Z1
	VMOVDQU64 64(SI), Z2
	VMOVDQU64 128(SI), Z3
	VMOVDQU64 192(SI), Z4
	VMOVDQU64 Z1, (DI)
	VMOVDQU64 Z2, 64(DI)
	VMOVDQU64 Z3, 128(DI)
	VMOVDQU64 Z4, 192(DI)
	VPXORQ    Z0, Z1, Z1
	VBROADCASTI32X4 fold2048<>(SB), Z0
	SUBQ      $256, CX

four:
	ADDQ      $256, SI
	ADDQ      $256, DI
	CMPQ      CX, $256
	JLT       one
	AHEAD(SI)
	AHEAD(DI)
	VMOVDQU64 (SI), Z5
	VMOVDQU64 64(SI), Z6
	VMOVDQU64 128(SI), Z7
	VMOVDQU64 192(SI), Z8
	VMOVDQU64 Z5, (DI)
	VMOVDQU64 Z6, 64(DI)
	VMOVDQU64 Z7, 128(DI)
	VMOVDQU64 Z8, 192(DI)
	WFOLD(Z1, Z0, Z5, Z9)
	WFOLD(Z2, Z0, Z6, Z10)
	WFOLD(Z3, Z0, Z7, Z11)
	WFOLD(Z4, Z0, Z8, Z12)
	SUBQ      $256, CX
	JMP       four

one:
	VBROADCASTI32X4 fold1536<>(SB), Z5
	VBROADCASTI32X4 fold1024<>(SB), Z6
	VBROADCASTI32X4 fold512<>(SB), Z0
	WFOLD(Z1, Z5, Z4, Z9)
	WFOLD(Z2, Z6, Z1, Z10)
	WFOLD(Z3, Z0, Z2, Z11)
	VMOVDQA64 Z3, Z1

wide:
	CMPQ      CX, $64
	JLT       narrow
	VMOVDQU64 (SI), Z5
	VMOVDQU64 Z5, (DI)
	WFOLD(Z1, Z0, Z5, Z9)
	ADDQ      $64, SI
	ADDQ      $64, DI
	SUBQ      $64, CX
	JMP       wide

narrow:
	VMOVDQU64     lanes<>(SB), Z0
	VEXTRACTI32X4 $3, Z1, X5
	VPCLMULQDQ    $0x11, Z0, Z1, Z2
	VPCLMULQDQ    $0, Z0, Z1, Z1
	VPXORQ        Z2, Z1, Z1
	VEXTRACTI32X4 $1, Z1, X2
	VEXTRACTI32X4 $2, Z1, X3
	VPXOR         X2, X1, X1
	VPXOR         X3, X5, X5
	VPXOR         X5, X1, X1
	VZEROUPPER
	TAIL(rest, end)

#include "textflag.h"

// How blocks are folded, and what the constants are, package copycrc says; these are the same.
DATA short<>+0(SB)/8, $0x1751997d0 // by 128 bits
DATA short<>+8(SB)/8, $0xccaa009e
DATA short<>+16(SB)/8, $0x163cd6124 // 96 bits to 64
DATA short<>+24(SB)/8, $0
DATA short<>+32(SB)/8, $0x1db710641 // Barrett
DATA short<>+40(SB)/8, $0x1f7011641
DATA short<>+48(SB)/8, $0xffffffff
DATA short<>+56(SB)/8, $0
GLOBL short<>(SB), RODATA|NOPTR, $64

// The byte of the BTH that switches may change is ones in the ICRC: the fifth of the packet.
DATA reserved<>+0(SB)/8, $0xff00000000
DATA reserved<>+8(SB)/8, $0
GLOBL reserved<>(SB), RODATA|NOPTR, $16

DATA reservedFirst<>+0(SB)/8, $0xff
DATA reservedFirst<>+8(SB)/8, $0
GLOBL reservedFirst<>(SB), RODATA|NOPTR, $16

// FOLD folds block X1 by the constants in X0 and adds block X5; X2 is overwritten.
#define FOLD \
	MOVO      X1, X2        \
	PCLMULQDQ $0, X0, X1    \
	PCLMULQDQ $0x11, X0, X2 \
	PXOR      X2, X1        \
	PXOR      X5, X1

// func shortSSE(register uint32, pkt *byte, n int) uint32
//
// Zeros in front of a message do not change the register, so that the first block is one that
// n is no multiple of 16 for.
TEXT ·shortSSE(SB), NOSPLIT, $0-28
	MOVL  register+0(FP), AX
	MOVQ  pkt+8(FP), SI
	MOVQ  n+16(FP), CX
	MOVQ  AX, X3
	MOVOU short<>+0(SB), X0
	MOVOU short<>+48(SB), X4
	MOVOU reserved<>(SB), X6
	MOVQ  CX, DX
	ANDQ  $12, DX
	JZ    whole
	CMPQ  DX, $8
	JEQ   eight
	JA    twelve

	// Four bytes, and the reserved one is the first of the block behind them.
	MOVL   (SI), X1
	PXOR   X3, X1
	PSLLO  $12, X1
	MOVOU  4(SI), X5
	MOVOU  reservedFirst<>(SB), X6
	POR    X6, X5
	FOLD
	ADDQ   $20, SI
	SUBQ   $20, CX
	JMP    rest

eight:
	MOVQ  (SI), X1
	POR   X6, X1
	PXOR  X3, X1
	PSLLO $8, X1
	JMP   begun

twelve:
	MOVOU (SI), X1
	POR   X6, X1
	PXOR  X3, X1
	PSLLO $4, X1
	JMP   begun

whole:
	MOVOU (SI), X1
	POR   X6, X1
	PXOR  X3, X1
	MOVQ  $16, DX

begun:
	ADDQ DX, SI
	SUBQ DX, CX

rest:
	CMPQ  CX, $16
	JLT   reduce
	MOVOU (SI), X5
	FOLD
	ADDQ  $16, SI
	SUBQ  $16, CX
	JMP   rest

reduce:
	MOVO      X1, X2
	PCLMULQDQ $0x01, X1, X0
	PSRLO     $8, X2
	PXOR      X0, X2
	MOVO      X2, X1
	PSRLO     $4, X2
	PAND      X4, X1
	MOVOU     short<>+16(SB), X0
	PCLMULQDQ $0, X0, X1
	PXOR      X2, X1
	MOVOU     short<>+32(SB), X0
	MOVO      X1, X2
	PAND      X4, X1
	PCLMULQDQ $0x10, X0, X1
	PAND      X4, X1
	PCLMULQDQ $0, X0, X1
	PXOR      X2, X1
	PEXTRD    $1, X1, AX
	MOVL      AX, ret+24(FP)
	RET

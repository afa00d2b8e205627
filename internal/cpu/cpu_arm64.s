#include "textflag.h"

// func PollHigh(p *uint64, want uint32, looks int) uint64
TEXT ·PollHigh(SB), NOSPLIT, $0-32
	MOVD  p+0(FP), R0
	MOVWU want+8(FP), R1
	MOVD  looks+16(FP), R2
look:
	LDAR (R0), R3
	LSR  $32, R3, R4
	CMPW R4, R1
	BEQ  done
	ISB  $15
	SUBS $1, R2
	BGT  look
done:
	MOVD R3, ret+24(FP)
	RET

// func Pause(n int)
TEXT ·Pause(SB), NOSPLIT, $0-8
	MOVD n+0(FP), R2
again:
	ISB  $15
	SUBS $1, R2
	BGT  again
	RET

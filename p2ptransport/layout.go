package p2ptransport

import "github.com/purerdma/purerdma/transport/driver"

const (
	// pieceUnit is what pieces are rounded up to (CUDA_IPC_MIN).
	pieceUnit = 2 << 20
	headerMem = 4096 // SendMem or RecvMem
)

// layout is where things lie in a piece: the header, then the buffers that it has.
type layout struct {
	buffers [driver.Protocols]int // offset, 0 where the piece has none
	size    int
}

// layoutOf is the piece of one end. The sender's has SIMPLE's buffer in read mode
// alone, the receiver's has LL and LL128, and SIMPLE in write mode.
func layoutOf(send, read bool, buffers [driver.Protocols]int) layout {
	l := layout{size: headerMem}
	for p, n := range buffers {
		mine := !send
		if driver.Protocol(p) == driver.Simple {
			mine = send == read
		}
		if mine && n > 0 {
			l.buffers[p] = l.size
			l.size += n
		}
	}
	l.size = (l.size + pieceUnit - 1) / pieceUnit * pieceUnit
	return l
}

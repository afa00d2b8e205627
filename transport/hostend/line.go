package hostend

import (
	"structs"

	"github.com/purerdma/purerdma/internal/cpu"
	"github.com/purerdma/purerdma/internal/mmio"
)

// lineData is what a line of LL carries, lineBytes what it takes.
const (
	lineData  = 8
	lineBytes = 16
)

// Line is a line of LL (ncclLLFifoLine), in memory that another processor or a GPU reads and writes at the same time.
type Line struct {
	_     structs.HostLayout
	halfs [2]uint64 // data, and above it the flag
}

// Put stores 8 bytes, the first of them lowest, with a flag. Each half is one store, so that none is seen without its flag.
func (l *Line) Put(data uint64, flag uint32) {
	mmio.StoreRelease64(&l.halfs[0], data&0xffffffff|uint64(flag)<<32)
	mmio.StoreRelease64(&l.halfs[1], data>>32|uint64(flag)<<32)
}

// Get gives the 8 bytes if both halves have the flag.
func (l *Line) Get(flag uint32) (data uint64, ok bool) {
	a, b := mmio.LoadAcquire64(&l.halfs[0]), mmio.LoadAcquire64(&l.halfs[1])
	if uint32(a>>32) != flag || uint32(b>>32) != flag {
		return 0, false
	}
	return a&0xffffffff | b<<32, true
}

// Poll is Get after at most so many looks at the first half.
func (l *Line) Poll(flag uint32, looks int) (data uint64, ok bool) {
	cpu.PollHigh(&l.halfs[0], flag, looks)
	return l.Get(flag)
}

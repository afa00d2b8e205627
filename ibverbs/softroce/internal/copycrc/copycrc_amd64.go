package copycrc

import "golang.org/x/sys/cpu"

const (
	// block is what the lengths that the assembly takes are multiples of.
	block = 16
	// leastSSE and leastAVX512 are the shortest lengths that it takes.
	leastSSE    = 64
	leastAVX512 = 256
)

// least is the shortest length for blocks, more than there is where the processor
// has no PCLMULQDQ.
var (
	least = shortest()
	wide  = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ
)

func shortest() int {
	if cpu.X86.HasPCLMULQDQ && cpu.X86.HasSSE41 {
		return leastSSE
	}
	return int(^uint(0) >> 1)
}

// blocks is Update for a multiple of block bytes, least or more.
func blocks(crc uint32, dst, src []byte) uint32 {
	if wide && len(src) >= leastAVX512 {
		return blocksAVX512(crc, dst, src)
	}
	return blocksSSE(crc, dst, src)
}

// blocksSSE needs PCLMULQDQ and SSE4.1, and 64 bytes or more.
//
//go:noescape
func blocksSSE(crc uint32, dst, src []byte) uint32

// blocksAVX512 needs AVX512F and VPCLMULQDQ, and 256 bytes or more.
//
//go:noescape
func blocksAVX512(crc uint32, dst, src []byte) uint32

package wire

import "golang.org/x/sys/cpu"

// shortAtMost is up to which length short serves: hash/crc32 overtakes it there. It is 0 where the processor lacks the instructions.
var shortAtMost = shortest()

func shortest() int {
	if cpu.X86.HasPCLMULQDQ && cpu.X86.HasSSE41 {
		return 256
	}
	return 0
}

// short takes n bytes of a packet from its BTH on through the register, by carry-less multiplication and with no table: those of the other
// way are cold when a packet comes alone. n is a multiple of 4 and at least 16.
func short(register uint32, pkt []byte, n int) uint32 { return shortSSE(register, &pkt[:n][0], n) }

//go:noescape
func shortSSE(register uint32, pkt *byte, n int) uint32

package copycrc

import (
	"math/bits"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/cpu"
)

func ways() []way {
	list := []way{{"Update", Update}, {"Go", inGo}}
	if cpu.X86.HasPCLMULQDQ && cpu.X86.HasSSE41 {
		list = append(list, assembly("SSE", leastSSE, blocksSSE))
	}
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ {
		list = append(list, assembly("AVX-512", leastAVX512, blocksAVX512))
	}
	return list
}

// assembly is Update with this assembly alone.
func assembly(name string, least int, f func(uint32, []byte, []byte) uint32) way {
	return way{name, func(crc uint32, dst, src []byte) uint32 {
		n := len(src) &^ (block - 1)
		if n < least {
			n = 0
		} else {
			crc = f(crc, dst[:n], src[:n])
		}
		return inGo(crc, dst[n:], src[n:])
	}}
}

// TestConstants computes the constants of the assembly anew.
func TestConstants(t *testing.T) {
	text, err := os.ReadFile("copycrc_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	power := func(n int) uint64 { // x^n, reversed and shifted
		v := uint32(1)
		for range n {
			v = v<<1 ^ 0x04c11db7*(v>>31)
		}
		return uint64(bits.Reverse32(v)) << 1
	}
	constants := map[string][]uint64{"fold64": {power(64), 0}}
	for _, d := range []int{128, 512, 1024, 1536, 2048} {
		constants["fold"+strconv.Itoa(d)] = []uint64{power(d + 32), power(d - 32)}
	}
	for _, d := range []int{384, 256, 128} {
		constants["lanes"] = append(constants["lanes"], power(d+32), power(d-32))
	}
	for name, want := range constants {
		for i, v := range want {
			line := "DATA " + name + "<>+" + strconv.Itoa(8*i) + "(SB)/8, $" + "0x" + strconv.FormatUint(v, 16)
			if v == 0 {
				line = strings.TrimSuffix(line, "0x0") + "0"
			}
			if !strings.Contains(string(text), line+"\n") {
				t.Errorf("missing: %s", line)
			}
		}
	}
}

//go:build !amd64

package wire

const shortAtMost = 0

func short(uint32, []byte, int) uint32 { panic("unreachable") }

//go:build !amd64

package copycrc

const (
	block = 1
	least = int(^uint(0) >> 1)
)

func blocks(crc uint32, dst, src []byte) uint32 { return inGo(crc, dst, src) }

package link

import (
	"encoding/binary"
	"net/netip"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
	"golang.org/x/sys/unix"
)

// condition is that a load from a packet, masked, gives a value.
type condition struct {
	size uint16 // of the load: unix.BPF_B, BPF_H or BPF_W
	at   uint32 // from the network header on, or one of the kernel's extensions
	mask uint32 // 0 for all
	want uint32
}

// Where loads of a socket filter begin (linux/filter.h).
const (
	fromNetwork = 1<<32 - 0x100000 // SKF_NET_OFF
	packetType  = 1<<32 - 0x1000 + 4
)

// roceTo lets through what openIP takes and is for addr, as it came to this host:
// what leaves it passes a packet socket too.
func roceTo(addr netip.Addr) []unix.SockFilter {
	list := []condition{{unix.BPF_B, packetType, 0, unix.PACKET_HOST}}
	if addr.Is4() {
		a := addr.As4()
		list = append(list,
			condition{unix.BPF_B, fromNetwork, 0, 0x45},
			condition{unix.BPF_B, fromNetwork + 9, 0, protocolUDP},
			condition{unix.BPF_H, fromNetwork + 6, 0x3fff, 0}, // no fragment
			condition{unix.BPF_W, fromNetwork + 16, 0, binary.BigEndian.Uint32(a[:])},
			condition{unix.BPF_H, fromNetwork + 22, 0, wire.Port})
		return allOf(list)
	}
	a := addr.As16()
	list = append(list, condition{unix.BPF_B, fromNetwork + 6, 0, protocolUDP})
	for i := uint32(0); i < 16; i += 4 {
		list = append(list, condition{unix.BPF_W, fromNetwork + 24 + i, 0, binary.BigEndian.Uint32(a[i:])})
	}
	return allOf(append(list, condition{unix.BPF_H, fromNetwork + 42, 0, wire.Port}))
}

// allOf is a filter that takes packets which meet all conditions.
func allOf(list []condition) (f []unix.SockFilter) {
	for _, c := range list {
		f = append(f, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_ABS | c.size, K: c.at})
		if c.mask != 0 {
			f = append(f, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: c.mask})
		}
		f = append(f, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: c.want})
	}
	f = append(f, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1})
	for i := range f {
		if f[i].Code == unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K {
			f[i].Jf = uint8(len(f) - i - 1)
		}
	}
	return append(f, dropAll...)
}

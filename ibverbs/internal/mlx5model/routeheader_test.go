package mlx5model

import (
	"encoding/binary"
	"testing"
)

// TestRouteHeader is what stands in front of a datagram of 10 bytes, by the GID that it
// comes from: between addresses of RoCE v2 the next header is UDP, whose header counts.
func TestRouteHeader(t *testing.T) {
	const padded = 12 + 12 + 8 + 4
	for _, c := range []struct {
		name     string
		ethernet bool
		gid      uint32
		at       int // where the header begins
		next     int // where the number of the next one lies, and the length
		length   int
		is       byte
		bytes    uint16
	}{
		{"InfiniBand", false, 0, 0, 6, 4, 0x1b, padded},
		{"RoCE v1", true, 0, 0, 6, 4, 0x1b, padded},
		{"RoCE v2, IPv6", true, 1, 0, 6, 4, 17, 8 + padded},
		{"RoCE v2, IPv4", true, 2, 20, 29, 22, 17, 20 + 8 + padded},
	} {
		config := Config{Ethernet: c.ethernet}
		e := &entry{}
		e.av.GRHGIDFL.Set(c.gid<<20 | avGlobal)
		e.av.TClass = 0x20
		b := config.routeHeader(e, 10)
		if len(b) != grhSize || b[c.next] != c.is || binary.BigEndian.Uint16(b[c.length:]) != c.bytes || b[c.at]>>4 != byte(6-2*(c.at/20)) {
			t.Errorf("%s: % x, want next header %#x, length %d", c.name, b, c.is, c.bytes)
		}
	}
}

package socketboot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// Magic is NCCL_SOCKET_MAGIC, the number by which NCCL's sockets know each other. It is public: it keeps strays away, not enemies.
const Magic = 0x564ab9f2fc4b9d6c

// SocketTypeNetIB is the socket type that a connector states, ncclSocketTypeNetIb.
const SocketTypeNetIB = 4

// Handle is NCCL's net handle: where a listener waits. It is data, to be sent to the connector by other means. What arrives
// is not to be trusted before [Handle.Check]; [Net.Connect] and [NewConnector] do that.
type Handle [128]byte

// ErrHandle is in every error about a handle.
var ErrHandle = errors.New("bad handle")

const (
	familyIPv4 = 2
	familyIPv6 = 10
)

// HandleFor makes the handle of a listener. The zone of an IPv6 address goes into it as a number (NCCL puts the listener's
// interface index there), and is left out if it is a name.
func HandleFor(addr netip.AddrPort, magic uint64) Handle {
	var h Handle
	ip := addr.Addr().Unmap()
	binary.BigEndian.PutUint16(h[2:], addr.Port())
	if ip.Is4() {
		binary.LittleEndian.PutUint16(h[0:], familyIPv4)
		copy(h[4:8], ip.AsSlice())
	} else {
		binary.LittleEndian.PutUint16(h[0:], familyIPv6)
		copy(h[8:24], ip.AsSlice())
		scope, _ := strconv.ParseUint(ip.Zone(), 10, 32)
		binary.LittleEndian.PutUint32(h[24:], uint32(scope))
	}
	binary.LittleEndian.PutUint64(h[32:], magic)
	return h
}

// ParseHandle copies a handle out of b, which may be longer (NCCL's core passes on larger blobs), and checks it.
func ParseHandle(b []byte) (Handle, error) {
	var h Handle
	if len(b) < len(h) {
		return h, fmt.Errorf("socketboot: %w: %d bytes, want %d", ErrHandle, len(b), len(h))
	}
	copy(h[:], b)
	return h, h.Check()
}

// Addr is where the listener waits, without a zone: the number in the handle means something on the listener's host only. An IPv4
// address in IPv6 form is IPv4. The result is not valid if the handle is of neither family.
func (h Handle) Addr() netip.AddrPort {
	port := binary.BigEndian.Uint16(h[2:])
	switch h.family() {
	case familyIPv4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(h[4:8])), port)
	case familyIPv6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(h[8:24])).Unmap(), port)
	}
	return netip.AddrPort{}
}

// ScopeID is the interface index of an IPv6 link-local listener on its own host.
func (h Handle) ScopeID() uint32 { return binary.LittleEndian.Uint32(h[24:]) }

// Magic is the number that the connector has to show.
func (h Handle) Magic() uint64 { return binary.LittleEndian.Uint64(h[32:]) }

func (h Handle) family() uint16 { return binary.LittleEndian.Uint16(h[0:]) }

// Check tells what is wrong with a handle before anything is dialed. The error is an [ErrHandle].
func (h Handle) Check() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("socketboot: %w: "+format, append([]any{ErrHandle}, a...)...)
	}
	if h == (Handle{}) {
		return bad("it is all 0; was it ever received from the listener?")
	}
	addr := h.Addr()
	switch {
	case !addr.IsValid():
		return bad("address family %d is neither IPv4 (2) nor IPv6 (10)", h.family())
	case addr.Port() == 0:
		return bad("port 0 of %s", addr.Addr())
	case addr.Addr().IsUnspecified(), addr.Addr().IsMulticast(), addr.Addr() == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return bad("%s is not the address of one host", addr.Addr())
	case h.Magic() == 0:
		return bad("magic 0 for %s", addr)
	case [24]byte(h[40:64]) != [24]byte{}:
		return bad("bytes 40 to 63 are not 0 for %s; a handle serves one connection, get a fresh copy", addr)
	}
	return nil
}

package link

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// socket is one UDP socket, bound and not connected.
type socket struct {
	udp  *net.UDPConn // plain only
	conn interface {
		SetReadDeadline(t time.Time) error
		Close() error
	}
	raw        syscall.RawConn
	port       uint16
	scope      uint32 // zone of link-local peers
	recvBuffer int    // granted
	plain      bool
	states     sync.Pool                 // of *sendState
	spare      atomic.Pointer[sendState] // the one that was used last
}

// openSocket makes a socket that receives, or one that only sends and throws
// away what comes. Options are set before it is bound, so that no packet comes
// under others.
func openSocket(cfg *UDPConfig, dev Netdev, port uint16, receives bool) (*socket, error) {
	network := "udp6"
	if cfg.Addr.Is4() {
		network = "udp4"
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = setUp(fd, cfg, receives) }); e != nil {
			return e
		}
		return err
	}}
	pc, err := lc.ListenPacket(context.Background(), network, net.JoinHostPort(cfg.Addr.String(), strconv.Itoa(int(port))))
	if err != nil {
		return nil, err
	}
	s := &socket{udp: pc.(*net.UDPConn), port: port, plain: cfg.Plain}
	if cfg.Addr.IsLinkLocalUnicast() {
		s.scope = uint32(dev.Index)
	}
	if err := s.take(); err != nil {
		return nil, err
	}
	if receives {
		err = s.raw.Control(func(fd uintptr) { s.recvBuffer = granted(fd, cfg) })
	}
	if err != nil {
		s.conn.Close()
		return nil, err
	}
	return s, nil
}

// to is a peer's address with the zone of this socket where it needs one.
func (s *socket) to(cfg *UDPConfig, peer netip.AddrPort) netip.AddrPort {
	if s.scope != 0 && peer.Addr().IsLinkLocalUnicast() {
		return netip.AddrPortFrom(peer.Addr().WithZone(cfg.Addr.Zone()), peer.Port())
	}
	return peer
}

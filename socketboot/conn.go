package socketboot

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// Conn is the idle TCP connection after a handshake. Nothing more is said on it; it is kept because its end tells that the peer
// has closed or died. A goroutine waits for that until Close.
type Conn struct {
	Layout   Layout
	Peer     Metadata
	PeerDevs DevList
	PeerAddr netip.AddrPort // not valid if the connection is none of TCP
	Local    AcceptorLocal  // what the Listener was given for this peer; nil from Connect, whose caller has it

	c     net.Conn
	gone  chan struct{}
	err   error // set before gone is closed
	close sync.Once
}

func newConn(m *Machine, c net.Conn) *Conn {
	return &Conn{Layout: m.layout, Peer: m.theirs, PeerDevs: m.peerDevs, PeerAddr: addrPort(c.RemoteAddr()), Local: m.acc,
		c: c, gone: make(chan struct{})}
}

// watch returns when the connection has ended.
func (c *Conn) watch() {
	defer close(c.gone)
	var b [1]byte
	n, err := c.c.Read(b[:])
	switch {
	case n > 0:
		c.err = fmt.Errorf("socketboot: %s: %w: after ready", c.c.RemoteAddr(), ErrSurplus)
		_ = c.c.Close()
	case errors.Is(err, net.ErrClosed):
		c.err = net.ErrClosed
	case closedByPeer(err):
		c.err = fmt.Errorf("socketboot: %s: %w", c.c.RemoteAddr(), ErrPeerClosed)
	default:
		c.err = fmt.Errorf("socketboot: %s: %w", c.c.RemoteAddr(), err)
	}
}

// Gone is closed when the connection has ended: the peer closed it, died, vanished (TCP keepalive), or spoke out of turn, or
// Close was called. It says nothing about data that is still under way by RDMA.
func (c *Conn) Gone() <-chan struct{} { return c.gone }

// Err is nil until Gone is closed, and then tells why: [ErrPeerClosed], [ErrSurplus], net.ErrClosed after an own Close, or what
// TCP said.
func (c *Conn) Err() error {
	select {
	case <-c.gone:
		return c.err
	default:
		return nil
	}
}

// Close ends the connection, which the peer may take for our death: close when the last request has ended at both ends. The queue
// pairs may be freed after it, as NCCL does. It waits for the goroutine behind Gone. The result is always nil, so is that of a second call.
func (c *Conn) Close() error {
	c.close.Do(func() { _ = c.c.Close() })
	<-c.gone
	return nil
}

func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	if a == nil {
		return netip.AddrPort{}
	}
	ap, _ := netip.ParseAddrPort(a.String())
	return ap
}

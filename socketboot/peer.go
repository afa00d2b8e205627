package socketboot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/purerdma/purerdma/socketboot/internal/cause"
)

// OpenPeer opens a connection by n's rules, for services of a job other than the handshake: Zone, Retry and Secure count, and
// nothing is said on it yet. ctx bounds it.
func (n Net) OpenPeer(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
	n, err := n.ready(ctx)
	if err != nil {
		return nil, err
	}
	if !a.IsValid() {
		return nil, errors.New("socketboot: connect: there is no address")
	}
	addr, err := n.zoned(a)
	if err != nil {
		return nil, err
	}
	c, err := n.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	s, err := n.secure(ctx, c, false, time.Now())
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return s, nil
}

// ListenForPeers listens at Bind, or at an address that [ChooseInterface] finds, as Serve does. advertised is what peers dial: never an
// unspecified address, and without the zone's name. What is accepted goes through [Net.AdmitPeer].
func (n Net) ListenForPeers(ctx context.Context) (ln net.Listener, advertised netip.AddrPort, err error) {
	if n, err = n.ready(ctx); err != nil {
		return nil, advertised, err
	}
	bind, addr, err := n.listenAddr()
	if err != nil {
		return nil, advertised, err
	}
	ln, err = n.listen(ctx, bind)
	if err != nil {
		return nil, advertised, err
	}
	port := addrPort(ln.Addr()).Port()
	if port == 0 {
		_ = ln.Close()
		return nil, advertised, fmt.Errorf("socketboot: listen at %s: %s is no TCP address", bind, ln.Addr())
	}
	return ln, netip.AddrPortFrom(addr, port), nil
}

// AdmitPeer runs Secure on an accepted connection, under the deadline of Hello. After an error c is closed.
func (n Net) AdmitPeer(ctx context.Context, c net.Conn) (net.Conn, error) {
	n, err := n.ready(ctx)
	s := c
	if err == nil {
		s, err = n.secure(ctx, c, true, time.Now())
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return s, nil
}

// Interrupt makes reads and writes of c fail when ctx ends, until the function it returns has returned. It does so by a deadline, and where
// ctx has ended c has none afterwards. A nil ctx panics, as there is no error to return.
func Interrupt(ctx context.Context, c net.Conn) (end func()) {
	if ctx == nil {
		panic("socketboot: Interrupt: " + cause.ErrNoContext.Error())
	}
	return interruptible(ctx, c)
}

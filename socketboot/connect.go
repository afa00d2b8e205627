package socketboot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/socketboot/internal/cause"
)

// Connect opens a connection to the listener of h and carries the handshake through as the connector. It blocks; ctx, Retry and
// Deadlines bound it. The handle is checked before anything is dialed. When it fails, local.Abort has been called, the socket is
// closed, and the error is a [HandshakeError]. Refused, timed out and unreachable tries are repeated, each with a new socket; a
// handshake that has begun is not.
func (n Net) Connect(ctx context.Context, h Handle, local ConnectorLocal) (*Conn, error) {
	n, bad := n.ready(ctx)
	m, err := NewConnector(n.Layout, h, local)
	if err != nil {
		return nil, err
	}
	addr := h.Addr()
	m.peer = addr.String()
	if bad != nil {
		return nil, m.Fail(bad)
	}
	if addr, err = n.zoned(addr); err != nil {
		return nil, m.Fail(err)
	}
	tcp, err := n.dial(ctx, addr)
	if err != nil {
		return nil, m.Fail(err)
	}
	start := time.Now()
	c, err := n.secure(ctx, tcp, false, start)
	if err != nil {
		_ = tcp.Close()
		return nil, m.Fail(err)
	}
	if err := m.run(ctx, c, n.Deadlines, start); err != nil {
		_ = c.Close()
		return nil, err
	}
	conn := newConn(m, c)
	go conn.watch()
	return conn, nil
}

// dial tries until it has a connection, an error that will not pass, or no more tries.
func (n *Net) dial(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
	for try := 1; ; try++ {
		c, err := n.dialOnce(ctx, a)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w (try %d: %w)", cause.Of(ctx), try, err)
		}
		if !passing(err) {
			return nil, err
		}
		if try > n.Retry.Times {
			return nil, fmt.Errorf("after %d tries: %w", try, err)
		}
		pause := time.Duration(try) * n.Retry.Unit
		n.Log.Debug("connect failed, will try again", "peer", a, "try", try, "pause", pause, "err", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (try %d: %w)", cause.Of(ctx), try, err)
		}
	}
}

func (n *Net) dialOnce(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, n.Retry.Each)
	defer cancel()
	return n.Dial(ctx, a)
}

// passing tells whether a later try may succeed: the listener is not up yet, or its host not reachable yet.
func passing(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EHOSTUNREACH) ||
		errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// zoned gives a link-local address the zone through which it is to be reached from here. The scope in the handle is that of the
// listener's host and of no use.
func (n *Net) zoned(a netip.AddrPort) (netip.AddrPort, error) {
	if !a.Addr().Is6() || !a.Addr().IsLinkLocalUnicast() {
		return a, nil
	}
	zone := n.Zone
	if zone == "" {
		ifs, err := n.Interfaces()
		if err != nil {
			return a, err
		}
		for i := range ifs {
			if !ifs[i].linkLocal() {
				continue
			}
			if zone != "" {
				return a, fmt.Errorf("%s is link-local, and both %s and %s could lead there: set Zone", a, zone, ifs[i].Name)
			}
			zone = ifs[i].Name
		}
		if zone == "" {
			return a, fmt.Errorf("%s is link-local, and no interface here has such addresses: set Zone", a)
		}
	}
	return netip.AddrPortFrom(a.Addr().WithZone(zone), a.Port()), nil
}

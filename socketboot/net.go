package socketboot

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/purerdma/purerdma/socketboot/internal/cause"
)

// Net is how the package reaches TCP, and how it behaves there. The zero value is ready: the machine's network, NCCL's magic,
// NCCL 2.25.1's bytes.
type Net struct {
	Layout Layout
	Magic  uint64 // NCCL_SOCKET_MAGIC of newer versions; 0 means Magic
	// Bind is where Serve listens. Without an address it is the one that ChooseInterface finds with IfName and Family; port 0
	// leaves the port to the system. An unspecified address (0.0.0.0) listens everywhere and puts the chosen one into the handle.
	Bind   netip.AddrPort
	IfName string // in the syntax of NCCL_SOCKET_IFNAME
	Family Family // NCCL_SOCKET_FAMILY
	// Zone is the local interface through which Connect reaches IPv6 link-local listeners. Empty is enough where only one
	// interface has such addresses.
	Zone      string
	Deadlines Deadlines
	Retry     Retry
	// MaxPending bounds the accepted connections that a Listener holds and nobody has taken, 0 means 1024; a negative one is an error. At the bound a new peer
	// is not refused: the one longest without magic and device list is dropped for it if that is 100 ms or more; if all have
	// shown them, the one longest without its next message if that is 2 s or more; else the new peer waits.
	MaxPending int

	// Dial opens a TCP connection, nil means net.Dialer. A new one is asked for with each try.
	Dial func(ctx context.Context, a netip.AddrPort) (net.Conn, error)
	// Listen opens a TCP listener, nil means net.ListenConfig.
	Listen func(ctx context.Context, a netip.AddrPort) (net.Listener, error)
	// Interfaces lists the machine's interfaces, nil means SystemInterfaces.
	Interfaces func() ([]Interface, error)
	// Secure wraps a connection before the first byte of the handshake, in TLS or a keyed transcript; nil leaves it plain. ctx ends
	// with the Hello deadline. An error drops the peer.
	Secure func(ctx context.Context, c net.Conn, server bool) (net.Conn, error)
	// Dropped is told of each peer that a Listener dropped, from a goroutine for which Listener.Close
	// waits, so it must not call that. The reason is a HandshakeError,
	// or, if the peer went away after its handshake and before Accept, what Conn.Err says.
	Dropped func(peer netip.AddrPort, reason error)
	// Log gets what Dropped gets (peers that knew the magic as warnings, strays as debug messages), refused tries to connect and
	// the choice of the interface; nil logs nothing. No key or memory address goes into it.
	Log *slog.Logger
}

// Retry says how often a refused or unanswered connect is tried again; zero fields mean 34, 100 ms, 10 s, with which NCCL's
// back-off ends after a minute. Negative durations are an error.
type Retry struct {
	Times int           // tries after the first; negative means none
	Unit  time.Duration // the pause after try n is n times this
	Each  time.Duration // bound of a single try
}

// ready is n with its defaults, or what cannot be, the context of the call included.
func (n Net) ready(ctx context.Context) (Net, error) {
	if ctx == nil {
		return n.orDefaults(), fmt.Errorf("socketboot: %w", cause.ErrNoContext)
	}
	return n.orDefaults(), n.Check()
}

func (n Net) orDefaults() Net {
	if n.Magic == 0 {
		n.Magic = Magic
	}
	n.Deadlines = n.Deadlines.orDefaults()
	if n.Retry.Times == 0 {
		n.Retry.Times = 34
	}
	if n.Retry.Unit == 0 {
		n.Retry.Unit = 100 * time.Millisecond
	}
	if n.Retry.Each == 0 {
		n.Retry.Each = 10 * time.Second
	}
	if n.MaxPending == 0 {
		n.MaxPending = 1024
	}
	if n.Dial == nil {
		n.Dial = dialTCP
	}
	if n.Listen == nil {
		n.Listen = listenTCP
	}
	if n.Interfaces == nil {
		n.Interfaces = SystemInterfaces
	}
	if n.Dropped == nil {
		n.Dropped = func(netip.AddrPort, error) {}
	}
	if n.Log == nil {
		n.Log = slog.New(slog.DiscardHandler)
	}
	return n
}

// dialTCP relies on what package net does by itself: TCP_NODELAY, and keepalive every 15 s, by which Conn.Gone notices a host
// that vanished.
func dialTCP(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", a.String())
}

func listenTCP(ctx context.Context, a netip.AddrPort) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", a.String())
}

// secure runs the Secure hook under the Hello deadline, which began at start.
func (n *Net) secure(ctx context.Context, c net.Conn, server bool, start time.Time) (net.Conn, error) {
	if n.Secure == nil {
		return c, nil
	}
	ctx, cancel := context.WithDeadline(ctx, start.Add(n.Deadlines.Hello))
	defer cancel()
	defer interruptible(ctx, c)()
	s, err := n.Secure(ctx, c, server)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%w: securing the connection with %s: %w", cause.Of(ctx), addrString(c), err)
	}
	return s, err
}

package nettransport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/socketboot"
)

// Pending is a connection that is being opened. It belongs to one goroutine at a time.
type Pending struct {
	cancel context.CancelFunc
	done   chan struct{}
	comm   *SendComm
	err    error
	taken  bool
}

// Comm is the connection once it is open, or why it is not; nil, nil before. It does not wait.
func (p *Pending) Comm() (*SendComm, error) {
	select {
	case <-p.done:
		p.taken = true
		return p.comm, p.err
	default:
		return nil, nil
	}
}

// Close gives the attempt up, and closes a connection that was not taken with Comm. It waits for a call in the kernel.
func (p *Pending) Close() error {
	p.cancel()
	<-p.done
	if p.taken || p.comm == nil {
		return nil
	}
	p.taken = true
	return p.comm.Close()
}

// Listener accepts peers that will send. Strangers, scanners and slow peers harm neither it nor other connections. Its methods
// may be called from any goroutine.
type Listener struct {
	t       *Transport
	l       *socketboot.Listener
	flushes bool // its connections flush, whatever Config.Flush is
}

// Handle is what a peer needs to connect. It may serve several peers.
func (l *Listener) Handle() Handle { return l.l.Handle() }

// Accept waits for a peer that is ready to send. The caller closes the RecvComm.
func (l *Listener) Accept(ctx context.Context) (*RecvComm, error) { return l.take(l.l.Accept(ctx)) }

// TryAccept is Accept without waiting: nil, nil if no peer is ready.
func (l *Listener) TryAccept() (*RecvComm, error) { return l.take(l.l.TryAccept()) }

func (l *Listener) take(conn *socketboot.Conn, err error) (*RecvComm, error) {
	if errors.Is(err, net.ErrClosed) {
		err = &ibverbs.Error{Op: "accept", Object: "listener", Err: fmt.Errorf("%w: %w", ErrClosed, err)}
	}
	if conn == nil {
		return nil, err
	}
	c := (*RecvComm)(conn.Local.(*acceptor))
	if err := l.t.adoptChild("accept", &c.Comm, "connection from "+conn.PeerAddr.String()); err != nil {
		_ = conn.Close()
		(*acceptor)(c).Abort(err)
		return nil, err
	}
	c.attach(conn)
	return c, nil
}

// Close stops listening and ends handshakes under way. Connections that were accepted stay. A second Close is nil.
func (l *Listener) Close() error {
	err := l.l.Close()
	l.t.forget(l)
	return err
}

func (l *Listener) local(n *nic) func(netip.AddrPort) socketboot.AcceptorLocal {
	return func(peer netip.AddrPort) socketboot.AcceptorLocal {
		c := newRecvComm(l.t, n)
		c.flushes = c.flushes || l.flushes
		c.peer = peer
		return (*acceptor)(c)
	}
}

// connector is a SendComm as the handshake sees it.
type connector SendComm

func (c *connector) Devices() socketboot.DevList { return c.nic.devList() }

func (c *connector) Prepare(peer socketboot.DevList) (socketboot.Metadata, error) {
	return (*SendComm)(c).prepare(len(peer.Devs))
}

func (c *connector) Ready(peer *socketboot.Metadata) error { return c.connectLanes(peer) }

func (c *connector) Abort(error) { c.free() }

// acceptor is a RecvComm as the handshake sees it.
type acceptor RecvComm

func (c *acceptor) Devices() socketboot.DevList { return c.nic.devList() }

func (c *acceptor) Establish(peer socketboot.DevList, meta *socketboot.Metadata) (socketboot.Metadata, error) {
	return (*RecvComm)(c).establish(len(peer.Devs), meta)
}

func (c *acceptor) Abort(error) { c.free() }

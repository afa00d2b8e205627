package socketboot

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// phase is how much a peer has shown, in the order in which peers are dropped at the bound.
type phase uint8

const (
	stray   phase = iota // no valid device list yet
	talking              // knows magic and type
)

// grace is the silence that a peer is allowed even at the bound, so that a burst of good peers does not drop one another. A stray
// has nothing to wait for before it speaks; a good peer makes queue pairs in between.
func (p phase) grace() time.Duration {
	if p == stray {
		return 100 * time.Millisecond
	}
	return 2 * time.Second
}

// attempt is one handshake of a Listener. It stands between machine and owner to see how far it has come.
type attempt struct {
	l      *Listener
	c      net.Conn
	peer   netip.AddrPort
	ctx    context.Context
	cancel context.CancelCauseFunc
	local  AcceptorLocal // nil before there is a valid device list

	// Under the listener's lock:
	phase   phase
	since   time.Time // of the begin, or the owner's last answer to a valid message
	waiting bool      // for the peer; else whatever takes time here is not its fault
}

// patient is a connection that tells when its attempt waits for the peer.
type patient struct {
	net.Conn
	a *attempt
}

func (p patient) Read(b []byte) (int, error) {
	p.a.wait(true)
	defer p.a.wait(false)
	return p.Conn.Read(b)
}

func (a *attempt) serve() {
	conn, err := a.handshake()
	if err != nil {
		a.cancel(err)
		a.leave()
		a.l.dropped(a.peer, err)
		return
	}
	a.cancel(nil)
	taken := a.l.deliver(a, conn)
	// Not this goroutine, for which the listener's Close waits: the connection outlives the listener.
	go func() {
		conn.watch()
		a.l.forget(conn)
	}()
	if !taken { // not before: to close a connection is to wait for the goroutine that watches it
		a.l.discard(conn, net.ErrClosed)
	}
}

func (a *attempt) handshake() (*Conn, error) {
	start := time.Now()
	m, err := NewAcceptor(a.l.net.Layout, a.l.net.Magic, a)
	if err != nil {
		_ = a.c.Close()
		return nil, err
	}
	m.peer = addrString(a.c)
	a.enter(stray)
	a.wait(true)
	c, err := a.l.net.secure(a.ctx, a.c, true, start)
	a.wait(false)
	if err != nil {
		_ = a.c.Close()
		return nil, m.Fail(err)
	}
	if err := m.run(a.ctx, patient{c, a}, a.l.net.Deadlines, start); err != nil {
		_ = c.Close()
		return nil, err
	}
	conn := newConn(m, c)
	conn.Local = a.local
	return conn, nil
}

func (a *attempt) leave() {
	a.l.mu.Lock()
	delete(a.l.pending, a)
	a.l.room.Signal()
	a.l.mu.Unlock()
}

func (a *attempt) enter(p phase) {
	a.l.mu.Lock()
	a.phase, a.since = p, time.Now()
	a.l.room.Signal()
	a.l.mu.Unlock()
}

func (a *attempt) wait(yes bool) {
	a.l.mu.Lock()
	a.waiting = yes
	a.l.mu.Unlock()
}

// Devices is called by the machine when the peer's device list is valid.
func (a *attempt) Devices() DevList {
	defer a.enter(talking)
	if a.local = a.l.local(a.peer); a.local == nil {
		return DevList{} // which the machine refuses
	}
	return a.local.Devices()
}

// Establish is called by the machine when the peer's metadata is valid.
func (a *attempt) Establish(peer DevList, meta *Metadata) (Metadata, error) {
	defer a.enter(talking)
	return a.local.Establish(peer, meta)
}

// Abort is called by the machine when the handshake has failed.
func (a *attempt) Abort(reason error) {
	if a.local != nil {
		a.local.Abort(reason)
	}
}

package socketboot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/purerdma/purerdma/socketboot/internal/cause"
)

// Listener accepts connectors. Each handshake runs in a goroutine of its own under its own deadlines, so that no peer holds up
// another, and what fails is dropped. Its methods may be called from any goroutine.
type Listener struct {
	net    Net
	ln     net.Listener
	handle Handle
	local  func(netip.AddrPort) AcceptorLocal
	ctx    context.Context
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	pending map[*attempt]struct{} // handshakes under way
	ready   []*Conn               // handshakes done, not taken yet
	wake    chan struct{}         // closed, and replaced, when ready has grown or the listener is closed
	room    *sync.Cond            // pending or ready has shrunk
	closed  bool

	lastDrop error // of a peer that was no stray
}

// Serve listens at n.Bind, or at an address that [ChooseInterface] finds. For each peer local is called once magic, type and
// device list are valid; peer is its TCP address; a peer for which it returns nil is dropped. ctx bounds only this call.
func (n Net) Serve(ctx context.Context, local func(peer netip.AddrPort) AcceptorLocal) (*Listener, error) {
	n, err := n.ready(ctx)
	if err != nil {
		return nil, err
	}
	if err := n.Layout.check(); err != nil {
		return nil, err
	}
	if local == nil {
		return nil, errNoLocal
	}
	bind, advertised, err := n.listenAddr()
	if err != nil {
		return nil, err
	}
	ln, err := n.listen(ctx, bind)
	if err != nil {
		return nil, err
	}
	actual := addrPort(ln.Addr())
	if actual.Port() == 0 {
		_ = ln.Close()
		return nil, fmt.Errorf("socketboot: listen at %s: %s is no TCP address", bind, ln.Addr())
	}
	l := &Listener{net: n, ln: ln, handle: HandleFor(netip.AddrPortFrom(advertised, actual.Port()), n.Magic), local: local,
		pending: map[*attempt]struct{}{}, wake: make(chan struct{})}
	l.room = sync.NewCond(&l.mu)
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.work.Go(l.accept)
	return l, nil
}

// listen is Listen, but for a ctx that is over, which package net does not look at.
func (n *Net) listen(ctx context.Context, a netip.AddrPort) (net.Listener, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("socketboot: listen at %s: %w", a, cause.Of(ctx))
	}
	ln, err := n.Listen(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("socketboot: listen at %s: %w", a, err)
	}
	return ln, nil
}

// listenAddr finds where to bind and what to tell connectors, which is never an unspecified address. The zone of a link-local
// one is a number in the handle.
func (n *Net) listenAddr() (bind netip.AddrPort, advertised netip.Addr, err error) {
	ifs, err := n.Interfaces()
	if err != nil {
		return bind, advertised, err
	}
	a := n.Bind.Addr()
	if a.IsValid() && !a.IsUnspecified() {
		return n.Bind, numericZone(a, ifs), nil
	}
	family := n.Family
	if a.Is4() {
		family = FamilyIPv4
	}
	choice, err := ChooseInterface(ifs, n.IfName, family)
	if err != nil {
		return bind, advertised, err
	}
	n.Log.Info("interface for TCP chosen", "interface", choice.Interface.Name, "address", choice.Addr, "why", choice.Why)
	bind = netip.AddrPortFrom(choice.Addr, n.Bind.Port())
	if n.Bind.Addr().IsValid() {
		bind = n.Bind
	}
	return bind, numericZone(choice.Addr, ifs), nil
}

func numericZone(a netip.Addr, ifs []Interface) netip.Addr {
	for i := range ifs {
		if a.Zone() != "" && ifs[i].Name == a.Zone() {
			return a.WithZone(strconv.Itoa(ifs[i].Index))
		}
	}
	return a
}

// Handle is what a connector needs.
func (l *Listener) Handle() Handle { return l.handle }

// Accept waits for a handshake to be done and gives its connection away. The error is that of ctx, and then tells in words of the
// last peer that was dropped although it knew the magic, or net.ErrClosed.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	if ctx == nil {
		return nil, l.nobody(cause.ErrNoContext)
	}
	for {
		c, wake, err := l.take()
		if c != nil || err != nil {
			return c, err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, l.nobody(cause.Of(ctx))
		}
	}
}

// nobody says why Accept had nothing to give, which may well be the last peer that knew the magic and yet failed.
func (l *Listener) nobody(reason error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lastDrop == nil {
		return fmt.Errorf("socketboot: accept: %w", reason)
	}
	return fmt.Errorf("socketboot: accept: %w; the last peer dropped: %v", reason, l.lastDrop)
}

// TryAccept is Accept that does not wait: nil, nil if no handshake is done.
func (l *Listener) TryAccept() (*Conn, error) {
	c, _, err := l.take()
	return c, err
}

func (l *Listener) take() (*Conn, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, fmt.Errorf("socketboot: accept: %w", net.ErrClosed)
	}
	if len(l.ready) == 0 {
		return nil, l.wake, nil
	}
	c := l.ready[0]
	l.ready = slices.Delete(l.ready, 0, 1)
	l.room.Signal()
	return c, nil, nil
}

// Close stops listening, ends the handshakes under way and the connections that nobody has taken (their AcceptorLocal is
// aborted), and waits for all of it, which takes as long as a call of Establish does. A second call is nil.
func (l *Listener) Close() error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	untaken := l.ready
	l.ready = nil
	if first {
		close(l.wake)
	}
	l.room.Broadcast()
	l.mu.Unlock()

	l.cancel(net.ErrClosed)
	_ = l.ln.Close()
	for _, c := range untaken {
		l.discard(c, net.ErrClosed)
	}
	l.work.Wait()
	return nil
}

// accept admits one connection after the other. No error but that of Close ends it: the others (too many open files, a peer
// that went away in the queue) pass.
func (l *Listener) accept() {
	const least, most = 5 * time.Millisecond, time.Second
	pause := least
	for {
		c, err := l.ln.Accept()
		if l.ctx.Err() != nil {
			if err == nil {
				_ = c.Close()
			}
			return
		}
		if err == nil {
			pause = least
			l.admit(c)
			continue
		}
		l.net.Log.Warn("accept failed, will try again", "pause", pause, "err", err)
		l.mu.Lock()
		l.evict()
		l.mu.Unlock()
		select {
		case <-time.After(pause):
			pause = min(2*pause, most)
		case <-l.ctx.Done():
		}
	}
}

// admit starts the handshake of a connection as soon as there is room for it. Until then it is not refused, and those behind it
// wait in the system's queue.
func (l *Listener) admit(c net.Conn) {
	a := &attempt{l: l, c: c, peer: addrPort(c.RemoteAddr())}
	a.ctx, a.cancel = context.WithCancelCause(l.ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && len(l.pending)+len(l.ready) >= l.net.MaxPending {
		if wait := l.evict(); wait > 0 {
			again := time.AfterFunc(wait, l.lookAgain)
			l.room.Wait()
			again.Stop()
		}
	}
	if l.closed {
		_ = c.Close()
		return
	}
	l.pending[a] = struct{}{}
	l.work.Go(a.serve)
}

// lookAgain ends a wait of admit, which holds the lock until it waits.
func (l *Listener) lookAgain() {
	l.mu.Lock()
	l.room.Signal()
	l.mu.Unlock()
}

// evict ends a handshake to make room: of a peer that has shown nothing before one that has, the longest silent first. When the
// silence of none is long enough yet it returns the time until it looks worth asking again. The caller holds the lock.
func (l *Listener) evict() (wait time.Duration) {
	var v *attempt
	for a := range l.pending {
		if a.waiting && (v == nil || a.phase < v.phase || a.phase == v.phase && a.since.Before(v.since)) {
			v = a
		}
	}
	if v == nil {
		return stray.grace() // at the latest; what ends signals room
	}
	if wait = v.phase.grace() - time.Since(v.since); wait > 0 {
		return wait
	}
	delete(l.pending, v)
	v.cancel(ErrOverload)
	return 0
}

// deliver hands a connection over to Accept; false if the listener has been closed meanwhile.
func (l *Listener) deliver(a *attempt, c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, a)
	if l.closed {
		return false
	}
	l.ready = append(l.ready, c)
	close(l.wake)
	l.wake = make(chan struct{})
	return true
}

// forget drops a connection whose peer has gone before anybody took it.
func (l *Listener) forget(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.ready, c)
	if i < 0 {
		return
	}
	l.ready = slices.Delete(l.ready, i, i+1)
	l.room.Signal()
	l.work.Go(func() {
		l.discard(c, c.Err())
		l.dropped(c.PeerAddr, c.Err())
	})
}

func (l *Listener) discard(c *Conn, reason error) {
	_ = c.Close()
	c.Local.Abort(reason)
}

func (l *Listener) dropped(peer netip.AddrPort, reason error) {
	if errors.Is(reason, net.ErrClosed) {
		return
	}
	var h *HandshakeError
	if errors.As(reason, &h) && h.State == StateAccept {
		l.net.Log.Debug("peer dropped", "peer", peer, "reason", reason)
	} else {
		l.net.Log.Warn("peer dropped", "peer", peer, "reason", reason)
		l.mu.Lock()
		l.lastDrop = reason
		l.mu.Unlock()
	}
	l.net.Dropped(peer, reason)
}

package socketboot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// memNet is a network in memory, for virtual time.
type memNet struct {
	addr     netip.AddrPort
	incoming chan net.Conn
	closed   chan struct{}
	once     sync.Once
	fail     chan error // errors that Accept returns first
	nextPort uint16
	mu       sync.Mutex
}

type memConn struct {
	net.Conn
	remote net.Addr
}

func (c memConn) RemoteAddr() net.Addr { return c.remote }

func newMemNet() *memNet {
	return &memNet{addr: netip.MustParseAddrPort("192.0.2.1:4791"), incoming: make(chan net.Conn), closed: make(chan struct{}),
		fail: make(chan error, 16), nextPort: 10000}
}

func (n *memNet) Accept() (net.Conn, error) {
	select {
	case err := <-n.fail:
		return nil, err
	default:
	}
	select {
	case err := <-n.fail:
		return nil, err
	case c := <-n.incoming:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *memNet) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *memNet) Addr() net.Addr { return net.TCPAddrFromAddrPort(n.addr) }

func (n *memNet) dial(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	n.nextPort++
	from := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.9"), n.nextPort)
	n.mu.Unlock()
	ours, theirs := net.Pipe()
	select {
	case n.incoming <- memConn{theirs, net.TCPAddrFromAddrPort(from)}:
		return memConn{ours, net.TCPAddrFromAddrPort(a)}, nil
	case <-n.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// net makes a Net on n; drops are recorded in the result.
func (n *memNet) net() (Net, *drops) {
	d := &drops{}
	return Net{Bind: n.addr, Dial: n.dial, Listen: func(context.Context, netip.AddrPort) (net.Listener, error) { return n, nil },
		Interfaces: func() ([]Interface, error) { return nil, nil }, Dropped: d.add}, d
}

type drops struct {
	mu   sync.Mutex
	peer []netip.AddrPort
	why  []error
}

func (d *drops) add(peer netip.AddrPort, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.peer, d.why = append(d.peer, peer), append(d.why, why)
}

func (d *drops) reasons() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]error(nil), d.why...)
}

// owners gives each peer a fresh owner, and keeps them.
type owners struct {
	mu   sync.Mutex
	list []*fake
	make func() *fake
}

func newOwners(t testing.TB) *owners {
	s := loopback(t)
	return &owners{make: func() *fake { _, acc := s.ends(t, Layout225); return acc }}
}

func (o *owners) next(netip.AddrPort) AcceptorLocal {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.make()
	o.list = append(o.list, f)
	return f
}

func (o *owners) all() []*fake {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]*fake(nil), o.list...)
}

func (o *owners) aborts() (n int) {
	for _, f := range o.all() {
		n += f.aborts()
	}
	return n
}

func connector(t testing.TB) *fake {
	conn, _ := loopback(t).ends(t, Layout225)
	return conn
}

func serve(t testing.TB, n Net, o *owners) *Listener {
	t.Helper()
	l, err := n.Serve(t.Context(), o.next)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// pair connects a connector to l and accepts it.
func pair(t testing.TB, n Net, l *Listener) (conn, acc *Conn) {
	t.Helper()
	type result struct {
		c   *Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		c, err := n.Connect(t.Context(), l.Handle(), connector(t))
		done <- result{c, err}
	}()
	acc, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() {
		acc.Close()
		r.c.Close()
	})
	return r.c, acc
}

var local = Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}

func TestConnectAndServe(t *testing.T) {
	for _, bind := range []string{"127.0.0.1:0", "[::1]:0"} {
		n := Net{Bind: netip.MustParseAddrPort(bind)}
		if ln, err := net.Listen("tcp", bind); err != nil {
			t.Logf("no %s here: %v", bind, err)
			continue
		} else {
			ln.Close()
		}
		o := newOwners(t)
		l := serve(t, n, o)
		if c, err := l.TryAccept(); c != nil || err != nil {
			t.Fatalf("before anybody connected: %v, %v", c, err)
		}
		h := l.Handle()
		if err := h.Check(); err != nil || h.Addr().Addr() != n.Bind.Addr() {
			t.Fatalf("handle %s: %v", h.Addr(), err)
		}
		conn, acc := pair(t, n, l)
		if conn.Peer.DevName != "rxe0" || acc.Peer.DevName != "rxe1" || acc.Local != o.all()[0] || conn.PeerAddr != h.Addr() ||
			acc.PeerAddr.Addr() != n.Bind.Addr() || len(conn.PeerDevs.Devs) != 1 {
			t.Errorf("connector has %+v, acceptor %+v", conn, acc)
		}
		if conn.Err() != nil || acc.Err() != nil {
			t.Errorf("alive: %v, %v", conn.Err(), acc.Err())
		}
		conn.Close()
		if <-acc.Gone(); !errors.Is(acc.Err(), ErrPeerClosed) {
			t.Errorf("after the peer closed: %v", acc.Err())
		}
		if <-conn.Gone(); !errors.Is(conn.Err(), net.ErrClosed) || conn.Close() != nil {
			t.Errorf("after an own Close: %v", conn.Err())
		}
		acc.Close()
		if err := l.Close(); err != nil || l.Close() != nil {
			t.Error(err)
		}
		if _, err := l.Accept(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept after close: %v", err)
		}
		if _, err := l.TryAccept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept after close: %v", err)
		}
		if o.aborts() != 0 {
			t.Error("an owner was aborted")
		}
	}
}

// A deadline of the handshake ends nothing that comes after it: a peer whose last word came late is a peer for good.
func TestNoDeadlineOutlivesTheHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = 9900 * time.Millisecond
		mem := newMemNet()
		n, _ := mem.net()
		l := serve(t, n, newOwners(t))
		n.Dial = func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
			c, err := mem.dial(ctx, a)
			return &lateConn{Conn: c, wait: wait}, err
		}
		begun := time.Now()
		conn, acc := pair(t, n, l)
		if took := time.Since(begun); took < wait {
			t.Errorf("accepted after %v, before the connector was ready", took)
		}
		time.Sleep(24 * time.Hour)
		if conn.Err() != nil || acc.Err() != nil {
			t.Errorf("a day later: %v, %v", conn.Err(), acc.Err())
		}
		conn.Close()
		if <-acc.Gone(); !errors.Is(acc.Err(), ErrPeerClosed) {
			t.Error(acc.Err())
		}
		acc.Close()
		l.Close()
	})
}

// lateConn takes its time before the last bytes of a handshake, the connector's ready.
type lateConn struct {
	net.Conn
	wait time.Duration
}

func (c *lateConn) Write(b []byte) (int, error) {
	if len(b) == readyLen {
		time.Sleep(c.wait)
	}
	return c.Conn.Write(b)
}

func TestSurplusAfterReady(t *testing.T) {
	s := loopback(t)
	l := serve(t, local, newOwners(t))
	c, err := net.Dial("tcp", l.Handle().Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := s.speak(c, len(s.fromConn)); err != nil {
		t.Fatal(err)
	}
	acc, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer acc.Close()
	_, _ = c.Write([]byte{0})
	if <-acc.Gone(); !errors.Is(acc.Err(), ErrSurplus) {
		t.Errorf("got %v", acc.Err())
	}
	if _, err := c.Read(make([]byte, 1)); !closedByPeer(err) {
		t.Errorf("the connection is still open: %v", err)
	}
}

func TestResetIsTheEnd(t *testing.T) {
	s := loopback(t)
	l := serve(t, local, newOwners(t))
	c, err := net.Dial("tcp", l.Handle().Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.speak(c, len(s.fromConn)); err != nil {
		t.Fatal(err)
	}
	acc, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer acc.Close()
	_ = c.(*net.TCPConn).SetLinger(0)
	c.Close()
	if <-acc.Gone(); !errors.Is(acc.Err(), ErrPeerClosed) {
		t.Errorf("got %v", acc.Err())
	}
}

// A connector waits for a listener that comes up late, with NCCL's pauses, and always with a new socket.
func TestConnectRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		n, _ := mem.net()
		o := newOwners(t)
		l := serve(t, n, o)
		start := time.Now()
		var tries []time.Duration
		refuse := []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ETIMEDOUT, context.DeadlineExceeded}
		n.Dial = func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
			tries = append(tries, time.Since(start))
			if len(tries) <= len(refuse) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: refuse[len(tries)-1]}
			}
			return mem.dial(ctx, a)
		}
		conn, acc := pair(t, n, l)
		conn.Close()
		acc.Close()
		l.Close()
		if want := "[0s 100ms 300ms 600ms 1s]"; fmt.Sprint(tries) != want {
			t.Errorf("tried at %v, want %s", tries, want)
		}
	})
}

func TestConnectGivesUp(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	h := HandleFor(netip.MustParseAddrPort("192.0.2.1:4791"), Magic)
	for _, c := range []struct {
		name  string
		retry Retry
		err   error
		ctx   time.Duration
		is    error
		after time.Duration
		tries int
	}{
		{"NCCL's patience", Retry{}, refused, 0, syscall.ECONNREFUSED, 59500 * time.Millisecond, 35},
		{"own patience", Retry{Times: 2, Unit: time.Second}, refused, 0, syscall.ECONNREFUSED, 3 * time.Second, 3},
		{"no patience", Retry{Times: -1}, refused, 0, syscall.ECONNREFUSED, 0, 1},
		{"error that stays", Retry{}, &net.OpError{Op: "dial", Err: syscall.EACCES}, 0, syscall.EACCES, 0, 1},
		{"context", Retry{}, refused, 250 * time.Millisecond, context.DeadlineExceeded, 250 * time.Millisecond, 2},
		{"no answer", Retry{Times: 1}, nil, 0, context.DeadlineExceeded, 20100 * time.Millisecond, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			n := Net{Retry: c.retry, Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
				tries++
				if c.err == nil {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return nil, c.err
			}}
			ctx := t.Context()
			if c.ctx > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.ctx)
				defer cancel()
			}
			f := connector(t)
			start := time.Now()
			_, err := n.Connect(ctx, h, f)
			var he *HandshakeError
			if !errors.As(err, &he) || !errors.Is(err, c.is) || he.Peer != "192.0.2.1:4791" || time.Since(start) != c.after || tries != c.tries || f.aborts() != 1 {
				t.Errorf("%s: %v after %v and %d tries", c.name, err, time.Since(start), tries)
			}
		})
	}
}

func TestConnectChecksTheHandle(t *testing.T) {
	n := Net{Dial: func(context.Context, netip.AddrPort) (net.Conn, error) { t.Error("dialed"); return nil, io.EOF }}
	f := connector(t)
	if _, err := n.Connect(t.Context(), Handle{}, f); !errors.Is(err, ErrHandle) || f.aborts() != 1 {
		t.Errorf("got %v", err)
	}
}

func TestConnectCancelledInHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		n, _ := mem.net()
		go func() {
			c := <-mem.incoming
			_, _ = io.Copy(io.Discard, c) // listens for ever, says nothing
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f := connector(t)
		start := time.Now()
		if _, err := n.Connect(ctx, HandleFor(mem.addr, Magic), f); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second || f.aborts() != 1 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// Scopes of another host mean nothing here.
func TestLinkLocalZone(t *testing.T) {
	h := HandleFor(netip.MustParseAddrPort("[fe80::1%7]:4791"), Magic)
	if h.ScopeID() != 7 {
		t.Errorf("scope %d in the handle", h.ScopeID())
	}
	ll := []netip.Addr{netip.MustParseAddr("fe80::2")}
	up := net.FlagUp
	for _, c := range []struct {
		zone string
		ifs  []Interface
		want string
	}{
		{"eth9", nil, "[fe80::1%eth9]:4791"},
		{"", []Interface{{Name: "lo", Flags: up | net.FlagLoopback, Addrs: ll}, {Name: "eth0", Flags: up, Addrs: ll}}, "[fe80::1%eth0]:4791"},
		{"", []Interface{{Name: "eth0", Flags: up, Addrs: ll}, {Name: "eth1", Addrs: ll}}, "[fe80::1%eth0]:4791"},
		{"", []Interface{{Name: "eth0", Flags: up, Addrs: ll}, {Name: "eth1", Flags: up, Addrs: ll}}, ""},
		{"", nil, ""},
	} {
		var dialed string
		n := Net{Zone: c.zone, Interfaces: func() ([]Interface, error) { return c.ifs, nil },
			Dial: func(_ context.Context, a netip.AddrPort) (net.Conn, error) {
				dialed = a.String()
				return nil, errors.New("enough")
			}}
		_, err := n.Connect(t.Context(), h, connector(t))
		if dialed != c.want || err == nil {
			t.Errorf("zone %q, %v: dialed %q, want %q: %v", c.zone, c.ifs, dialed, c.want, err)
		}
	}
}

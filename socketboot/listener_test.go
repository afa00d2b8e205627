package socketboot

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// After each stray a good peer is served by the same listener.
func TestListenerSurvivesStrays(t *testing.T) {
	s := loopback(t)
	var d drops
	n := local
	n.Dropped = d.add
	o := newOwners(t)
	l := serve(t, n, o)
	addr := l.Handle().Addr().String()
	bad := bytes.Clone(s.fromConn)
	bad[helloLen+20+3568] = 9
	strays := []struct {
		name string
		say  []byte
		is   error
	}{
		{"scanner that closes at once", nil, ErrPeerClosed},
		{"half a magic", s.fromConn[:5], ErrPeerClosed},
		{"magic alone", s.fromConn[:8], ErrPeerClosed},
		{"wrong magic", []byte("GET / HTTP/1.1\r\n\r\n"), ErrMagic},
		{"wrong type", append(bytes.Clone(s.fromConn[:8]), 3, 0, 0, 0), ErrSocketType},
		{"garbage after hello", append(bytes.Clone(s.fromConn[:12]), 0xff, 0xff, 0xff, 0xff), ErrField},
		{"hello alone", s.fromConn[:12], ErrPeerClosed},
		{"device list alone", s.fromConn[:32], ErrPeerClosed},
		{"all at once", bad, ErrSurplus},
	}
	for i, stray := range strays {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(stray.say)
		if !errors.Is(stray.is, ErrPeerClosed) {
			_, _ = c.Read(make([]byte, 64)) // until it is dropped
		}
		c.Close()
		conn, acc := pair(t, n, l)
		conn.Close()
		acc.Close()
		for len(d.reasons()) <= i {
			time.Sleep(time.Millisecond)
		}
		if err := d.reasons()[i]; !errors.Is(err, stray.is) {
			t.Errorf("%s: %v", stray.name, err)
		}
	}
	for _, f := range o.all() {
		if f.aborts() > 0 && len(f.calls) > 2 {
			t.Errorf("a stray got as far as %v", f.calls)
		}
	}
}

// At the bound strays make room for new peers, the oldest first; peers that have shown who they are stay.
func TestListenerBound(t *testing.T) {
	s := loopback(t)
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		n, d := mem.net()
		n.MaxPending = 4
		l := serve(t, n, newOwners(t))
		var conns []net.Conn
		dial := func(say int) {
			c, err := mem.dial(t.Context(), mem.addr)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.speak(c, say); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
			time.Sleep(stray.grace() + time.Millisecond)
		}
		dial(helloLen + 20) // 10001 shows its device list
		dial(3)             // 10002, 10003 do not
		dial(0)
		dial(helloLen + 20) // 10004 does
		if len(d.reasons()) != 0 {
			t.Fatalf("dropped below the bound: %v", d.reasons())
		}
		dial(0) // 10005 takes the place of 10002
		dial(0) // 10006 that of 10003
		dial(0) // 10007 that of 10005
		synctest.Wait()
		want := []uint16{10002, 10003, 10005}
		for i, p := range d.peer {
			if i >= len(want) || p.Port() != want[i] || !errors.Is(d.why[i], ErrOverload) {
				t.Errorf("dropped %s: %v", p, d.why[i])
			}
		}
		if len(d.peer) != len(want) {
			t.Errorf("dropped %v", d.peer)
		}
		// Only peers that have shown who they are: now the one that was heard of first goes.
		dial(helloLen + 20) // for 10006, which is 10007's elder
		dial(helloLen + 20) // for 10007
		dial(helloLen + 20) // for 10001
		synctest.Wait()
		if p := d.peer[len(d.peer)-1]; len(d.peer) != 6 || p.Port() != 10001 {
			t.Errorf("dropped %v", d.peer)
		}
		conn, acc := pair(t, n, l)
		conn.Close()
		acc.Close()
		l.Close()
		for _, c := range conns {
			c.Close()
		}
	})
}

// Handshakes that our own side is working on, and connections that wait to be taken, are not dropped: new peers wait.
func TestListenerBackpressure(t *testing.T) {
	s := loopback(t)
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		n, d := mem.net()
		n.MaxPending = 2
		o := newOwners(t)
		release := make(chan struct{})
		plain := o.make
		o.make = func() *fake {
			f := plain()
			f.hook = func(call string) {
				if call == "Establish" {
					<-release
				}
			}
			return f
		}
		l := serve(t, n, o)
		results := make(chan error, 3)
		for range 3 {
			go func() {
				c, err := mem.dial(t.Context(), mem.addr)
				if err == nil {
					err = s.speak(c, len(s.fromConn))
				}
				results <- err
			}()
		}
		time.Sleep(5 * time.Second)
		if got := len(o.all()); got != 2 {
			t.Errorf("%d handshakes at once, want 2", got)
		}
		close(release)
		var taken []*Conn
		for range 3 {
			c, err := l.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			taken = append(taken, c)
		}
		for range 3 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if len(d.reasons()) != 0 {
			t.Errorf("dropped %v", d.reasons())
		}
		l.Close()
		for _, c := range taken {
			c.Close()
		}
	})
}

// Close ends what is under way and what nobody took.
func TestListenerClose(t *testing.T) {
	s := loopback(t)
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		n, d := mem.net()
		o := newOwners(t)
		l := serve(t, n, o)
		var conns []net.Conn
		for _, say := range []int{0, 5, helloLen, helloLen + 20, len(s.fromConn) - 4, len(s.fromConn)} {
			c, err := mem.dial(t.Context(), mem.addr)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.speak(c, say); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		waiting := make(chan error)
		taken, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := l.Accept(t.Context())
			waiting <- err
		}()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-waiting; !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept: %v", err)
		}
		for i, c := range conns[:5] {
			if _, err := c.Read(make([]byte, 1)); !closedByPeer(err) {
				t.Errorf("connection %d is open: %v", i, err)
			}
		}
		if taken.Err() != nil {
			t.Errorf("the connection that was taken: %v", taken.Err())
		}
		if got := o.aborts(); got != 2 || len(o.all()) != 3 {
			t.Errorf("%d of %d owners aborted, want 2 of 3", got, len(o.all()))
		}
		if len(d.reasons()) != 0 {
			t.Errorf("told of drops: %v", d.reasons())
		}
		taken.Close()
		conns[5].Close()
	})
}

func TestListenerCloseAbortsUntaken(t *testing.T) {
	s := loopback(t)
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		n, _ := mem.net()
		o := newOwners(t)
		l := serve(t, n, o)
		c, _ := mem.dial(t.Context(), mem.addr)
		if err := s.speak(c, len(s.fromConn)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		l.Close()
		if o.aborts() != 1 || !errors.Is(o.all()[0].aborted[0], net.ErrClosed) {
			t.Errorf("%d aborts", o.aborts())
		}
		if _, err := c.Read(make([]byte, 1)); !closedByPeer(err) {
			t.Errorf("connection is open: %v", err)
		}
		c.Close()
	})
}

// Close comes when a handshake has just succeeded and nobody could take its connection yet.
func TestListenerCloseAtTheLastMoment(t *testing.T) {
	s := loopback(t)
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		n, d := mem.net()
		o := newOwners(t)
		var l *Listener
		closed := make(chan error, 1)
		n.Listen = func(context.Context, netip.AddrPort) (net.Listener, error) {
			return atTheEnd{mem, func() {
				go func() { closed <- l.Close() }()
				synctest.Wait() // it waits for the handshake
			}}, nil
		}
		l = serve(t, n, o)
		c, _ := mem.dial(t.Context(), mem.addr)
		if err := s.speak(c, len(s.fromConn)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !closedByPeer(err) {
			t.Errorf("connection is open: %v", err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if o.aborts() != 1 || len(d.reasons()) != 0 {
			t.Errorf("%d aborts, told of drops: %v", o.aborts(), d.reasons())
		}
		c.Close()
	})
}

// atTheEnd calls what it has when a handshake on one of its connections is over: when no deadline is left.
type atTheEnd struct {
	net.Listener
	call func()
}

func (l atTheEnd) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return lastDeadline{c, l.call}, err
}

type lastDeadline struct {
	net.Conn
	call func()
}

func (c lastDeadline) SetDeadline(at time.Time) error {
	if at.IsZero() {
		c.call()
	}
	return c.Conn.SetDeadline(at)
}

// Close waits for an owner that is at work: when it returns, nobody touches the device any more.
func TestListenerCloseWaits(t *testing.T) {
	s := loopback(t)
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		n, _ := mem.net()
		o := newOwners(t)
		plain := o.make
		o.make = func() *fake {
			f := plain()
			f.hook = func(call string) {
				if call == "Establish" {
					time.Sleep(3 * time.Second)
				}
			}
			return f
		}
		l := serve(t, n, o)
		c, _ := mem.dial(t.Context(), mem.addr)
		go func() { _ = s.speak(c, len(s.fromConn)) }()
		time.Sleep(time.Second)
		start := time.Now()
		l.Close()
		if time.Since(start) != 2*time.Second || o.aborts() != 1 {
			t.Errorf("after %v, %d aborts", time.Since(start), o.aborts())
		}
		c.Close()
	})
}

// The time that Secure takes counts for the Hello deadline.
func TestHelloDeadlineWithSecure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		n, d := mem.net()
		n.Secure = func(_ context.Context, c net.Conn, _ bool) (net.Conn, error) {
			time.Sleep(4 * time.Second)
			return c, nil
		}
		l := serve(t, n, newOwners(t))
		c, _ := mem.dial(t.Context(), mem.addr)
		start := time.Now()
		if _, err := c.Read(make([]byte, 1)); !closedByPeer(err) || time.Since(start) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		c.Close()
		l.Close()
		if len(d.reasons()) != 1 {
			t.Errorf("drops: %v", d.reasons())
		}
	})
}

// Who waits in Accept for a peer with another layout learns of it.
func TestAcceptTellsOfDrops(t *testing.T) {
	s := goldens[8].load(t)
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		n, _ := mem.net()
		l := serve(t, n, newOwners(t))
		c, _ := mem.dial(t.Context(), mem.addr)
		go func() { _, _ = c.Write(s.fromConn[:helloLen+37]) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := l.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "look like NCCL 2.30.3-2.30.7") {
			t.Errorf("got %v", err)
		}
		c.Close()
		l.Close()
	})
}

// A peer that dies between ready and Accept is not handed out.
func TestGoneBeforeTaken(t *testing.T) {
	s := loopback(t)
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		n, d := mem.net()
		o := newOwners(t)
		l := serve(t, n, o)
		c, _ := mem.dial(t.Context(), mem.addr)
		if err := s.speak(c, len(s.fromConn)); err != nil {
			t.Fatal(err)
		}
		c.Close()
		synctest.Wait()
		if c, err := l.TryAccept(); c != nil || err != nil {
			t.Errorf("got %v, %v", c, err)
		}
		if o.aborts() != 1 || len(d.reasons()) != 1 || !errors.Is(d.reasons()[0], ErrPeerClosed) {
			t.Errorf("%d aborts, drops %v", o.aborts(), d.reasons())
		}
		l.Close()
	})
}

// Errors of accept pass; at too many open files a stray gives up its own.
func TestAcceptErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		n, d := mem.net()
		l := serve(t, n, newOwners(t))
		c, err := mem.dial(t.Context(), mem.addr)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for range 8 {
			mem.fail <- &net.OpError{Op: "accept", Err: syscall.EMFILE}
		}
		conn, acc := pair(t, n, l)
		if r := d.reasons(); len(r) != 1 || !errors.Is(r[0], ErrOverload) {
			t.Errorf("drops: %v", r)
		}
		conn.Close()
		acc.Close()
		c.Close()
		l.Close()
	})
}

func TestAcceptCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := newMemNet().net()
		l := serve(t, n, newOwners(t))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		l.Close()
	})
}

func TestServeRefuses(t *testing.T) {
	o := newOwners(t)
	boom := errors.New("address in use")
	for name, n := range map[string]Net{
		"no layout":     {Layout: 99},
		"no interface":  {Interfaces: func() ([]Interface, error) { return nil, nil }},
		"no list":       {Interfaces: func() ([]Interface, error) { return nil, boom }},
		"cannot listen": {Bind: local.Bind, Listen: func(context.Context, netip.AddrPort) (net.Listener, error) { return nil, boom }},
	} {
		if l, err := n.Serve(t.Context(), o.next); err == nil {
			l.Close()
			t.Errorf("%s: no error", name)
		}
	}
}

// A listener on all addresses tells connectors a real one.
func TestHandleIsNeverUnspecified(t *testing.T) {
	ifs := []Interface{{Name: "eth0", Index: 3, Flags: net.FlagUp, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}}
	n := Net{Bind: netip.MustParseAddrPort("0.0.0.0:0"), Interfaces: func() ([]Interface, error) { return ifs, nil }}
	l := serve(t, n, newOwners(t))
	if h := l.Handle(); h.Addr().Addr() != ifs[0].Addrs[0] || h.Check() != nil {
		t.Errorf("handle says %s", h.Addr())
	}
	ifs[0].Addrs[0] = netip.MustParseAddr("fe80::7")
	mem := newMemNet()
	n, _ = mem.net()
	n.Bind = netip.AddrPort{}
	n.Interfaces = func() ([]Interface, error) { return ifs, nil }
	var bound netip.AddrPort
	n.Listen = func(_ context.Context, a netip.AddrPort) (net.Listener, error) { bound = a; return mem, nil }
	l = serve(t, n, newOwners(t))
	if h := l.Handle(); h.ScopeID() != 3 || bound.Addr().Zone() != "eth0" {
		t.Errorf("scope %d, bound to %s", h.ScopeID(), bound)
	}
}

// Strays are debug messages, peers that knew the magic are warnings, and no key or address of memory is shown.
func TestDropsAreLogged(t *testing.T) {
	s := loopback(t)
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		n, _ := mem.net()
		n.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		l := serve(t, n, newOwners(t))
		for _, edit := range []func(b []byte){func(b []byte) { b[0]++ }, func(b []byte) { b[32+3560]++ }} {
			stray := session{fromConn: bytes.Clone(s.fromConn), fromAcc: s.fromAcc}
			edit(stray.fromConn)
			c, err := mem.dial(t.Context(), mem.addr)
			if err != nil {
				t.Fatal(err)
			}
			_ = stray.speak(c, len(s.fromConn))
			synctest.Wait()
			c.Close()
		}
		l.Close()
	})
	text := log.String()
	if !strings.Contains(text, "level=DEBUG msg=\"peer dropped\" peer=192.0.2.9:10001") || !strings.Contains(text, "wrong magic") ||
		!strings.Contains(text, "level=WARN msg=\"peer dropped\" peer=192.0.2.9:10002") || !strings.Contains(text, "fifoAddr") {
		t.Errorf("logged:\n%s", text)
	}
	for _, secret := range []string{"55b774f721", "94246429729153", "1a091", "106641"} {
		if strings.Contains(text, secret) {
			t.Errorf("log shows %s:\n%s", secret, text)
		}
	}
}

package nettransport

import (
	"bytes"
	"context"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/qp"
)

// recordedField is a field of a recorded handshake. Bytes ends early where the recording abbreviates.
type recordedField struct {
	off, n int
	name   string
	bytes  []byte
}

var fieldLine = regexp.MustCompile(`^ *(\d+) +(\d+)  (\S.*?)  +([0-9a-f]+)(\.\.| x \d+)?( |$)`)

// recordedHandshake is the fields of both directions and the handle.
func recordedHandshake(t testing.TB, file string) map[string][]recordedField {
	t.Helper()
	text, err := os.ReadFile("testdata/nccl-2.25.1/" + file)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string][]recordedField{}
	section := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		if head, ok := strings.CutPrefix(line, "== "); ok {
			section, _, _ = strings.Cut(head, " (")
			continue
		}
		m := fieldLine.FindStringSubmatch(line)
		if section == "" || m == nil {
			continue
		}
		off, _ := strconv.Atoi(m[1])
		n, _ := strconv.Atoi(m[2])
		b, err := hex.DecodeString(m[4])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if strings.HasPrefix(m[5], " x") {
			b = bytes.Repeat(b, n)
		}
		sections[section] = append(sections[section], recordedField{off, n, m[3], b})
	}
	return sections
}

// varies is the fields that differ from run to run.
var varies = regexp.MustCompile(`qpn$|fifoRkey$|fifoAddr$|connectAddr (port|IPv4)$`)

// wireConn keeps what goes both ways.
type wireConn struct {
	net.Conn
	mu        sync.Mutex
	out, back []byte
}

func (c *wireConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.mu.Lock()
	c.out = append(c.out, b[:n]...)
	c.mu.Unlock()
	return n, err
}

func (c *wireConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	c.back = append(c.back, b[:n]...)
	c.mu.Unlock()
	return n, err
}

// TestHandshakeBytes opens connections as NCCL did when its handshakes were recorded, and compares every byte of both ends.
func TestHandshakeBytes(t *testing.T) {
	for _, tt := range []struct {
		file      string
		qps, gid  int
		listenNIC int // 0: rxe0, 1: rxe1, 2: both
	}{
		{"handshake-qps1.txt", 1, 1, 0},
		{"handshake-qps4-gid0.txt", 4, 0, 0},
		{"handshake-merged1to2.txt", 1, 1, 2},
	} {
		t.Run(tt.file, func(t *testing.T) {
			rec := recordedHandshake(t, tt.file)
			fabric := memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{
				labDevice("rxe0", "fe80::6833:dff:fe91:b4f6", "10.9.0.1"), labDevice("rxe1", "fe80::a83b:afff:fe88:fe02", "10.9.0.2")}})
			open := func() *Transport {
				devs := map[string]*ibverbs.Context{}
				for _, name := range []string{"rxe0", "rxe1"} {
					dev, err := ibverbs.Open(name, ibverbs.WithDrivers(fabric), ibverbs.WithLogger(quiet))
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = dev.Close() })
					devs[name] = dev
				}
				r0, r1 := Port{Device: devs["rxe0"]}, Port{Device: devs["rxe1"]}
				c := Config{NICs: []NIC{{r0}, {r1}, {r0, r1}}, QPsPerConn: tt.qps, QP: []qp.Option{qp.WithGIDIndex(tt.gid)}, Net: localNet(), Log: quiet}
				tr, err := New(c)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tr.Close() })
				return tr
			}
			st, rt := open(), open()
			var wire *wireConn
			st.cfg.Net.Dial = func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
				var d net.Dialer
				c, err := d.DialContext(ctx, "tcp", a.String())
				wire = &wireConn{Conn: c}
				return wire, err
			}
			l, err := rt.Listen(t.Context(), tt.listenNIC)
			if err != nil {
				t.Fatal(err)
			}
			s, err := st.Connect(t.Context(), 1, l.Handle())
			if err != nil {
				t.Fatal(err)
			}
			r, err := l.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []interface{ Close() error }{s, r, l} {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			h := l.Handle()
			sameFields(t, "handle", h[:], rec["handle"])
			sameFields(t, "connector to acceptor", wire.out, rec["connector to acceptor"])
			sameFields(t, "acceptor to connector", wire.back, rec["acceptor to connector"])
		})
	}
}

func labDevice(name, link, v4 string) memdriver.DeviceConfig {
	gid := func(i int, a string) driver.GIDEntry {
		return driver.GIDEntry{GID: netip.MustParseAddr(a).As16(), Index: i, Type: driver.GIDTypeRoCEv2, NetDev: name + "net"}
	}
	return memdriver.DeviceConfig{Name: name, Ports: []memdriver.PortConfig{{ActiveMTU: driver.MTU1024, GIDs: []driver.GIDEntry{gid(0, link), gid(1, "::ffff:"+v4)}}}}
}

func sameFields(t *testing.T, what string, got []byte, fields []recordedField) {
	t.Helper()
	if len(fields) < 8 {
		t.Fatalf("%s: %d fields recorded", what, len(fields))
	}
	at := 0
	for _, f := range fields {
		if f.off != at {
			t.Fatalf("%s: the recording has a hole before %q at %d", what, f.name, f.off)
		}
		at += f.n
		if at > len(got) {
			t.Fatalf("%s: %d bytes, and %q is at %d", what, len(got), f.name, f.off)
		}
		b := got[f.off:at]
		if varies.MatchString(f.name) {
			if bytes.Equal(b, make([]byte, f.n)) {
				t.Errorf("%s: %q is 0", what, f.name)
			}
			continue
		}
		want := make([]byte, f.n)
		copy(want, f.bytes)
		if !bytes.Equal(b, want) {
			t.Errorf("%s: %q at %d is %x, want %x", what, f.name, f.off, b, want)
		}
	}
	if at != len(got) {
		t.Errorf("%s: %d bytes, want %d", what, len(got), at)
	}
}

// cutConn is a connection that ends after so many bytes were written.
type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Write(b []byte) (int, error) {
	n := min(len(b), c.left)
	c.left -= n
	n, err := c.Conn.Write(b[:n])
	if err == nil && c.left == 0 {
		err = net.ErrClosed
		_ = c.Conn.Close()
	}
	return n, err
}

// TestCutHandshake ends the connector's TCP connection in every state: both ends free what they had made, and the listener goes on.
func TestCutHandshake(t *testing.T) {
	f := newFabric(t, 2, 1, memdriver.Config{}, nil)
	st, rt := transport(t, f.send, Config{}), transport(t, f.recv, Config{Flush: true})
	l, err := rt.Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, after := range []int{3, 8, 12, 20, 32, 33, 2000, 3607, 3608, 3610} {
		st.cfg.Net.Dial = func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, "tcp", a.String())
			return &cutConn{c, after}, err
		}
		if c, err := st.Connect(t.Context(), 0, l.Handle()); err == nil {
			_ = c.Close()
			t.Errorf("connected with %d bytes", after)
		}
	}
	st.cfg.Net.Dial = nil
	s, err := st.Connect(t.Context(), 0, l.Handle())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	(&pair{t, s, r}).transfer([]int{1, 2}, 1)
}

// heldConn holds back what comes after so many bytes.
type heldConn struct {
	net.Conn
	left    int
	reached chan struct{} // closed when that is due
	release chan struct{}
}

func (c *heldConn) Write(b []byte) (int, error) {
	n := min(len(b), c.left)
	c.left -= n
	n, err := c.Conn.Write(b[:n])
	if n == len(b) || err != nil {
		return n, err
	}
	close(c.reached)
	<-c.release
	c.left = len(b) // the rest is less
	more, err := c.Conn.Write(b[n:])
	return n + more, err
}

// TestNothingBeforeReady holds the connector's ready back: until the acceptor has it there is no RecvComm on which anything could be
// posted, and afterwards all is as ever.
func TestNothingBeforeReady(t *testing.T) {
	const beforeReady = 3608
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	st, rt := transport(t, f.send, Config{}), transport(t, f.recv, Config{})
	l, err := rt.Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	held := &heldConn{left: beforeReady, reached: make(chan struct{}), release: make(chan struct{})}
	st.cfg.Net.Dial = func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", a.String())
		held.Conn = c
		return held, err
	}
	connected := make(chan *SendComm, 1)
	go func() {
		s, err := st.Connect(t.Context(), 0, l.Handle())
		if err != nil {
			t.Error(err)
		}
		connected <- s
	}()
	<-held.reached
	if r, err := l.TryAccept(); r != nil || err != nil {
		t.Errorf("accepted before the connector was ready: %v, %v", r, err)
	}
	close(held.release)
	s := <-connected
	if s == nil {
		return
	}
	defer s.Close()
	r, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	(&pair{t, s, r}).transfer([]int{1, 2}, 1)
}

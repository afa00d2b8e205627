package bootstrap

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/socketboot"
)

func TestID(t *testing.T) {
	for _, s := range []string{"192.0.2.1:4791", "[2001:db8::1]:4791"} {
		id := IDFor(netip.MustParseAddrPort(s), 0)
		if err := id.Check(); err != nil || id.Root().String() != s || id.Magic() != socketboot.Magic {
			t.Errorf("%v, %v", id.Root(), err)
		}
		if back, err := ParseID(id.String()); err != nil || back != id {
			t.Error(err)
		}
	}
	want := "6c9d4bfcf2b94a56" + "020012b7c0000201" + strings.Repeat("00", 112)
	if got := IDFor(netip.MustParseAddrPort("192.0.2.1:4791"), 0).String(); got != want {
		t.Errorf("got %s", got)
	}
	for what, id := range map[string]ID{
		"all 0":         {},
		"magic 0":       func() ID { i := IDFor(ip4, 1); i[0] = 0; return i }(),
		"port 0":        IDFor(ip4, 1),
		"0.0.0.0":       IDFor(netip.MustParseAddrPort("0.0.0.0:1"), 1),
		"neither":       {0: 1, 8: 77},
		"ff02::1 is no": IDFor(netip.MustParseAddrPort("[ff02::1]:1"), 1),
	} {
		if err := id.Check(); !errors.Is(err, ErrID) || !strings.Contains(err.Error(), strings.TrimSuffix(what, " is no")) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := ParseID("abc"); !errors.Is(err, ErrID) {
		t.Error(err)
	}
}

func TestBadConfig(t *testing.T) {
	good := IDFor(netip.MustParseAddrPort("127.0.0.1:1"), 1)
	for _, c := range []Config{{Size: 0}, {Size: 2, Rank: 2, ID: good}, {Size: 2, Rank: -1, ID: good}, {Size: 2}, {Size: MaxRanks + 1, ID: good},
		{Size: 2, ID: good, Net: loopback(t, netip.MustParseAddrPort("127.0.0.1:5000"))}} {
		if _, err := Join(t.Context(), c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}

// joinSoon joins in the background.
func joinSoon(t *testing.T, c Config) <-chan error {
	out := make(chan error, 1)
	go func() {
		m, err := Join(soon(t), c)
		if err == nil {
			t.Errorf("rank %d has met", c.Rank)
			_ = m.Close()
		}
		out <- err
	}()
	return out
}

func TestMissingRanksAreNamedToAll(t *testing.T) {
	n := loopback(t, ip4)
	r := root(t, RootConfig{Net: n, Timeout: 100 * time.Millisecond})
	one := joinSoon(t, Config{ID: r.ID(), Rank: 1, Size: 4, Net: n})
	two := joinSoon(t, Config{ID: r.ID(), Rank: 2, Size: 4, Net: n})
	for _, err := range []error{<-one, <-two} {
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "0, 3 of 4") {
			t.Errorf("got %v", err)
		}
	}
	<-r.Met()
	if !errors.Is(r.Err(), ErrMissing) {
		t.Error(r.Err())
	}
	// One that comes late is told so.
	if err := <-joinSoon(t, Config{ID: r.ID(), Rank: 3, Size: 4, Net: n}); err == nil || !strings.Contains(err.Error(), "after the end") {
		t.Errorf("got %v", err)
	}
}

func TestContradictionsAreToldToAll(t *testing.T) {
	n := loopback(t, ip4)
	for want, second := range map[string]Config{"believes in 4 ranks": {Rank: 1, Size: 4}, "came twice": {Rank: 0, Size: 3}} {
		r := root(t, RootConfig{Net: n})
		first := joinSoon(t, Config{ID: r.ID(), Rank: 0, Size: 3, Net: n})
		for came := 0; came == 0; time.Sleep(time.Millisecond) {
			r.mu.Lock()
			came = len(r.came)
			r.mu.Unlock()
		}
		second.ID, second.Net = r.ID(), n
		for _, err := range []error{<-joinSoon(t, second), <-first} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	}
}

func TestNobodyAtTheRoot(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddrPort(ln.Addr().String())
	_ = ln.Close()
	_, err = Join(t.Context(), Config{ID: IDFor(addr, 1), Size: 2, Net: loopback(t, ip4)})
	if err == nil || !strings.Contains(err.Error(), addr.String()) {
		t.Error(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	id := IDFor(netip.MustParseAddrPort(silent.Addr().String()), 1)
	_, err = Join(t.Context(), Config{ID: id, Size: 2, Net: loopback(t, ip4), Timeout: 50 * time.Millisecond})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), silent.Addr().String()) {
		t.Error(err)
	}
}

// A rank dies at each stage of the meeting; every other rank is told which.
func TestDeathWhileMeeting(t *testing.T) {
	const n, dead = 4, 2
	for stage := range 3 {
		t.Run([]string{"before the root answers", "before the ring", "in the ring, before the introduction"}[stage], func(t *testing.T) {
			network := loopback(t, ip4)
			r := root(t, RootConfig{Net: network})
			errs := make([]<-chan error, n)
			for rank := range n {
				if rank != dead {
					errs[rank] = joinSoon(t, Config{ID: r.ID(), Rank: rank, Size: n, Net: network})
				}
			}
			p := newPuppet(t)
			next := p.meet(r.ID(), dead, n, stage > 0)
			if stage == 2 {
				c := p.dial(next, r.ID().Magic())
				prev, err := p.ring.Accept()
				if err != nil {
					t.Fatal(err)
				}
				_ = prev.Close()
				_ = c.Close()
			}
			p.close()
			for rank := range n {
				if rank != dead {
					err := <-errs[rank]
					t.Logf("rank %d: %v", rank, err)
					if err == nil || !strings.Contains(err.Error(), "rank 2") || errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
			}
		})
	}
}

// puppet is a rank played by hand, with the bytes of NCCL.
type puppet struct {
	t          *testing.T
	root, ring net.Listener
}

func newPuppet(t *testing.T) *puppet {
	p := &puppet{t: t}
	for _, ln := range []*net.Listener{&p.root, &p.ring} {
		var err error
		if *ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(p.close)
	return p
}

func (p *puppet) close() { _, _ = p.root.Close(), p.ring.Close() }

func sockaddr(a net.Addr) string {
	port := a.(*net.TCPAddr).Port
	return "0200" + hex.EncodeToString([]byte{byte(port >> 8), byte(port)}) + "7f000001" + strings.Repeat("00", 20)
}

func (p *puppet) say(c net.Conn, hexes ...string) {
	p.t.Helper()
	b, err := hex.DecodeString(strings.Join(hexes, ""))
	if err == nil {
		_, err = c.Write(b)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *puppet) expect(c net.Conn, hexes ...string) {
	p.t.Helper()
	want := strings.Join(hexes, "")
	b := make([]byte, len(want)/2)
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, b); err != nil || hex.EncodeToString(b) != want {
		p.t.Fatalf("got  %x, %v\nwant %s", b, err, want)
	}
}

func (p *puppet) dial(a netip.AddrPort, magic uint64) net.Conn {
	p.t.Helper()
	c, err := net.Dial("tcp", a.String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close() })
	_, _ = c.Write(hello(magic))
	return c
}

func u32(n int) string {
	return hex.EncodeToString([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
}

// report tells the root of a rank.
func (p *puppet) report(id ID, rank, size int) net.Conn {
	p.t.Helper()
	c := p.dial(id.Root(), id.Magic())
	p.say(c, u32(172), u32(rank), u32(size), u32(0), u32(1), sockaddr(p.root.Addr()), sockaddr(p.ring.Addr()), strings.Repeat("00", 100))
	return c
}

// meet reports, closes at once as NCCL does and, if it stays so long, hears where the next rank is.
func (p *puppet) meet(id ID, rank, size int, stay bool) (next netip.AddrPort) {
	p.t.Helper()
	_ = p.report(id, rank, size).Close()
	if !stay {
		return
	}
	a, err := p.root.Accept()
	if err != nil {
		p.t.Fatal(err)
	}
	defer a.Close()
	p.expect(a, hex.EncodeToString(hello(id.Magic())), u32(128))
	b := make([]byte, 128)
	if _, err := io.ReadFull(a, b); err != nil {
		p.t.Fatal(err)
	}
	return getAddr(b)
}

// Our rank 0 and our root, and a rank 1 that says what NCCL says, byte for byte.
func TestBytes(t *testing.T) {
	n := loopback(t, ip4)
	r := root(t, RootConfig{Net: n})
	id := r.ID()
	hi := hex.EncodeToString(hello(id.Magic()))
	if len(hi) != 24 || hi[16:] != "01000000" {
		t.Fatal(hi)
	}
	type result struct {
		m   *Member
		err error
	}
	joined := make(chan result, 1)
	go func() {
		m, err := Join(soon(t), Config{ID: id, Rank: 0, Size: 2, Net: n})
		joined <- result{m, err}
	}()
	p := newPuppet(t)
	messages, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Close()

	ring := p.dial(p.meet(id, 1, 2, true), id.Magic())
	prev, err := p.ring.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer prev.Close()
	p.expect(prev, hi)
	p.say(ring, u32(64), sockaddr(messages.Addr()), strings.Repeat("00", 36))
	p.expect(prev, u32(64))
	b := make([]byte, 64)
	if _, err := io.ReadFull(prev, b); err != nil {
		t.Fatal(err)
	}
	j := <-joined
	if j.err != nil {
		t.Fatal(j.err)
	}
	defer j.m.Close()

	// A message each way.
	c := p.dial(getAddr(b), id.Magic())
	p.say(c, u32(8), u32(1), u32(0x105), u32(5), hex.EncodeToString([]byte("hello")))
	if got, err := j.m.Recv(soon(t), 1, 0x105); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	sent := make(chan error, 1)
	go func() { sent <- j.m.Send(soon(t), 1, 0x106, []byte{0xaa, 0xbb}) }()
	in, err := messages.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p.expect(in, hi, u32(8), u32(0), u32(0x106), u32(2), "aabb")
	_ = in.Close()
	if err := <-sent; err != nil {
		t.Error(err)
	}

	// An all-gather.
	gathered := make(chan string, 1)
	go func() {
		all, err := j.m.AllGather(soon(t), []byte{1, 2})
		gathered <- hex.EncodeToString(all[0]) + hex.EncodeToString(all[1])
		if err != nil {
			t.Error(err)
		}
	}()
	p.expect(prev, u32(2), "0102")
	p.say(ring, u32(3), "030405")
	if got := <-gathered; got != "0102030405" {
		t.Errorf("got %s", got)
	}

	// The goodbye: rank 0, left, after two all-gathers.
	go j.m.Close()
	p.expect(prev, "ffffffff", u32(0), u32(0), u32(2), u32(0), u32(0))
}

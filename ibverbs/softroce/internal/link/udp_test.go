package link

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
	"github.com/purerdma/purerdma/internal/racetest"
)

// loopback is an address that nobody else is likely to use.
func loopback(t testing.TB) netip.Addr {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8")
	}
	a := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(250)), byte(rand.IntN(256)), byte(1 + rand.IntN(250))})
	t.Log("address", a)
	return a
}

func listen(t testing.TB, cfg UDPConfig) *UDP {
	t.Helper()
	if !cfg.Addr.IsValid() {
		cfg.Addr = loopback(t)
	}
	u, err := ListenUDP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	return u
}

// kinds are the links on a real network, and their paths.
var kinds = []struct {
	name   string
	listen func(t testing.TB) Link
}{
	{"fast", udpKind(UDPConfig{})},
	{"fast, spinning", udpKind(UDPConfig{Spin: 100})},
	{"fast, unsegmented", udpKind(UDPConfig{Unsegmented: true})},
	{"plain", udpKind(UDPConfig{Plain: true})},
	{"packet socket", func(t testing.TB) Link { return listenPacket(t, loopback(t)) }},
}

func udpKind(cfg UDPConfig) func(t testing.TB) Link {
	return func(t testing.TB) Link { return listen(t, cfg) }
}

// listenPacket skips the test without the right to it.
func listenPacket(t testing.TB, addr netip.Addr) Link {
	t.Helper()
	p, err := ListenPacket(PacketConfig{Addr: addr})
	if errors.Is(err, syscall.EPERM) {
		t.Skip("packet sockets need CAP_NET_RAW")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// receive waits for n packets and calls each.
func receive(t testing.TB, l Link, n int, each func(d *Datagrams, pkt []byte)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	batch := make([]Datagrams, 4)
	for n > 0 {
		m, err := l.Recv(ctx, batch)
		if err != nil {
			t.Fatalf("%d packets missing: %v", n, err)
		}
		for i := range batch[:m] {
			for k := range batch[i].Len() {
				each(&batch[i], batch[i].Segment(k))
				n--
			}
		}
	}
	if n < 0 {
		t.Fatalf("%d packets too many", -n)
	}
}

func TestLinkCarries(t *testing.T) {
	for _, ka := range kinds {
		for _, kb := range kinds {
			t.Run(ka.name+" to "+kb.name, func(t *testing.T) {
				a, b := ka.listen(t), kb.listen(t)
				path := wire.NewPath(a.LocalAddr(), b.LocalAddr())
				batch := []Datagrams{stretch(b.LocalAddr(), 0, 1, 40), stretch(b.LocalAddr(), 1, 50, 1024), stretch(b.LocalAddr(), 51, 1, 0)}
				for i := range batch {
					for k := range batch[i].Len() {
						path.Seal(batch[i].Segment(k), uint16(k))
					}
				}
				// The last one of a run may be shorter.
				short := packet(7, 52, 100)
				path.Seal(short, 3)
				last := stretch(b.LocalAddr(), 53, 3, 200)
				for k := range last.Len() {
					path.Seal(last.Segment(k), uint16(k))
				}
				last.Data = append(last.Data, short...)
				batch = append(batch, last)
				sendAll(t, a, batch...)
				var psns []int
				receive(t, b, 56, func(d *Datagrams, pkt []byte) {
					if d.Addr != a.LocalAddr() {
						t.Fatalf("came from %v", d.Addr)
					}
					if _, ok := path.Check(pkt, 0); !ok {
						t.Errorf("PSN %d: ICRC", wire.BTH(pkt).PSN())
					}
					psns = append(psns, int(wire.BTH(pkt).PSN()))
				})
				slices.Sort(psns)
				if !slices.Equal(psns, upTo(56)) {
					t.Errorf("came: %v", psns)
				}
				if s := a.Stats(); s.SentPackets != 56 || s.SendFailed != 0 {
					t.Errorf("sender counted %+v", s)
				}
				if s := b.Stats(); s.RecvPackets != 56 || s.RecvDropped != 0 {
					t.Errorf("receiver counted %+v", s)
				}
			})
		}
	}
}

func TestUDPSegmentsOfASuperPacketKeepTheirPlaces(t *testing.T) {
	a, b := listen(t, UDPConfig{}), listen(t, UDPConfig{})
	path := wire.NewPath(a.LocalAddr(), b.LocalAddr())
	d := stretch(b.LocalAddr(), 0, Segments(1040), 1024)
	for k := range d.Len() {
		path.Seal(d.Segment(k), uint16(k))
	}
	sent := bytes.Clone(d.Data)
	sendAll(t, a, d)
	batch := make([]Datagrams, 4)
	n, err := b.Recv(t.Context(), batch)
	if n != 1 || err != nil {
		t.Fatalf("Recv gave %d, %v", n, err)
	}
	if batch[0].Len() != Segments(1040) {
		t.Skipf("this kernel merged %d of %d segments", batch[0].Len(), Segments(1040))
	}
	if !bytes.Equal(batch[0].Data, sent) {
		t.Error("bytes differ")
	}
	for k := range batch[0].Len() {
		if id, ok := path.Check(batch[0].Segment(k), uint16(k)); !ok || id != uint16(k) {
			t.Errorf("segment %d: ID %d, %v", k, id, ok)
		}
	}
}

func TestUDPIPv6(t *testing.T) {
	one, err := ListenUDP(UDPConfig{Addr: netip.IPv6Loopback()})
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		t.Skip("no IPv6 here: ", err)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		t.Skip("::1 is in use: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if err := one.ShowClass(); err != nil {
		t.Fatal(err)
	}
	path := wire.NewPath(one.LocalAddr(), one.LocalAddr())
	d := stretch(one.LocalAddr(), 0, 10, 256)
	d.TOS = 0x6a
	for k := range d.Len() {
		path.Seal(d.Segment(k), 0)
	}
	sendAll(t, one, d)
	receive(t, one, 10, func(d *Datagrams, pkt []byte) {
		if !path.Verify(pkt, 0) || d.Addr != one.LocalAddr() || d.TOS != 0x6a {
			t.Errorf("from %v, TOS %#x", d.Addr, d.TOS)
		}
	})
	if _, err := one.Send([]Datagrams{{Addr: netip.MustParseAddrPort("127.0.0.1:4791"), Data: packet(1, 1, 8)}}); !errors.Is(err, syscall.EAFNOSUPPORT) {
		t.Errorf("sending to IPv4: %v", err)
	}
}

func TestLinkCarriesTOS(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			if k.name == "plain" {
				t.Skip("package net does not tell it")
			}
			a, b := k.listen(t), k.listen(t)
			if c, ok := b.(Classifier); ok {
				if err := c.ShowClass(); err != nil {
					t.Fatal(err)
				}
			}
			for _, tos := range []uint8{0, 2, 0x6a} {
				d := stretch(b.LocalAddr(), 0, 4, 64)
				d.TOS = tos
				sendAll(t, a, d)
				receive(t, b, 4, func(d *Datagrams, _ []byte) {
					if d.TOS != tos {
						t.Errorf("TOS %#x came as %#x", tos, d.TOS)
					}
				})
			}
		})
	}
}

func TestUDPSources(t *testing.T) {
	a, b := listen(t, UDPConfig{Sources: 4}), listen(t, UDPConfig{})
	ports := map[uint16]bool{}
	for hash := range uint32(40) {
		src := a.Source(hash)
		if again := a.Source(hash); again != src {
			t.Fatalf("hash %d: %v, then %v", hash, src, again)
		}
		ports[src.Port()] = true
	}
	if len(ports) != 4 {
		t.Errorf("ports %v", ports)
	}
	var batch []Datagrams
	for port := range ports {
		if port < flowPorts {
			t.Errorf("port %d", port)
		}
		d := stretch(b.LocalAddr(), int(port), 3, 64)
		d.SrcPort = port
		batch = append(batch, d)
	}
	sendAll(t, a, batch...)
	receive(t, b, 12, func(d *Datagrams, pkt []byte) {
		psn := int(wire.BTH(pkt).PSN())
		if psn < int(d.Addr.Port()) || psn > int(d.Addr.Port())+2 {
			t.Errorf("PSN %d came from port %d", psn, d.Addr.Port())
		}
	})
	if _, err := a.Send([]Datagrams{{Addr: b.LocalAddr(), SrcPort: 1, Data: packet(1, 1, 8)}}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("foreign source port: %v", err)
	}
	if one := listen(t, UDPConfig{}); one.Source(77) != one.LocalAddr() {
		t.Error("loopback flows do not leave from 4791")
	}
}

func TestUDPFallsBackWithoutSegmentation(t *testing.T) {
	a, b := listen(t, UDPConfig{}), listen(t, UDPConfig{})
	path := wire.NewPath(a.LocalAddr(), b.LocalAddr())
	a.SetSegmentation(b.LocalAddr().Addr(), false)
	d := stretch(b.LocalAddr(), 0, 40, 64)
	for k := range d.Len() {
		path.Seal(d.Segment(k), uint16(k))
	}
	sendAll(t, a, stretch(b.LocalAddr(), 100, 1, 8), d, stretch(b.LocalAddr(), 101, 1, 8))
	var psns []int
	receive(t, b, 42, func(d *Datagrams, pkt []byte) {
		psn := int(wire.BTH(pkt).PSN())
		psns = append(psns, psn)
		if psn < 40 && !path.Verify(pkt, 0) {
			t.Errorf("PSN %d is not sealed for a packet sent alone", psn)
		}
	})
	if want := append(append([]int{100}, upTo(40)...), 101); !slices.Equal(psns, want) {
		t.Errorf("came: %v", psns)
	}
	if n := a.Stats().Unsegmented; n != 40 {
		t.Errorf("%d counted as sent alone", n)
	}
}

func TestLinkSendRefuses(t *testing.T) {
	to := netip.MustParseAddrPort("127.0.0.1:4791")
	v6 := netip.MustParseAddrPort("[::1]:4791")
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			a := k.listen(t)
			for _, c := range []struct {
				name string
				d    Datagrams
				want error
			}{
				{"too many segments", Datagrams{Addr: to, Seg: 16, Data: make([]byte, 16*65)}, syscall.EMSGSIZE},
				{"too long", Datagrams{Addr: to, Data: make([]byte, 70_000)}, syscall.EMSGSIZE},
				{"other family", Datagrams{Addr: v6, Data: make([]byte, 16)}, syscall.EAFNOSUPPORT},
				{"foreign port", Datagrams{Addr: to, SrcPort: 1, Data: make([]byte, 16)}, syscall.EINVAL},
			} {
				n, err := a.Send([]Datagrams{{Addr: to, Data: packet(1, 1, 8)}, c.d})
				var de *driver.Error
				if n != 1 || !errors.Is(err, c.want) || !errors.As(err, &de) || de.Peer != c.d.Addr.String() {
					t.Errorf("%s: %d, %v", c.name, n, err)
				}
			}
		})
	}
}

func TestLinkRecvEnds(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			u := k.listen(t)
			cause := errors.New("enough")
			ctx, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(time.Millisecond, func() { cancel(cause) })
			if _, err := u.Recv(ctx, make([]Datagrams, 1)); !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
				t.Errorf("context done: %v", err)
			}
			// The next one works.
			sendAll(t, u, stretch(u.LocalAddr(), 0, 1, 8))
			receive(t, u, 1, func(*Datagrams, []byte) {})
			time.AfterFunc(time.Millisecond, func() { u.Close() })
			if _, err := u.Recv(context.Background(), make([]Datagrams, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
			if _, err := u.TryRecv(make([]Datagrams, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("TryRecv after Close: %v", err)
			}
			if _, err := u.Send([]Datagrams{stretch(u.LocalAddr(), 0, 1, 8)}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Send after Close: %v", err)
			}
		})
	}
}

func TestUDPPortIsHeld(t *testing.T) {
	u := listen(t, UDPConfig{})
	_, err := ListenUDP(UDPConfig{Addr: u.LocalAddr().Addr()})
	var de *driver.Error
	if !errors.Is(err, syscall.EADDRINUSE) || !errors.As(err, &de) || !strings.Contains(de.Hint, "another address") {
		t.Errorf("the same address: %v", err)
	}
	all, err := net.ListenUDP("udp4", &net.UDPAddr{Port: wire.Port})
	if err != nil {
		// Our own socket is in the way of one for all addresses.
		u.Close()
		if all, err = net.ListenUDP("udp4", &net.UDPAddr{Port: wire.Port}); err != nil {
			t.Skip("port 4791 cannot be had for all addresses: ", err)
		}
	}
	defer all.Close()
	if _, err := ListenUDP(UDPConfig{Addr: loopback(t)}); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "rdma_rxe") {
		t.Errorf("held for all addresses: %v", err)
	}
}

func TestUDPBadAddress(t *testing.T) {
	for _, a := range []string{"0.0.0.0", "::", "224.0.0.1", "192.0.2.77"} {
		if u, err := ListenUDP(UDPConfig{Addr: netip.MustParseAddr(a)}); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("%s: %v", a, err)
			if err == nil {
				u.Close()
			}
		}
	}
	if _, err := ListenUDP(UDPConfig{}); err == nil {
		t.Error("no address was taken")
	}
}

func TestNetdevOf(t *testing.T) {
	devs := []Netdev{
		{Name: "lo", MTU: 65536, Loopback: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}},
		{Name: "e0", MTU: 1500, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8"), netip.MustParsePrefix("fe80::1/64")}},
		{Name: "e1", MTU: 9000, Prefixes: []netip.Prefix{netip.MustParsePrefix("fe80::1/64")}},
	}
	for addr, want := range map[string]string{
		"127.3.4.5": "lo", "::1": "lo", "10.0.0.1": "e0", "10.0.0.2": "", "fe80::1%e1": "e1", "fe80::1%e0": "e0", "::2": "",
	} {
		if d, ok := netdevOf(devs, netip.MustParseAddr(addr)); d.Name != want || ok != (want != "") {
			t.Errorf("%s: %q, %v; want %q", addr, d.Name, ok, want)
		}
	}
}

func TestLinkAllocatesNothing(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			u := k.listen(t)
			out, in := []Datagrams{stretch(u.LocalAddr(), 0, 1, 16), stretch(u.LocalAddr(), 1, 7, 64)}, make([]Datagrams, 4)
			step := func() {
				u.Send(out)
				for left := 8; left > 0; {
					n, err := u.Recv(context.Background(), in)
					if err != nil {
						t.Fatal(err)
					}
					for i := range in[:n] {
						left -= in[i].Len()
					}
				}
			}
			for range 10 {
				step()
			}
			if n := testing.AllocsPerRun(100, step); n > 0 && !racetest.Enabled {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func TestUDPLeaksNoDescriptor(t *testing.T) {
	count := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc here: ", err)
		}
		return len(e)
	}
	open := func() {
		u, err := ListenUDP(UDPConfig{Addr: loopback(t), Sources: 5})
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint32(5) {
			u.Source(i)
		}
		ListenUDP(UDPConfig{Addr: u.LocalAddr().Addr()})
		u.Close()
		if u.Source(1); u.Close() != nil {
			t.Error("second Close")
		}
	}
	open()
	before := count()
	for range 5 {
		open()
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors, then %d", before, after)
	}
}

// What a host lacks is told with what to do about it: loopback, or the address.
func TestAddressThatIsNotThere(t *testing.T) {
	for addr, want := range map[string]string{"127.0.0.1": "ip link set lo up", "::1": "ip link set lo up", "192.0.2.77": "no network device has this address"} {
		_, hint, err := localDevice(netip.MustParseAddr(addr), func() ([]Netdev, error) { return []Netdev{{Name: "lo", Loopback: true}}, nil }, nil)
		if !errors.Is(err, syscall.EADDRNOTAVAIL) || !strings.Contains(hint, want) {
			t.Errorf("%s: %v (%s)", addr, err, hint)
		}
	}
}

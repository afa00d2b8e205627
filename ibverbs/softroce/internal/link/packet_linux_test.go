package link

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
	"golang.org/x/sys/unix"
)

// R41a: what was sealed for an Identification arrives with it, and damage that a
// UDP socket cannot see is seen.
func TestPacketShowsTheID(t *testing.T) {
	a, b := listenPacket(t, loopback(t)), listenPacket(t, loopback(t))
	src := a.Source(7)
	path := wire.NewPath(src, b.LocalAddr())
	d := stretch(b.LocalAddr(), 0, 40, 64)
	d.SrcPort = src.Port()
	for k := range d.Len() {
		path.Seal(d.Segment(k), uint16(k))
	}
	wire.Renumber(d.Segment(9), 9, 10) // right for another one
	sendAll(t, a, d)
	if !b.ShowsID() {
		t.Fatal("it does not show the Identification")
	}
	receive(t, b, 40, func(d *Datagrams, pkt []byte) {
		psn := uint16(wire.BTH(pkt).PSN())
		if d.Addr != src || d.ID != psn {
			t.Errorf("packet %d came from %v with Identification %d", psn, d.Addr, d.ID)
		}
		if exact := path.Verify(pkt, d.ID); exact != (psn != 9) {
			t.Errorf("packet %d: exact check says %v", psn, exact)
		}
		if _, ok := path.Check(pkt, 0); !ok {
			t.Errorf("packet %d: no Identification fits", psn)
		}
	})
}

// The holder of the port keeps the kernel from answering for a port without a
// socket, and the address from being taken twice.
func TestPacketPortIsHeld(t *testing.T) {
	addr := loopback(t)
	p := listenPacket(t, addr)
	c, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: addr.AsSlice(), Port: wire.Port})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for i := range 3 { // an ICMP message would fail the next one
		if _, err := c.Write(packet(7, i, 8)); err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
		receive(t, p, 1, func(*Datagrams, []byte) {})
	}
	if n, err := p.TryRecv(make([]Datagrams, 1)); n != 0 || err != nil {
		t.Errorf("%d came twice, %v", n, err)
	}
	for _, again := range []func() (Link, error){
		func() (Link, error) { return ListenPacket(PacketConfig{Addr: addr}) },
		func() (Link, error) { return ListenUDP(UDPConfig{Addr: addr}) },
	} {
		var de *driver.Error
		if _, err := again(); !errors.Is(err, syscall.EADDRINUSE) || !errors.As(err, &de) || !strings.Contains(de.Hint, "another address") {
			t.Errorf("the same address: %v", err)
		}
	}
}

func TestPacketIPv6(t *testing.T) {
	host := newNamespace(t) // everybody else's ::1 is one
	host.ip("link set lo up")
	p := host.packet(netip.IPv6Loopback())
	path := wire.NewPath(p.LocalAddr(), p.LocalAddr())
	d := stretch(p.LocalAddr(), 0, 10, 256)
	d.TOS = 0x6a
	for k := range d.Len() {
		path.Seal(d.Segment(k), 0)
	}
	sendAll(t, p, d)
	receive(t, p, 10, func(d *Datagrams, pkt []byte) {
		if !path.Verify(pkt, 0) || d.Addr != p.LocalAddr() || d.TOS != 0x6a {
			t.Errorf("from %v, TOS %#x", d.Addr, d.TOS)
		}
	})
}

// Between two hosts, as far as the kernel can tell, all pairs of links understand
// each other, also where something else holds the port.
func TestPacketBetweenHosts(t *testing.T) {
	for name, held := range map[string]bool{"free": false, "port held for all addresses": true} {
		t.Run(name, func(t *testing.T) {
			hostA, hostB := veth(t)
			if held {
				hostB.run(func() { holdPort(t) })
				var err error
				hostB.run(func() { _, err = ListenUDP(UDPConfig{Addr: vethB}) })
				if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "rdma_rxe") {
					t.Errorf("UDP: %v", err)
				}
			}
			for _, addrs := range [][2]netip.Addr{{vethA, vethB}, {vethA6, vethB6}} {
				b := hostB.packet(addrs[1])
				for kind, listen := range map[string]func(netip.Addr) Link{"packet": hostA.packet, "UDP": hostA.udp} {
					a := listen(addrs[0])
					t.Run(kind+" "+addrs[0].String(), func(t *testing.T) {
						exchange(t, a, b)
						exchange(t, b, a)
					})
					_ = a.Close()
				}
				_ = b.Close()
			}
		})
	}
}

// holdPort takes port 4791 as the kernel's Soft-RoCE does, and drops what comes.
func holdPort(t *testing.T) {
	for _, network := range []string{"udp4", "udp6"} {
		c, err := net.ListenUDP(network, &net.UDPAddr{Port: wire.Port})
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}

// exchange sends packets of all sizes and sees that each comes once.
func exchange(t *testing.T, from, to Link) {
	t.Helper()
	src := from.Source(11)
	path := wire.NewPath(src, to.LocalAddr())
	batch := []Datagrams{stretch(to.LocalAddr(), 0, 1, 0), stretch(to.LocalAddr(), 1, 40, 1024), stretch(to.LocalAddr(), 41, 15, 4096)}
	for i := range batch {
		batch[i].SrcPort = src.Port()
		for k := range batch[i].Len() {
			id := uint16(k)
			if to.LocalAddr().Addr().Is6() {
				id = 0
			}
			path.Seal(batch[i].Segment(k), id)
		}
	}
	var psns []int
	check := func(d *Datagrams, pkt []byte) {
		psn := int(wire.BTH(pkt).PSN())
		psns = append(psns, psn)
		if _, ok := path.Check(pkt, 0); !ok || d.Addr != src {
			t.Errorf("packet %d from %v: ICRC right: %v", psn, d.Addr, ok)
		}
	}
	sendAll(t, from, batch[0]) // few packets wait until the kernel knows its neighbour
	receive(t, to, 1, check)
	sendAll(t, from, batch[1:]...)
	receive(t, to, 55, check)
	if n, err := to.TryRecv(make([]Datagrams, 1)); n != 0 || err != nil {
		t.Errorf("%d more came, %v", n, err)
	}
	slices.Sort(psns)
	if !slices.Equal(psns, upTo(56)) {
		t.Errorf("came: %v", psns)
	}
}

func TestPacketTooLongForTheDevice(t *testing.T) {
	hostA, _ := veth(t)
	p := hostA.packet(vethA)
	if p.MTU() != 4200 {
		t.Errorf("MTU %d", p.MTU())
	}
	var de *driver.Error
	_, err := p.Send([]Datagrams{{Addr: netip.AddrPortFrom(vethB, wire.Port), Data: make([]byte, 4200)}})
	if !errors.Is(err, syscall.EMSGSIZE) || !errors.As(err, &de) || !strings.Contains(de.Hint, "path MTU") {
		t.Errorf("%v", err)
	}
}

// Without the capability the error says what to do.
func TestPacketNeedsTheRight(t *testing.T) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread has less rights than others
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&h, &none[0]); err != nil {
			done <- err
			return
		}
		_, err := ListenPacket(PacketConfig{Addr: netip.MustParseAddr("127.0.0.1")})
		done <- err
	}()
	var de *driver.Error
	if err := <-done; !errors.Is(err, os.ErrPermission) || !errors.As(err, &de) || !strings.Contains(de.Hint, "CAP_NET_RAW") {
		t.Errorf("%v", err)
	}
}

func TestPacketBadAddress(t *testing.T) {
	for _, a := range []string{"0.0.0.0", "::", "224.0.0.1", "192.0.2.77"} {
		if p, err := ListenPacket(PacketConfig{Addr: netip.MustParseAddr(a)}); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("%s: %v", a, err)
			if err == nil {
				_ = p.Close()
			}
		}
	}
}

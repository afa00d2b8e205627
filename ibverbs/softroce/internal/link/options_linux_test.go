package link

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// What a loopback cannot show: without these the kernel's Soft-RoCE drops our
// packets, for their Identification, or we never get its own over IPv6.
func TestUDPSocketOptions(t *testing.T) {
	for _, addr := range []netip.Addr{loopback(t), netip.IPv6Loopback()} {
		u, err := ListenUDP(UDPConfig{Addr: addr, Sources: 2})
		if err != nil {
			if addr.Is6() {
				t.Logf("not tried on IPv6: %v", err)
				continue
			}
			t.Fatal(err)
		}
		defer u.Close()
		port := u.Source(1).Port()
		for name, s := range map[string]*socket{"main": u.main, "source": u.socketOf(port)} {
			expect := func(what string, level, option, want int) {
				t.Helper()
				s.raw.Control(func(fd uintptr) {
					if got, err := unix.GetsockoptInt(int(fd), level, option); got != want || err != nil {
						t.Errorf("%v, %s socket: %s is %d, %v; want %d", addr, name, what, got, err, want)
					}
				})
			}
			if addr.Is4() {
				expect("IP_MTU_DISCOVER", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
			} else {
				expect("IPV6_MTU_DISCOVER", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
				if name == "main" {
					expect("UDP_NO_CHECK6_RX", unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1)
				}
			}
			s.raw.Control(func(fd uintptr) {
				if _, err := unix.Getpeername(int(fd)); err != unix.ENOTCONN {
					t.Errorf("%v, %s socket is connected: %v", addr, name, err)
				}
			})
		}
	}
}

// What the buffer has no room for is counted, and stays counted when the link is closed.
func TestDropsAreCounted(t *testing.T) {
	t.Run("UDP", func(t *testing.T) {
		countDrops(t, listen(t, UDPConfig{RecvBuffer: 1})) // the system's least
	})
	t.Run("packet socket", func(t *testing.T) {
		b, err := ListenPacket(PacketConfig{Addr: loopback(t), RecvBuffer: 1})
		if errors.Is(err, syscall.EPERM) {
			t.Skip("packet sockets need CAP_NET_RAW")
		}
		if err != nil {
			t.Fatal(err)
		}
		countDrops(t, b)
	})
}

func countDrops(t *testing.T, b Link) {
	a := listen(t, UDPConfig{})
	d := Datagrams{Addr: b.LocalAddr(), Data: packet(1, 1, 1024)}
	const sent = 200
	for range sent {
		sendAll(t, a, d)
	}
	batch, came := make([]Datagrams, recvBatch), 0
	for {
		n, err := b.TryRecv(batch)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		came += n
	}
	for _, when := range []string{"open", "asked again", "closed"} {
		if when == "closed" {
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if got := int(b.Stats().RecvDropped); came == 0 || came+got != sent {
			t.Errorf("%s: %d came, %d dropped, %d were sent", when, came, got, sent)
		}
	}
}

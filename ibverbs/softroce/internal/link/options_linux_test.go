package link

import (
	"net/netip"
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

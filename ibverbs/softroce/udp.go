package softroce

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
)

// udp is the real network: a socket at port 4791 of a local address.
type udp struct{}

func (udp) Open(addr netip.Addr) (Link, error) {
	if addr.IsValid() {
		return listenUDP(addr)
	}
	// On Linux all of 127.0.0.0/8 is there.
	for a := netip.AddrFrom4([4]byte{127, 0, 0, 1}); ; a = a.Next() {
		l, err := listenUDP(a)
		if !errors.Is(err, syscall.EADDRINUSE) || a.As4()[3] == 254 {
			return l, err
		}
	}
}

func listenUDP(addr netip.Addr) (Link, error) {
	l, err := link.ListenUDP(link.UDPConfig{Addr: addr})
	if err != nil {
		return nil, err
	}
	return l, nil
}

package softroce

import (
	"errors"
	"net/netip"
	"os"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
)

// linkEnv is the environment variable that says what the devices of a program which
// imports this package send through: udp, as without it, or packet.
const linkEnv = "PURERDMA_SOFTROCE_LINK"

// OnUDP is the network of Config without one: a UDP socket at port 4791 of a local
// address, which takes no right. A few more are opened to send from.
func OnUDP() Network { return sockets(listenUDP) }

// OnPacketSockets is a network for Config that sees IP packets whole, on Linux. It
// takes CAP_NET_RAW; without, opening a device fails with EPERM. It is for those who
// want damage on IPv4 to be found as surely as an adapter does, or whose port 4791
// the kernel's Soft-RoCE holds. UDP sockets are faster.
func OnPacketSockets() Network { return sockets(listenPacket) }

// networkFromEnv is Config.Network of the registered driver.
func networkFromEnv() Network {
	switch v := os.Getenv(linkEnv); v {
	case "", "udp":
		return OnUDP()
	case "packet":
		return OnPacketSockets()
	default:
		return sockets(func(netip.Addr) (Link, error) {
			return nil, &driver.Error{Op: "open", Object: "environment variable " + linkEnv + "=" + v, Err: syscall.EINVAL, Hint: "it is udp or packet"}
		})
	}
}

// sockets is a real network; the function listens at a local address.
type sockets func(netip.Addr) (Link, error)

func (listen sockets) Open(addr netip.Addr) (Link, error) {
	if addr.IsValid() {
		return listen(addr)
	}
	// On Linux all of 127.0.0.0/8 is there.
	for a := netip.AddrFrom4([4]byte{127, 0, 0, 1}); ; a = a.Next() {
		l, err := listen(a)
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

func listenPacket(addr netip.Addr) (Link, error) {
	return link.ListenPacket(link.PacketConfig{Addr: addr})
}

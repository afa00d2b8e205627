package softroce

import (
	"errors"
	"net/netip"
	"os"
	"strings"
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

// addrsEnv is the environment variable that says where the devices of such a program
// are: addresses of this host with commas between them.
const addrsEnv = "PURERDMA_SOFTROCE_ADDRS"

// addrsFromEnv is Config.Addrs of the registered driver.
func addrsFromEnv() (addrs []netip.Addr, err error) {
	v := os.Getenv(addrsEnv)
	if v == "" {
		return nil, nil
	}
	for s := range strings.SplitSeq(v, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(s))
		if err != nil {
			return nil, refusal(addrsEnv, v, "it is addresses of this host with commas between them, 192.0.2.1 or 192.0.2.1,fd00::1")
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

// fromEnv is the Config of the registered driver. What a variable says wrongly is
// told when a device is opened.
func fromEnv() Config {
	c := Config{Network: networkFromEnv(), Capture: captureFromEnv()}
	var err error
	if c.Addrs, err = addrsFromEnv(); err != nil {
		c.Network = refusing(err)
	}
	return c
}

func refusing(err error) Network {
	return sockets(func(netip.Addr) (Link, error) { return nil, err })
}

func refusal(variable, value, want string) error {
	return &driver.Error{Op: "open", Object: "environment variable " + variable + "=" + value, Err: syscall.EINVAL, Hint: want}
}

// networkFromEnv is Config.Network of the registered driver.
func networkFromEnv() Network {
	switch v := os.Getenv(linkEnv); v {
	case "", "udp":
		return OnUDP()
	case "packet":
		return OnPacketSockets()
	default:
		return refusing(refusal(linkEnv, v, "it is udp or packet"))
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

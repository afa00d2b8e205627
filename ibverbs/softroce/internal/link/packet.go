package link

import (
	"errors"
	"io/fs"
	"net/netip"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// PacketConfig of a link through packet sockets. Zero fields have defaults.
type PacketConfig struct {
	// Addr is a local address. A link-local IPv6 address needs its zone.
	Addr netip.Addr

	// RecvBuffer is the bytes to ask for, 0 for 8 MiB. With CAP_NET_ADMIN that is
	// granted, without it as to other sockets.
	RecvBuffer int

	// Netdevs lists the network devices; nil asks the system.
	Netdevs func() ([]Netdev, error)
	// Sys is that of UDPConfig.
	Sys fs.FS
}

const rawHint = "packet sockets need CAP_NET_RAW: run as root, or give the program the capability " +
	"(setcap cap_net_raw+ep FILE; docker run --cap-add NET_RAW), or run in a network namespace of its own (unshare -rn); " +
	"UDP sockets need no right"

func packetError(addr netip.Addr, err error, hint string) error {
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		hint = rawHint
	}
	return &driver.Error{Op: "open packet socket", Object: "address " + addr.String(), Err: rootErrno(err), Hint: hint}
}

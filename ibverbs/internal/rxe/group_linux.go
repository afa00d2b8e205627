package rxe

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// joinGroup makes net devices members of a multicast group until leave is called. A
// socket holds the membership; nothing is ever read from it.
func joinGroup(group netip.Addr, netDevs []int) (leave func() error, err error) {
	family := unix.AF_INET6
	if group.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	leave = func() error { return unix.Close(fd) }
	for _, index := range netDevs {
		if group.Is4() {
			err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(index)})
		} else {
			err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(index)})
		}
		if err != nil {
			return nil, errors.Join(err, leave())
		}
	}
	return leave, nil
}

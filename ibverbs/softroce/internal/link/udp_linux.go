package link

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// sendBatch is how many Datagrams of one socket go at once.
const sendBatch = 32

// dropAll is a filter that accepts no byte of any packet.
var dropAll = []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}

// setUp sets options in the order in which they were tried against the kernel's
// Soft-RoCE. Without fragmentation the Identification is 0; merging gives
// super-packets; the kernel's Soft-RoCE sends IPv6 without a UDP checksum.
func setUp(fd uintptr, cfg *UDPConfig, receives bool) error {
	type option struct{ level, name, value int }
	options := make([]option, 0, 8)
	recvBuffer := 0 // the smallest that there is
	if receives {
		recvBuffer = cfg.RecvBuffer
	}
	options = append(options,
		option{unix.SOL_SOCKET, unix.SO_RCVBUF, recvBuffer},
		option{unix.SOL_SOCKET, unix.SO_SNDBUF, cfg.SendBuffer})
	v4 := cfg.Addr.Is4()
	if v4 {
		options = append(options, option{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO})
	} else {
		options = append(options, option{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO})
	}
	if receives {
		if !cfg.Plain {
			options = append(options, option{unix.IPPROTO_UDP, unix.UDP_GRO, 1})
		}
		if !v4 {
			options = append(options, option{unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1})
		}
	}
	for _, o := range options {
		// UDP_GRO came with Linux 5.0; without it packets come one by one.
		if err := unix.SetsockoptInt(int(fd), o.level, o.name, o.value); err != nil &&
			!(o.name == unix.UDP_GRO && errors.Is(err, unix.ENOPROTOOPT)) {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if !receives {
		return os.NewSyscallError("setsockopt", unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(dropAll)), Filter: &dropAll[0]}))
	}
	return nil
}

// showClass has the type of service come with each message.
func showClass(fd uintptr, v4 bool) error {
	if v4 {
		return os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1))
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1))
}

// take takes the socket out of package net, but for the plain path.
func (s *socket) take() (err error) {
	if s.plain {
		s.conn = s.udp
		s.raw, err = s.udp.SyscallConn()
		return err
	}
	f, err := takeOver(s.udp)
	s.udp, s.conn, s.raw = nil, f, f
	return err
}

func granted(fd uintptr, cfg *UDPConfig) int {
	n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return cfg.RecvBuffer
	}
	return n
}

func newReceiver(u *UDP) receiver {
	if u.cfg.Plain {
		return newPlainReceiver(u)
	}
	return newFastReceiver(u)
}

func (s *socket) send(u *UDP, batch []Datagrams) (int, error) {
	if s.plain {
		return s.plainSend(u, batch)
	}
	st := s.spare.Swap(nil)
	if st == nil {
		st, _ = s.states.Get().(*sendState)
	}
	if st == nil {
		st = newSendState(s)
	}
	n, err := st.send(u, batch)
	st.forget()
	if !s.spare.CompareAndSwap(nil, st) {
		s.states.Put(st)
	}
	return n, err
}

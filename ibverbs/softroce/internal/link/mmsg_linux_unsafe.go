//go:build linux

package link

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of sendmmsg(2) and recvmmsg(2).
type mmsghdr struct {
	Hdr unix.Msghdr
	Len uint32
}

// mmsg is the messages of one such call with all that they point to. Nothing of
// it may move, so it is on the heap, and its headers are made once.
type mmsg struct {
	hdrs  []mmsghdr
	iovs  []unix.Iovec
	names []unix.RawSockaddrInet6 // or Inet4, which is shorter
	ctls  []control
}

// control has room for the control messages of one message: segment size, type
// of service, drop counter. Numbers make it aligned.
type control [12]uint64

func (m *mmsg) init(n, room int) {
	m.hdrs, m.iovs = make([]mmsghdr, n), make([]unix.Iovec, n)
	m.names, m.ctls = make([]unix.RawSockaddrInet6, n), make([]control, n)
	for i := range m.hdrs {
		h := &m.hdrs[i].Hdr
		h.Iov = &m.iovs[i]
		h.SetIovlen(1)
		m.iovs[i].SetLen(room)
		m.reset(i)
	}
}

// reset makes header i ready to receive. The kernel changes lengths in it.
func (m *mmsg) reset(i int) {
	h := &m.hdrs[i].Hdr
	h.Name, h.Namelen = (*byte)(unsafe.Pointer(&m.names[i])), unix.SizeofSockaddrInet6 // a byte pointer is what struct msghdr has
	h.Control = (*byte)(unsafe.Pointer(&m.ctls[i]))
	h.SetControllen(len(m.ctls[i]) * 8)
	h.Flags = 0
}

// send is sendmmsg of messages from to to. It never sleeps, so the scheduler is not
// told of it: who has to get a processor back after it may wait for 10 ms where
// goroutines poll, and hold locks meanwhile.
func (m *mmsg) send(fd uintptr, from, to int) (int, syscall.Errno) {
	// The system calls take addresses; hdrs stays reachable through m.
	if to == from+1 { // sendmsg does the same for less
		h := &m.hdrs[from]
		n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&h.Hdr)), unix.MSG_DONTWAIT)
		if errno != 0 {
			return 0, errno
		}
		h.Len = uint32(n)
		return 1, 0
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&m.hdrs[from])), uintptr(to-from), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// recv is recvmmsg of up to n messages. It never sleeps either.
func (m *mmsg) recv(fd uintptr, n int) (int, syscall.Errno) {
	// The system calls take addresses; hdrs stays reachable through m.
	if n == 1 {
		h := &m.hdrs[0]
		size, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&h.Hdr)), unix.MSG_DONTWAIT)
		if errno != 0 {
			return 0, errno
		}
		h.Len = uint32(size)
		return 1, 0
	}
	got, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&m.hdrs[0])), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(got), 0
}

// recvLone is recvfrom, for a message that has no control messages.
func (m *mmsg) recvLone(fd uintptr) (int, syscall.Errno) {
	h := &m.hdrs[0]
	size, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(h.Hdr.Iov.Base)), uintptr(h.Hdr.Iov.Len), unix.MSG_DONTWAIT,
		uintptr(unsafe.Pointer(h.Hdr.Name)), uintptr(unsafe.Pointer(&h.Hdr.Namelen)))
	if errno != 0 {
		return 0, errno
	}
	h.Len = uint32(size)
	return 1, 0
}

// empty says whether no message is there.
func (m *mmsg) empty(fd uintptr) bool {
	var b byte // the system call takes its address, and has returned when it dies
	_, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), 1, unix.MSG_DONTWAIT|unix.MSG_PEEK, 0, 0)
	return errno == unix.EAGAIN
}

// load makes message i.
func (m *mmsg) load(i int, scope uint32, d *Datagrams, data []byte, seg int) {
	m.iovs[i].Base = unsafe.SliceData(data)
	m.iovs[i].SetLen(len(data))
	h := &m.hdrs[i].Hdr
	h.Namelen = setName(&m.names[i], scope, d.Addr)
	room := unsafe.Slice((*byte)(unsafe.Pointer(&m.ctls[i])), len(m.ctls[i])*8) // control messages are bytes of several types
	n := 0
	if seg > 0 {
		n += putControl(room[n:], unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2, uint32(seg))
	}
	if d.TOS != 0 {
		if d.Addr.Addr().Is4() {
			n += putControl(room[n:], unix.IPPROTO_IP, unix.IP_TOS, 4, uint32(d.TOS))
		} else {
			n += putControl(room[n:], unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 4, uint32(d.TOS))
		}
	}
	h.Control = nil
	if n > 0 {
		h.Control = &room[0]
	}
	h.SetControllen(n)
}

// setName writes the address of a message and returns how long it is.
func setName(name *unix.RawSockaddrInet6, scope uint32, to netip.AddrPort) uint32 {
	port := swapped(to.Port())
	if to.Addr().Is4() {
		// An IPv4 address goes into the room of an IPv6 one, which is longer.
		*(*unix.RawSockaddrInet4)(unsafe.Pointer(name)) = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: port, Addr: to.Addr().As4()}
		return unix.SizeofSockaddrInet4
	}
	*name = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: port, Addr: to.Addr().As16()}
	if to.Addr().IsLinkLocalUnicast() {
		name.Scope_id = scope
	}
	return unix.SizeofSockaddrInet6
}

// lone sends single packets that have no control messages by sendto, which copies less
// than sendmsg, and mostly to the peer of the one before.
type lone struct {
	to      netip.AddrPort
	name    unix.RawSockaddrInet6
	nameLen uint32
}

// address sets the peer.
func (l *lone) address(to netip.AddrPort, scope uint32) {
	if l.to != to {
		l.to, l.nameLen = to, setName(&l.name, scope, to)
	}
}

// send never sleeps, like mmsg.send. l is on the heap, and so is b or it is not Go memory.
func (l *lone) send(fd uintptr, b []byte) syscall.Errno {
	// The system call takes addresses of what l and b keep reachable.
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT,
		uintptr(unsafe.Pointer(&l.name)), uintptr(l.nameLen))
	return errno
}

// swapped is a port between Go's order and that of struct sockaddr, which has
// the most significant byte first on every machine.
func swapped(port uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], port)
	return binary.NativeEndian.Uint16(b[:])
}

// source is where message i came from; false if that or the data was cut off.
func (m *mmsg) source(i int, from *netip.AddrPort) bool {
	h := &m.hdrs[i].Hdr
	if m.cutOff(i) {
		return false
	}
	name := &m.names[i]
	port := swapped(name.Port)
	switch {
	case name.Family == unix.AF_INET && h.Namelen >= unix.SizeofSockaddrInet4:
		a := (*unix.RawSockaddrInet4)(unsafe.Pointer(name)) // the kernel wrote this type
		*from = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), port)
	case name.Family == unix.AF_INET6 && h.Namelen >= unix.SizeofSockaddrInet6:
		*from = netip.AddrPortFrom(netip.AddrFrom16(name.Addr).Unmap(), port)
	default:
		return false
	}
	return true
}

// putControl writes one control message at the start of b and returns the room
// it takes.
func putControl(b []byte, level, typ int32, size int, value uint32) int {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0])) // control messages begin with this header
	h.Level, h.Type = level, typ
	h.SetLen(unix.CmsgLen(size))
	data := b[unix.CmsgLen(0):]
	if size == 2 {
		binary.NativeEndian.PutUint16(data, uint16(value))
	} else {
		binary.NativeEndian.PutUint32(data, value)
	}
	return unix.CmsgSpace(size)
}

// nextControl is the first control message of b and what follows it; nil if there
// is none.
func nextControl(b []byte) (h *unix.Cmsghdr, data, rest []byte) {
	if len(b) < unix.SizeofCmsghdr {
		return nil, nil, nil
	}
	h = (*unix.Cmsghdr)(unsafe.Pointer(&b[0])) // control messages begin with this header
	size := int(h.Len) - unix.CmsgLen(0)
	if size < 1 || int(h.Len) > len(b) {
		return nil, nil, nil
	}
	return h, b[unix.CmsgLen(0):h.Len], b[min(len(b), unix.CmsgSpace(size)):]
}

// received is the control messages of message i.
func (m *mmsg) received(i int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&m.ctls[i])), int(m.hdrs[i].Hdr.Controllen)) // control messages are bytes of several types
}

// drops is how many messages a socket's buffer had no room for, modulo 2^32: the last
// number of SO_MEMINFO (linux/sock_diag.h). It is 0 before Linux 4.12.
func drops(fd uintptr) uint32 {
	const numbers = 9 // SK_MEMINFO_DROPS and those before it
	var info [numbers]uint32
	size := uint32(unsafe.Sizeof(info))
	// The system call takes addresses of variables that live until it returns.
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 || size < numbers*4 {
		return 0
	}
	return info[numbers-1]
}

// controls reads the control messages of message i into d: segment size and type of
// service.
func (m *mmsg) controls(i int, d *Datagrams) {
	for h, data, rest := nextControl(m.received(i)); h != nil; h, data, rest = nextControl(rest) {
		switch {
		case h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO && len(data) >= 4:
			if seg := int(int32(binary.NativeEndian.Uint32(data))); seg > 0 && seg < len(d.Data) {
				d.Seg = seg
			}
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TOS:
			d.TOS = data[0]
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_TCLASS && len(data) >= 4:
			d.TOS = uint8(binary.NativeEndian.Uint32(data))
		}
	}
}

// auxiliary reads the control messages of message i of a packet socket: where the
// network header begins (struct tpacket_auxdata), -1 if that is not there.
func (m *mmsg) auxiliary(i int) (network int) {
	const netOffset = 14 // of tp_net
	network = -1
	for h, data, rest := nextControl(m.received(i)); h != nil; h, data, rest = nextControl(rest) {
		if h.Level == unix.SOL_PACKET && h.Type == unix.PACKET_AUXDATA && len(data) >= netOffset+2 {
			network = int(binary.NativeEndian.Uint16(data[netOffset:]))
		}
	}
	return network
}

// cutOff says whether the bytes of message i did not fit.
func (m *mmsg) cutOff(i int) bool { return m.hdrs[i].Hdr.Flags&unix.MSG_TRUNC != 0 }

package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
	"golang.org/x/sys/unix"
)

// Packet is a link that sees IP packets as they are on the network, which takes
// CAP_NET_RAW: on IPv4 the ICRC is checked with the Identification that came, not
// with any that fits, and port 4791 may be the kernel's Soft-RoCE's.
//
// Packets come through a packet socket behind a filter. It is bound to a protocol
// and to no network device, so it gets each packet once, where the IP layer gets
// it: behind bridges, bonds and VLANs, and over loopback what another address of
// this host sends. A firewall of this host comes later and does not stop them.
//
// Packets go through a raw IP socket, which takes a whole IP packet. Routes,
// neighbours, the sender's MAC address and the outgoing firewall stay the
// kernel's; a packet socket would need all of them done again here. Each packet is
// handed over by itself, for the kernel cuts no super-packets of such sockets:
// this link is slower than UDP.
//
// A UDP socket that drops all it gets holds port 4791 of the address. Without one
// the kernel would answer packets with ICMP port unreachable, and a second device
// could take the address. Where the port is held for all addresses, by the
// kernel's Soft-RoCE mostly, the link does without: the holder gets copies and
// drops them for their QP numbers.
//
// Super-packets of UDP senders on this machine need Linux 6.2: older kernels do
// not say how they are to be cut, and they are lost.
type Packet struct {
	addr    netip.AddrPort
	dev     Netdev
	scope   uint32
	granted int

	holder *socket // nil where another holds the port
	in     *os.File
	recv   *fastReceiver
	out    *net.IPConn
	rawOut syscall.RawConn
	states sync.Pool // of *packetSender
	stats  counters
	closed atomic.Bool
}

var _ Link = (*Packet)(nil)

// ListenPacket opens packet and raw socket for an address. The error is a
// *driver.Error whose hint says what is missing.
func ListenPacket(cfg PacketConfig) (Link, error) {
	cfg.Addr = cfg.Addr.Unmap()
	if cfg.RecvBuffer == 0 {
		cfg.RecvBuffer = defaultBuffer
	}
	dev, hint, err := localDevice(cfg.Addr, cfg.Netdevs, cfg.Sys)
	if err != nil {
		return nil, packetError(cfg.Addr, err, hint)
	}
	p := &Packet{addr: netip.AddrPortFrom(cfg.Addr.WithZone(""), wire.Port), dev: dev}
	if cfg.Addr.IsLinkLocalUnicast() {
		p.scope = uint32(dev.Index)
	}
	if hint, err := p.open(&cfg); err != nil {
		p.closeAll()
		return nil, packetError(cfg.Addr, err, hint)
	}
	p.recv = &fastReceiver{conn: p.in, stats: &p.stats}
	p.recv.open = p.openMessage
	p.recv.raw, err = p.in.SyscallConn()
	if err != nil {
		p.closeAll()
		return nil, packetError(cfg.Addr, err, "")
	}
	p.recv.init()
	return p, nil
}

// open makes the sockets. The holder comes before the socket that receives, so
// that no packet is answered.
func (p *Packet) open(cfg *PacketConfig) (hint string, err error) {
	if p.in, err = openPacketSocket(); err != nil {
		return "", err
	}
	p.holder, err = openSocket(&UDPConfig{Addr: cfg.Addr}, p.dev, wire.Port, false)
	if err != nil && !(errors.Is(err, syscall.EADDRINUSE) && wildcardHeld()) {
		return hintFor(err, cfg.Addr), err
	}
	network := "ip6:255"
	if cfg.Addr.Is4() {
		network = "ip4:255" // IPPROTO_RAW: packets with their headers
	}
	c, err := net.ListenPacket(network, cfg.Addr.String())
	if err != nil {
		return "", err
	}
	p.out = c.(*net.IPConn)
	if p.rawOut, err = p.out.SyscallConn(); err != nil {
		return "", err
	}
	return "", p.start(cfg)
}

// openPacketSocket makes one that gets nothing yet: it has no protocol.
func openPacketSocket() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	return os.NewFile(uintptr(fd), "packet socket"), nil
}

// start has the packet socket receive, behind its filter.
func (p *Packet) start(cfg *PacketConfig) error {
	raw, err := p.in.SyscallConn()
	if err != nil {
		return err
	}
	protocol := uint16(unix.ETH_P_IPV6)
	if cfg.Addr.Is4() {
		protocol = unix.ETH_P_IP
	}
	filter := roceTo(p.addr.Addr())
	if e := raw.Control(func(s uintptr) {
		fd := int(s)
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, cfg.RecvBuffer) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, cfg.RecvBuffer) // what is granted is read below
		}
		for _, o := range [...]struct{ level, name int }{
			{unix.SOL_PACKET, unix.PACKET_VNET_HDR}, {unix.SOL_PACKET, unix.PACKET_AUXDATA},
		} {
			if err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, o.level, o.name, 1)); err != nil {
				return
			}
		}
		if p.granted, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil {
			return
		}
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swapped(protocol)})
		}
	}); e != nil {
		return e
	}
	return err
}

// The header that PACKET_VNET_HDR puts before a packet (struct virtio_net_hdr).
const (
	vnetSize    = 10
	vnetGSOType = 1 // flags; type; header size (2); segment size (2); checksum
	vnetGSOSize = 4
	gsoNone     = 0
	gsoUDP      = 5    // VIRTIO_NET_HDR_GSO_UDP_L4
	gsoECN      = 0x80 // beside a type
)

// openMessage makes a Datagrams of message i: segment sizes, a link header, an IP
// packet.
func (p *Packet) openMessage(i int, d *Datagrams) bool {
	network := p.recv.msgs.auxiliary(i)
	b := d.Data
	if p.recv.msgs.cutOff(i) || network < 0 || len(b) < vnetSize+network {
		return false
	}
	gso := b[vnetGSOType] &^ gsoECN
	size := int(binary.NativeEndian.Uint16(b[vnetGSOSize:]))
	to, ok := openIP(b[vnetSize+network:], d)
	switch {
	case !ok, to != p.addr.Addr(), gso != gsoNone && gso != gsoUDP:
		return false
	case gso == gsoUDP && size > 0 && size < len(d.Data):
		d.Seg = size
	}
	return true
}

// LocalAddr is the address it was made for.
func (p *Packet) LocalAddr() netip.AddrPort { return p.addr }

// Netdev is the network device that has the address.
func (p *Packet) Netdev() Netdev { return p.dev }

// Source has a port for every hash modulo 16384: no socket is bound to them.
func (p *Packet) Source(hash uint32) netip.AddrPort { return flowSource(p.addr.Addr(), hash) }

// MTU is that of the network device when the link was made.
func (p *Packet) MTU() int { return p.dev.MTU }

// RecvBuffer is half of what the system granted: senders count as if packets came
// merged, and here each comes by itself, which is charged up to twice as much.
func (p *Packet) RecvBuffer() int { return p.granted / 2 }

// ShowsID is true: the ICRC can be checked in full.
func (p *Packet) ShowsID() bool { return true }

// TryRecv asks the system once.
func (p *Packet) TryRecv(batch []Datagrams) (int, error) {
	if len(batch) == 0 {
		return 0, nil
	}
	n, err := p.recv.try(batch)
	return n, p.closedOr(err)
}

// Recv sleeps until something comes.
func (p *Packet) Recv(ctx context.Context, batch []Datagrams) (int, error) {
	if len(batch) == 0 {
		return 0, nil
	}
	n, err := p.recv.wait(ctx, batch)
	return n, p.closedOr(err)
}

// closedOr is err, or how a Link says that it is closed.
func (p *Packet) closedOr(err error) error {
	if err != nil && p.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// Stats of all its sockets.
func (p *Packet) Stats() Stats {
	_ = p.recv.raw.Control(p.stats.countDrops) // when it is closed, what was counted stays
	return p.stats.read()
}

// Send hands packets over one by one. Segment k has Identification k.
func (p *Packet) Send(batch []Datagrams) (int, error) {
	if p.closed.Load() {
		return 0, net.ErrClosed
	}
	st, _ := p.states.Get().(*packetSender)
	if st == nil {
		st = newPacketSender(p)
	}
	defer p.states.Put(st)
	for i := range batch {
		if err := st.send(&batch[i]); err != nil {
			return i, p.closedOr(p.sendError(&batch[i], err))
		}
	}
	return len(batch), nil
}

func (p *Packet) sendError(d *Datagrams, err error) error {
	p.stats.sendFailed.Add(uint64(d.Len()))
	return sendError(p.addr.Addr(), d, err)
}

// Close closes all sockets.
func (p *Packet) Close() error {
	if !p.closed.Swap(true) {
		_ = p.recv.raw.Control(p.stats.countDrops)
		p.closeAll()
	}
	return nil
}

func (p *Packet) closeAll() {
	if p.in != nil {
		_ = p.in.Close()
	}
	if p.out != nil {
		_ = p.out.Close()
	}
	if p.holder != nil {
		_ = p.holder.conn.Close()
	}
}

// packetSender is what one sendmmsg needs, and the packets in it. It is used
// again, so that a send allocates nothing.
type packetSender struct {
	p       *Packet
	msgs    mmsg
	packets [sendBatch][]byte
	next    int
	count   int
	errno   syscall.Errno
	write   func(fd uintptr) bool // st.onReady, bound once
}

func newPacketSender(p *Packet) *packetSender {
	st := &packetSender{p: p}
	st.msgs.init(sendBatch, 0)
	st.write = st.onReady
	return st
}

// send sends all segments of d.
func (st *packetSender) send(d *Datagrams) error {
	local := st.p.addr
	switch {
	case d.Addr.Addr().Is4() != local.Addr().Is4():
		return syscall.EAFNOSUPPORT
	case len(d.Data) > MaxData, d.Len() > MaxSegments:
		return syscall.EMSGSIZE
	case d.SrcPort != 0 && d.SrcPort != wire.Port && d.SrcPort < flowPorts:
		return fmt.Errorf("source port %d is not the link's: %w", d.SrcPort, syscall.EINVAL)
	case d.SrcPort != 0:
		local = netip.AddrPortFrom(local.Addr(), d.SrcPort)
	}
	to := Datagrams{Addr: netip.AddrPortFrom(d.Addr.Addr(), 0)} // a raw socket has no ports
	for k := 0; k < d.Len(); {
		st.next, st.count = 0, 0
		for ; k < d.Len() && st.count < sendBatch; k++ {
			b := appendIP(st.packets[st.count][:0], local, d.Addr, d.TOS, uint16(k), d.Segment(k))
			st.packets[st.count] = b
			st.msgs.load(st.count, st.p.scope, &to, b, 0)
			st.count++
		}
		if err := st.push(d); err != nil {
			return err
		}
	}
	return nil
}

// push sends what was loaded. What the host has no memory for is lost like on any
// network.
func (st *packetSender) push(d *Datagrams) error {
	for st.next < st.count {
		from := st.next
		st.errno = 0
		err := st.p.rawOut.Write(st.write)
		for i := from; i < st.next; i++ {
			st.p.stats.sentPackets.Add(1)
			st.p.stats.unsegmented.Add(1)
			st.p.stats.sentBytes.Add(uint64(len(st.packets[i]) - ipHeaders(d.Addr.Addr())))
		}
		switch {
		case err != nil:
			return err
		case st.errno == unix.ENOBUFS:
			st.p.stats.sendFailed.Add(1)
			st.next++
		case st.errno != 0:
			return st.errno
		}
	}
	return nil
}

// onReady sends what it can, and says false when it is to be called again once
// there is room.
func (st *packetSender) onReady(fd uintptr) bool {
	for st.next < st.count {
		n, errno := st.msgs.send(fd, st.next, st.count)
		switch errno {
		case 0:
			st.next += n
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			st.errno = errno
			return true
		}
	}
	return true
}

// ipHeaders is the bytes before the payload of a UDP datagram.
func ipHeaders(a netip.Addr) int {
	if a.Is4() {
		return 20 + udpHeader
	}
	return 40 + udpHeader
}

package link

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// UDPConfig of a link through UDP sockets. Zero fields have defaults.
type UDPConfig struct {
	// Addr is a local address; any of 127.0.0.0/8 is one on Linux. A link-local
	// IPv6 address needs its zone.
	Addr netip.Addr

	// RecvBuffer and SendBuffer are bytes to ask for, 0 for 8 MiB. The system
	// grants less to an ordinary user (net.core.rmem_max) and Linux counts them
	// double: Link.RecvBuffer is what it came to.
	RecvBuffer, SendBuffer int

	// Sources is the number of sockets, and so of source ports, over which flows
	// are spread; they are opened as flows need them. 0 is 16, but 1 on
	// loopback, where there is but one way; 1 sends from port 4791.
	Sources int

	// Spin is how often Recv tries before it sleeps.
	Spin int

	// Plain takes the path of systems without sendmmsg, also on Linux.
	Plain bool

	// Unsegmented sends each packet by itself to all peers.
	Unsegmented bool

	// Netdevs lists the network devices; nil asks the system.
	Netdevs func() ([]Netdev, error)
	// Sys is /sys, where adapters that do RoCE in hardware are looked for; nil is
	// the real one.
	Sys fs.FS
}

const (
	defaultBuffer  = 8 << 20
	defaultSources = 16
	maxSources     = 64
)

// UDP is a link through UDP sockets.
//
// On Linux an unprivileged process is a full citizen of RoCE v2 with it. The
// sockets are bound and never connected, and fragmentation is forbidden: only
// then is the Identification that is inside the ICRC one that the sender knows,
// and only then do packets from any source port arrive. On other systems the
// Identification is whatever the system writes: there two softroce ends
// understand each other, an adapter may not.
type UDP struct {
	cfg  UDPConfig
	addr netip.AddrPort
	dev  Netdev

	main    *socket
	mu      sync.Mutex // for making sources
	sources []atomic.Pointer[socket]
	closed  bool

	recv receiver

	plainTo plainPeers
	classed atomic.Bool // ShowClass was called
	stats   counters
}

var _ Shared = (*UDP)(nil)

// counters are Stats that goroutines share.
type counters struct {
	sentPackets, sentBytes, recvPackets, recvBytes, sendFailed, recvDropped, unsegmented atomic.Uint64
}

// receiver is one of the two ways to receive.
type receiver interface {
	try(batch []Datagrams) (int, error)
	wait(ctx context.Context, batch []Datagrams) (int, error)
	close()
}

// awaiter is a receiver that can be asked while another goroutine waits.
type awaiter interface {
	await() error
	rouse()
}

// ListenUDP opens port 4791 at an address. The error is a *driver.Error whose
// hint says what to do when the port is held or the address is not there.
func ListenUDP(cfg UDPConfig) (*UDP, error) {
	fail := func(err error, hint string) (*UDP, error) {
		if errors.Is(err, syscall.EMFILE) {
			hint = "the process has too many files open: close some, or raise its limit (ulimit -n)"
		}
		return nil, &driver.Error{Op: "open UDP port 4791", Object: "address " + cfg.Addr.String(), Err: err, Hint: hint}
	}
	cfg.Addr = cfg.Addr.Unmap()
	dev, hint, err := localDevice(cfg.Addr, cfg.Netdevs, cfg.Sys)
	if err != nil {
		return fail(err, hint)
	}
	if cfg.RecvBuffer == 0 {
		cfg.RecvBuffer = defaultBuffer
	}
	if cfg.SendBuffer == 0 {
		cfg.SendBuffer = defaultBuffer
	}
	if cfg.Sources == 0 && !cfg.Addr.IsLoopback() {
		cfg.Sources = defaultSources
	}
	cfg.Sources = max(1, min(cfg.Sources, maxSources))
	u := &UDP{cfg: cfg, addr: netip.AddrPortFrom(cfg.Addr.WithZone(""), wire.Port), dev: dev}
	if u.main, err = openSocket(&u.cfg, dev, wire.Port, true); err != nil {
		return fail(rootErrno(err), hintFor(err, cfg.Addr))
	}
	u.recv = newReceiver(u)
	u.sources = make([]atomic.Pointer[socket], cfg.Sources)
	return u, nil
}

// rootErrno leaves out what package net says of it, which the driver.Error says
// as well.
func rootErrno(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

func hintFor(err error, addr netip.Addr) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && wildcardHeld():
		return "something holds the port for all addresses, most likely the kernel's Soft-RoCE: " +
			"use its device, or unload it (modprobe -r rdma_rxe), or run in a network namespace of its own (unshare -rn), " +
			"or send through packet sockets, which need CAP_NET_RAW (PURERDMA_SOFTROCE_LINK=packet)"
	case errors.Is(err, syscall.EADDRINUSE):
		return "a device is open at " + addr.String() + " already, in this process or another: take another address; on Linux any of 127.0.0.0/8 is there without set-up"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this host does not have the address"
	}
	return ""
}

// wildcardHeld says whether port 4791 is taken at an address that hardly
// anybody uses, and so presumably at all of them.
func wildcardHeld() bool {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 255, 47, 91), Port: wire.Port})
	if err != nil {
		return errors.Is(err, syscall.EADDRINUSE)
	}
	c.Close()
	return false
}

// LocalAddr is the address it is bound to.
func (u *UDP) LocalAddr() netip.AddrPort { return u.addr }

// Netdev is the network device that has the address.
func (u *UDP) Netdev() Netdev { return u.dev }

// MTU is that of the network device when the link was made.
func (u *UDP) MTU() int { return u.dev.MTU }

// RecvBuffer is what the system granted, as it counts.
func (u *UDP) RecvBuffer() int { return u.main.recvBuffer }

// ShowsID is false: a UDP socket does not.
func (u *UDP) ShowsID() bool { return false }

// Source opens a socket for the flow where it is the first on its port. Where
// none can be had, flows leave from port 4791.
func (u *UDP) Source(hash uint32) netip.AddrPort {
	if len(u.sources) == 1 {
		return u.addr
	}
	slot := &u.sources[hash%uint32(len(u.sources))]
	if s := slot.Load(); s != nil {
		return netip.AddrPortFrom(u.addr.Addr(), s.port)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if slot.Load() == nil && !u.closed {
		slot.Store(u.newSource(hash))
	}
	if s := slot.Load(); s != nil {
		return netip.AddrPortFrom(u.addr.Addr(), s.port)
	}
	return u.addr
}

// newSource tries some ports of the dynamic range, and falls back to 4791.
func (u *UDP) newSource(hash uint32) *socket {
	for try := range uint32(32) {
		port := flowPorts + (hash*2654435761>>8+try*257)%(1<<16-flowPorts)
		if s, err := openSocket(&u.cfg, u.dev, uint16(port), false); err == nil {
			return s
		}
	}
	return u.main
}

// socketOf is the one that sends from a port, nil if there is none.
func (u *UDP) socketOf(port uint16) *socket {
	if port == 0 || port == wire.Port {
		return u.main
	}
	for i := range u.sources {
		if s := u.sources[i].Load(); s != nil && s.port == port {
			return s
		}
	}
	return nil
}

// Send hands runs of the batch that leave from one socket to the system at
// once.
func (u *UDP) Send(batch []Datagrams) (int, error) {
	for i := 0; i < len(batch); {
		s := u.socketOf(batch[i].SrcPort)
		if s == nil {
			return i, u.sendError(&batch[i], fmt.Errorf("source port %d is not the link's: %w", batch[i].SrcPort, syscall.EINVAL))
		}
		j := i + 1
		for j < len(batch) && j-i < sendBatch && batch[j].SrcPort == batch[i].SrcPort {
			j++
		}
		if j == i+1 && s.sendLone(u, &batch[i]) {
			i++
			continue
		}
		n, err := s.send(u, batch[i:j])
		i += n
		if err != nil {
			return i, err
		}
	}
	return len(batch), nil
}

// check looks at what the kernel would refuse with a reason hard to understand.
func (u *UDP) check(d *Datagrams) error {
	switch {
	case d.Addr.Addr().Is4() != u.addr.Addr().Is4():
		return u.sendError(d, syscall.EAFNOSUPPORT)
	case len(d.Data) > MaxData, d.Len() > MaxSegments:
		return u.sendError(d, syscall.EMSGSIZE)
	}
	return nil
}

func (u *UDP) sendError(d *Datagrams, err error) error {
	u.stats.sendFailed.Add(uint64(d.Len()))
	return sendError(u.addr.Addr(), d, err)
}

// sendError is what a link says that could not send d.
func sendError(from netip.Addr, d *Datagrams, err error) error {
	if errors.Is(err, net.ErrClosed) {
		return net.ErrClosed
	}
	hint := ""
	switch {
	case errors.Is(err, syscall.EMSGSIZE):
		hint = "a packet is larger than the network device or the path takes: choose a smaller path MTU"
	case errors.Is(err, syscall.EPERM):
		hint = "a firewall on this host refuses the packet"
	case errors.Is(err, syscall.EAFNOSUPPORT):
		hint = "the peer's address is of the other IP version"
	}
	return &driver.Error{Op: "send", Object: "address " + from.String(), Peer: d.Addr.String(), Err: err, Hint: hint}
}

// TryRecv asks the system once.
func (u *UDP) TryRecv(batch []Datagrams) (int, error) {
	if len(batch) == 0 {
		return 0, nil
	}
	return u.recv.try(batch)
}

// Awaits is true but on the plain path.
func (u *UDP) Awaits() bool {
	_, ok := u.recv.(awaiter)
	return ok
}

// Await sleeps in Go's network poller.
func (u *UDP) Await() error {
	if r, ok := u.recv.(awaiter); ok {
		return r.await()
	}
	return errors.ErrUnsupported
}

// Rouse ends an Await.
func (u *UDP) Rouse() {
	if r, ok := u.recv.(awaiter); ok {
		r.rouse()
	}
}

// Recv tries as often as the configuration says and yields in between, then
// sleeps.
func (u *UDP) Recv(ctx context.Context, batch []Datagrams) (int, error) {
	for range u.cfg.Spin {
		if n, err := u.TryRecv(batch); n > 0 || err != nil {
			return n, err
		}
		if ctx.Err() != nil {
			break
		}
		runtime.Gosched()
	}
	if len(batch) == 0 {
		return 0, nil
	}
	return u.recv.wait(ctx, batch)
}

// ShowClass has the type of service of what comes told from now on. Each message costs
// more then, so it is not on from the start.
func (u *UDP) ShowClass() error {
	var err error
	u.classed.Store(true)
	if e := u.main.raw.Control(func(fd uintptr) { err = showClass(fd, u.addr.Addr().Is4()) }); e != nil {
		return e
	}
	return err
}

// Stats of all its sockets.
func (u *UDP) Stats() Stats {
	_ = u.main.raw.Control(u.stats.countDrops) // when it is closed, what was counted stays
	return u.stats.read()
}

// countDrops asks the system, whose number wraps.
func (c *counters) countDrops(fd uintptr) {
	for {
		before := c.recvDropped.Load()
		if c.recvDropped.CompareAndSwap(before, before+uint64(drops(fd)-uint32(before))) {
			return
		}
	}
}

// came counts what the system gave.
func (c *counters) came(d *Datagrams) {
	c.recvPackets.Add(uint64(d.Len()))
	c.recvBytes.Add(uint64(len(d.Data)))
}

func (c *counters) read() Stats {
	return Stats{
		SentPackets: c.sentPackets.Load(), SentBytes: c.sentBytes.Load(),
		RecvPackets: c.recvPackets.Load(), RecvBytes: c.recvBytes.Load(),
		SendFailed: c.sendFailed.Load(), RecvDropped: c.recvDropped.Load(),
		Unsegmented: c.unsegmented.Load(),
	}
}

// SetSegmentation says whether runs of packets to a peer go to the system at
// once. It is on, and goes off by itself where the system refuses them. It must
// be off where the adapter that cuts numbers Identifications otherwise than one
// by one from 0; IPv6 has none.
func (u *UDP) SetSegmentation(peer netip.Addr, on bool) { u.plainTo.set(peer, !on) }

// Close closes all sockets.
func (u *UDP) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil
	}
	u.closed = true
	_ = u.main.raw.Control(u.stats.countDrops)
	for i := range u.sources {
		if s := u.sources[i].Load(); s != nil && s != u.main {
			s.conn.Close()
		}
	}
	u.main.conn.Close()
	u.recv.close()
	return nil
}

// plainPeers are the peers to which packets go one by one.
type plainPeers struct {
	some  atomic.Bool
	mu    sync.RWMutex
	peers map[netip.Addr]bool
}

func (p *plainPeers) has(peer netip.Addr) bool {
	if !p.some.Load() {
		return false
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.peers[peer]
}

func (p *plainPeers) set(peer netip.Addr, plain bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers == nil {
		p.peers = make(map[netip.Addr]bool)
	}
	if plain {
		p.peers[peer] = true
	} else {
		delete(p.peers, peer)
	}
	p.some.Store(len(p.peers) > 0)
}

package shmtransport

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/internal/unixdial"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/transport/driver"
)

// Config of a Transport. The zero value is what most want.
type Config struct {
	// Addr is the Unix address at which descriptors are passed: a path, or an abstract name that begins with "@". "" is an abstract
	// name of its own. Ranks in different network namespaces need a path in a directory that they share.
	Addr string
	// Dir is where files lie that are used when no socket reaches: "" is /dev/shm.
	Dir string
	// GPU is the rank's GPU, nil without one; it stays the caller's, and open as long as the communicators. Each connection's memory is
	// registered with it, so that its kernels and copies reach what the other rank's GPU writes, also where GPUs do not reach each other's
	// memory. None of them may be at work on a connection that is closed.
	GPU gpu.Context
}

// Transport is SHM behind transport/driver, for one rank. Package transport looks at NCCL_SHM_DISABLE; this one does not.
type Transport struct {
	config Config

	mu       sync.Mutex
	listener *Listener
	arriving map[Token]*Connector // receiving ends that wait for their sender
	reached  map[string]error     // sockets that were tried
	files    bool                 // some connection is by file
	over     sync.WaitGroup
	cancel   context.CancelFunc
}

var _ driver.Transport = (*Transport)(nil)

// New makes a transport. Close it after the communicators that use it.
func New(c Config) *Transport {
	return &Transport{config: c, arriving: map[Token]*Connector{}, reached: map[string]error{}}
}

// Name is NCCL's.
func (t *Transport) Name() string { return "SHM" }

// Describe opens the socket on which this rank takes memory, and tells its address. Where there can be none, files are left.
func (t *Transport) Describe(self *driver.PeerInfo) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listener == nil {
		l, err := listenFor(t.config.Addr, newOptions(nil), t.admit)
		if err != nil {
			if t.config.Addr == "" { // a sandbox without Unix sockets
				return nil
			}
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		t.listener, t.cancel = l, cancel
		t.over.Go(func() { t.deliver(ctx, l) })
	}
	if addr := t.listener.Addr(); len(addr) <= driver.MaxSocket {
		self.Socket = addr
	}
	return nil
}

// Close ends listening. Connections stay. Where files were used it removes those that killed ranks have left, as MakeFile does.
func (t *Transport) Close() error {
	t.mu.Lock()
	l, cancel, files := t.listener, t.cancel, t.files
	t.listener, t.cancel, t.files = nil, nil, false
	t.mu.Unlock()
	if files {
		sweep(orDefaultDir(t.config.Dir))
	}
	if l == nil {
		return nil
	}
	cancel()
	err := l.Close()
	t.over.Wait()
	return err
}

// CanConnect wants one host, by NCCL_HOSTID and by boot id, one user, and either a socket that can be reached (tried by opening it) or
// the same /dev/shm, by its device number as NCCL has it.
func (t *Transport) CanConnect(self, peer *driver.PeerInfo) driver.Verdict {
	w, why := t.way(self, peer)
	if w == 0 {
		return driver.Verdict{Reason: why}
	}
	return driver.Verdict{OK: true, Reason: why}
}

// way is how the two share memory, or 0 and why they cannot. It is the same on both.
func (t *Transport) way(self, peer *driver.PeerInfo) (way, string) {
	switch {
	case !self.SameHost(peer):
		return 0, "different hosts"
	case self.BootID != peer.BootID:
		return 0, "different hosts: boot ids differ, whatever NCCL_HOSTID says"
	case self.UID != peer.UID:
		return 0, fmt.Sprintf("different users: %d and %d", self.UID, peer.UID)
	}
	socket := t.reach(self, peer)
	if socket == "" {
		return bySocket, ""
	}
	if self.ShmDev == 0 || self.ShmDev != peer.ShmDev {
		return 0, socket + "; no /dev/shm in common"
	}
	return byFile, "memory by a file in /dev/shm: " + socket
}

// reach is why no descriptor can be passed, or "".
func (t *Transport) reach(self, peer *driver.PeerInfo) string {
	if self.Socket == "" || peer.Socket == "" {
		return "a rank without a Unix socket"
	}
	abstract := strings.HasPrefix(self.Socket, "@")
	if abstract != strings.HasPrefix(peer.Socket, "@") {
		return "one socket is abstract, the other a path"
	}
	if abstract && self.NetNS != peer.NetNS {
		return "abstract sockets in different network namespaces"
	}
	if self.Socket == peer.Socket {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err, tried := t.reached[peer.Socket]
	if !tried {
		err = try(peer.Socket)
		t.reached[peer.Socket] = err
	}
	if err != nil {
		return "the peer's socket: " + err.Error()
	}
	return ""
}

// try opens a socket and closes it again.
func try(addr string) error {
	nc, err := net.DialTimeout("unixpacket", addr, time.Second)
	if unixdial.Full(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return nc.Close()
}

// Setup makes one end. The receiving end has a token or a file ready for its sender.
func (t *Transport) Setup(r driver.Request, out *driver.Blob) (driver.Connector, error) {
	w, why := t.way(r.Self, r.Peer)
	if w == 0 {
		return nil, fmt.Errorf("SHM with rank %d: %s", r.Peer.Rank, why)
	}
	c := &Connector{transport: t, peer: r.Peer.Socket, rank: r.Peer.Rank}
	c.mine = blob{send: r.Send, way: w, rings: !r.Self.HasGPU() && !r.Peer.HasGPU(), buffers: r.Buffers}
	for p, n := range r.Buffers {
		if n < 0 || n > maxExtra/4 {
			return nil, c.error(fmt.Errorf("buffer %v of %d bytes: %w", driver.Protocol(p), n, unix.EINVAL))
		}
	}
	if w == byFile {
		t.mu.Lock()
		t.files = true
		t.mu.Unlock()
	}
	if !r.Send {
		if err := c.prepare(t.config.Dir); err != nil {
			return nil, c.error(err)
		}
	}
	c.mine.encode(out)
	return c, nil
}

// admit finds the receiving end for which a sender dials.
func (t *Transport) admit(token Token) (options, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.arriving[token]
	if c == nil {
		return options{}, errToken
	}
	return c.options(), nil
}

// deliver hands connections to the receiving ends that they are for.
func (t *Transport) deliver(ctx context.Context, l *Listener) {
	for {
		conn, err := l.Accept(ctx)
		if err != nil {
			return
		}
		t.mu.Lock()
		c := t.arriving[conn.token]
		delete(t.arriving, conn.token)
		t.mu.Unlock()
		if c == nil || !c.arrive(conn) {
			_ = conn.Close()
		}
	}
}

func newToken() (t Token) {
	_, _ = rand.Read(t[:]) // it never fails
	return t
}

// forget takes back a token.
func (t *Transport) forget(token Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.arriving, token)
}

func (t *Transport) expect(c *Connector) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listener == nil {
		return errors.New("the transport is closed")
	}
	t.arriving[c.mine.token] = c
	return nil
}

// memory is the mapping of a connection's NCCL layout: what lies behind the rings of one file.
func (c *Connector) memory(fd int, g geometry) error {
	if g.extra != c.extra() {
		return fmt.Errorf("%w: %d bytes beside the rings, want %d", errGeometry, g.extra, c.extra())
	}
	b, err := mr.MapFile(fd, int64(g.rings()), int(g.extra))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all != nil || c.closed { // a second sender with the same token, or too late
		return errors.Join(errToken, b.Close())
	}
	c.all = b
	return nil
}

package shmtransport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/internal/cause"
	"github.com/purerdma/purerdma/internal/unixdial"
)

// What passes over the socket: one packet of the one that dials, with the memory's descriptor, one packet back, and at the end one
// byte from whoever closes in order. The socket stays open as long as the connection does: the kernel closes it when a process ends,
// however that ends.
//
//	0 magic (16), 16 version u32, 20 flags u32, 24 result u32, 28 zero, 32 token (16), 48 reason (208, text, NUL-padded)
const (
	packetSize   = 256
	packetMagic  = "purerdma shm hi\x01"
	flagBarriers = 1
	goodbye      = 1

	// HandshakeLimit bounds a handshake, and the wait for a listener whose queue is full, where the context does not end them sooner.
	HandshakeLimit = 5 * time.Second
)

type packet struct {
	barriers bool
	refused  bool
	token    Token
	reason   string
}

func (p packet) encode() []byte {
	b := make([]byte, packetSize)
	copy(b, packetMagic)
	binary.LittleEndian.PutUint32(b[16:], headerVersion)
	if p.barriers {
		b[20] = flagBarriers
	}
	if p.refused {
		b[24] = 1
	}
	copy(b[32:], p.token[:])
	copy(b[48:], p.reason)
	return b
}

var errHandshake = errors.New("handshake of shared memory")

func decodePacket(b []byte) (packet, error) {
	if len(b) != packetSize || string(b[:16]) != packetMagic {
		return packet{}, fmt.Errorf("%w: %d bytes that are no packet of it", errHandshake, len(b))
	}
	if v := binary.LittleEndian.Uint32(b[16:]); v != headerVersion {
		return packet{}, fmt.Errorf("%w: version %d, want %d: both processes need the same release", errHandshake, v, headerVersion)
	}
	text, _, _ := bytes.Cut(b[48:], []byte{0})
	printable := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, string(text))
	return packet{barriers: b[20]&flagBarriers != 0, refused: b[24] != 0, token: Token(b[32:48]), reason: printable}, nil
}

// Dial connects to a Listener's address. This side makes the memory.
func Dial(ctx context.Context, addr string, opts ...Option) (*Conn, error) {
	return dial(ctx, addr, newOptions(opts))
}

func dial(ctx context.Context, addr string, o options) (*Conn, error) {
	if ctx == nil {
		return nil, fmt.Errorf("shared memory with %s: %w", addr, cause.Of(ctx))
	}
	nc, err := unixdial.Packet(ctx, addr, time.Now().Add(HandshakeLimit))
	if err != nil {
		if why := cause.Of(ctx); why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
		return nil, fmt.Errorf("shared memory with %s: %w%s", addr, err, dialHint(err))
	}
	c, err := offer(ctx, nc, o)
	if err != nil {
		return nil, fmt.Errorf("shared memory with %s: %w", addr, err)
	}
	return c, nil
}

func dialHint(err error) string {
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
		return " (abstract addresses reach processes of the same network namespace only; a path works wherever its directory is seen)"
	}
	if unixdial.Full(err) {
		return " (the queue of its listener is full: is its process stopped?)"
	}
	return ""
}

// Offer makes a connection's memory and offers it to the process at the other end of nc, a Unix socket that keeps packets apart
// (SOCK_SEQPACKET), where Take takes it. nc is the connection's from here on, also after an error.
func Offer(ctx context.Context, nc *net.UnixConn, opts ...Option) (*Conn, error) {
	return offer(ctx, nc, newOptions(opts))
}

func offer(ctx context.Context, nc *net.UnixConn, o options) (*Conn, error) {
	return bounded(ctx, nc, func() (*Conn, error) { return offerMemory(nc, o) })
}

func offerMemory(nc *net.UnixConn, o options) (*Conn, error) {
	peer, err := checkPeer(nc, o)
	if err != nil {
		return nil, err
	}
	fd, span, err := makeMemfd(o.geometry)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // the mappings keep the memory
	mine := packet{barriers: barriers(), token: o.token}
	if err := o.use(fd, o.geometry); err != nil {
		return nil, errors.Join(err, span.Release())
	}
	if _, _, err = nc.WriteMsgUnix(mine.encode(), unix.UnixRights(fd), nil); err == nil {
		var p packet
		if p, err = answer(nc); err == nil {
			return newConn(span, o.geometry, true, !(mine.barriers && p.barriers), peer), nil
		}
	}
	return nil, errors.Join(err, span.Release())
}

// answer reads what the taking side says.
func answer(nc *net.UnixConn) (packet, error) {
	p, fd, err := read(nc)
	if err != nil {
		return p, err
	}
	if fd >= 0 {
		return p, errors.Join(fmt.Errorf("%w: an answer with a descriptor", errHandshake), unix.Close(fd))
	}
	if p.refused {
		return p, fmt.Errorf("%w: the peer refused: %s", errHandshake, p.reason)
	}
	return p, nil
}

// Take takes what Offer offers. nc is the connection's from here on, also after an error.
func Take(ctx context.Context, nc *net.UnixConn, opts ...Option) (*Conn, error) {
	o := newOptions(opts)
	return take(ctx, nc, o, func(t Token) (options, error) {
		if t != o.token {
			return o, errToken
		}
		return o, nil
	})
}

var errToken = fmt.Errorf("%w: another token", errHandshake)

// take is Take; admit decides by the token, and gives the options that go with it.
func take(ctx context.Context, nc *net.UnixConn, o options, admit func(Token) (options, error)) (*Conn, error) {
	return bounded(ctx, nc, func() (*Conn, error) { return takeMemory(nc, o, admit) })
}

func takeMemory(nc *net.UnixConn, o options, admit func(Token) (options, error)) (*Conn, error) {
	peer, err := checkPeer(nc, o)
	if err != nil {
		return nil, err
	}
	refuse := func(err error) error {
		_, e := nc.Write(packet{refused: true, reason: err.Error()}.encode())
		return errors.Join(err, e)
	}
	p, fd, err := read(nc)
	if errors.Is(err, syscall.EMFILE) {
		return nil, refuse(err) // the peer has done nothing wrong, and learns it from nobody else
	}
	if err != nil {
		return nil, err
	}
	if fd < 0 {
		return nil, fmt.Errorf("%w: an offer without a descriptor", errHandshake)
	}
	defer func() { _ = unix.Close(fd) }()
	mine := packet{barriers: barriers()}
	if o, err = admit(p.token); err != nil {
		return nil, refuse(err)
	}
	span, g, err := attachMemfd(fd)
	if err != nil {
		return nil, refuse(err)
	}
	if err := o.use(fd, g); err != nil {
		return nil, errors.Join(refuse(err), span.Release())
	}
	if _, err := nc.Write(mine.encode()); err != nil {
		return nil, errors.Join(err, span.Release())
	}
	c := newConn(span, g, false, !(mine.barriers && p.barriers), peer)
	c.token = p.token
	return c, nil
}

// bounded makes ctx, and HandshakeLimit, end what a handshake reads and writes on nc; after an error it closes nc. Nothing of the bounds is
// left on the connection, also where ctx ends as the handshake does.
func bounded(ctx context.Context, nc *net.UnixConn, handshake func() (*Conn, error)) (*Conn, error) {
	if ctx == nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errHandshake, cause.Of(ctx)), nc.Close())
	}
	_ = nc.SetDeadline(time.Now().Add(HandshakeLimit))
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		_ = nc.SetDeadline(time.Unix(1, 0))
	})
	c, err := handshake()
	if !stop() {
		<-fired
	}
	if err == nil {
		_ = nc.SetDeadline(time.Time{})
		return joined(c, nc), nil
	}
	if why := cause.Of(ctx); why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return nil, errors.Join(err, nc.Close())
}

// checkPeer asks the kernel who is at the other end.
func checkPeer(nc *net.UnixConn, o options) (Peer, error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var kind int
	var failed error
	if err := raw.Control(func(fd uintptr) {
		if kind, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TYPE); failed == nil {
			cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		}
	}); err != nil {
		return Peer{}, err
	}
	switch {
	case failed != nil:
		return Peer{}, os.NewSyscallError("getsockopt", failed)
	case kind != unix.SOCK_SEQPACKET:
		return Peer{}, fmt.Errorf("%w: a socket of type %d, want SOCK_SEQPACKET (unixpacket)", errHandshake, kind)
	case !slices.Contains(o.uids, cred.Uid):
		return Peer{}, fmt.Errorf("%w: the peer, process %d, is user %d; allowed are %v (WithUsers): %w", errHandshake, cred.Pid, cred.Uid, o.uids, unix.EPERM)
	}
	return Peer{PID: int(cred.Pid), UID: cred.Uid}, nil
}

// read reads one packet and the descriptor that came with it, -1 = none.
func read(nc *net.UnixConn) (p packet, fd int, err error) {
	b, oob := make([]byte, packetSize+1), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, _, err := nc.ReadMsgUnix(b, oob)
	fds := descriptors(oob[:oobn])
	if err == nil || errors.Is(err, io.EOF) {
		switch {
		case n == 0:
			err = fmt.Errorf("%w: the peer closed: %w", errHandshake, io.ErrUnexpectedEOF)
		case flags&unix.MSG_CTRUNC != 0 && len(fds) == 0: // one was sent, and this process may have no more
			err = fmt.Errorf("%w: the descriptor of the memory could not be taken: %w (ulimit -n)", errHandshake, syscall.EMFILE)
		case flags&unix.MSG_CTRUNC != 0 || len(fds) > 1:
			err = fmt.Errorf("%w: more than one descriptor", errHandshake)
		default:
			p, err = decodePacket(b[:n])
		}
	}
	if err == nil && len(fds) == 1 {
		return p, fds[0], nil
	}
	for _, f := range fds {
		_ = unix.Close(f)
	}
	return p, -1, err
}

// descriptors is those that came with a packet; the kernel has opened them, whatever the packet is.
func descriptors(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

// socket is the link of a connection by a Unix socket.
type socket struct {
	nc   *net.UnixConn
	life *life
	over sync.WaitGroup
}

// joined gives a connection its link. A goroutine reads the socket until it ends; it costs no processor meanwhile.
func joined(c *Conn, nc *net.UnixConn) *Conn {
	s := &socket{nc: nc, life: c.life}
	c.link = s
	s.over.Go(s.watch)
	return c
}

func (s *socket) watch() {
	var b [2]byte
	switch n, err := s.nc.Read(b[:]); {
	case n == 1 && b[0] == goodbye:
		s.life.end(done, nil)
	case n > 0:
		s.life.end(broken, protocolError("%d bytes on the socket, beginning with %#x", n, b[0]))
	case !errors.Is(err, net.ErrClosed):
		s.life.end(gone, nil)
	}
}

// close implements [link].
func (s *socket) close() error {
	_, err := s.nc.Write([]byte{goodbye})
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EAGAIN) {
		err = nil // it went first, or reads nothing: what it learns is that we are gone
	}
	err = errors.Join(err, s.nc.Close())
	s.over.Wait()
	return err
}

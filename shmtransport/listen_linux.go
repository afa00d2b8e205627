package shmtransport

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/purerdma/purerdma/internal/cause"
)

// Listener waits for processes that Dial. Handshakes go on in the background, each for itself, so that one that says nothing delays no
// other.
type Listener struct {
	l      *net.UnixListener
	o      options
	ctx    context.Context
	cancel context.CancelFunc
	admit  func(Token) (options, error)
	ready  chan *Conn
	over   sync.WaitGroup
}

// pending bounds the handshakes that go on at a time. The kernel keeps those after them waiting.
const pending = 64

// Listen listens at a Unix address: a path, an abstract name that begins with "@", or "" for an abstract name that nobody else has.
// Abstract names reach the processes of the same network namespace.
func Listen(addr string, opts ...Option) (*Listener, error) {
	o := newOptions(opts)
	return listenFor(addr, o, func(t Token) (options, error) {
		if t != o.token {
			return o, errToken
		}
		return o, nil
	})
}

func listenFor(addr string, o options, admit func(Token) (options, error)) (*Listener, error) {
	if addr == "" {
		addr = "@purerdma-shm-" + rand.Text()
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: addr, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("shared memory at %s: %w", addr, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	x := &Listener{l: l, o: o, ctx: ctx, cancel: cancel, admit: admit, ready: make(chan *Conn)}
	x.over.Go(x.serve)
	return x, nil
}

// Addr is where to Dial.
func (x *Listener) Addr() string { return x.l.Addr().String() }

// Accept waits for the next connection whose handshake has succeeded. What fails concerns only who dialled, and is told to it.
func (x *Listener) Accept(ctx context.Context) (*Conn, error) {
	late := func() error {
		return fmt.Errorf("shared memory at %s: wait for who dials: %w", x.Addr(), cause.Of(ctx))
	}
	if ctx == nil {
		return nil, late()
	}
	select {
	case c, ok := <-x.ready:
		if !ok {
			return nil, ErrClosed
		}
		return c, nil
	case <-ctx.Done():
		return nil, late()
	}
}

// Close ends listening, and the handshakes and connections that nobody has accepted. A second call is nil.
func (x *Listener) Close() error {
	x.cancel()
	err := x.l.Close()
	x.over.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (x *Listener) serve() {
	var hands sync.WaitGroup
	slots := make(chan struct{}, pending)
	for {
		nc, err := x.l.AcceptUnix()
		if err != nil {
			if x.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				break
			}
			select { // of one connection, or a lack of descriptors that may pass
			case <-time.After(10 * time.Millisecond):
			case <-x.ctx.Done():
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-x.ctx.Done():
			_ = nc.Close()
			continue // to the error of Accept
		}
		hands.Go(func() {
			defer func() { <-slots }()
			x.shake(nc)
		})
	}
	hands.Wait()
	close(x.ready)
}

// shake makes one handshake and hands the connection over.
func (x *Listener) shake(nc *net.UnixConn) {
	c, err := take(x.ctx, nc, x.o, x.admit)
	if err != nil {
		return
	}
	select {
	case x.ready <- c:
	case <-x.ctx.Done():
		_ = c.Close()
	}
}

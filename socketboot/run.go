package socketboot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/socketboot/internal/cause"
)

// Deadlines bound the waits of a handshake; zero fields mean 5 s, 10 s, 30 s. Negative ones are an error.
type Deadlines struct {
	Hello time.Duration // until an accepted peer has shown magic and type, a Secure handshake included
	Step  time.Duration // for each state; a peer that sends a byte now and then gains nothing
	Total time.Duration // for all of it, from the TCP connection on
}

func (d Deadlines) orDefaults() Deadlines {
	def := func(v *time.Duration, t time.Duration) {
		if *v == 0 {
			*v = t
		}
	}
	def(&d.Hello, 5*time.Second)
	def(&d.Step, 10*time.Second)
	def(&d.Total, 30*time.Second)
	return d
}

// Run carries the handshake through over c, blocking, until it is done, fails, or ctx or a deadline ends it; the error is then a
// [HandshakeError]. It sets deadlines on c and leaves none. It does not close c.
func (m *Machine) Run(ctx context.Context, c net.Conn, d Deadlines) error {
	if ctx == nil {
		return m.Fail(cause.ErrNoContext)
	}
	if err := d.check("Deadlines."); err != nil {
		return m.Fail(err)
	}
	return m.run(ctx, c, d.orDefaults(), time.Now())
}

func (m *Machine) run(ctx context.Context, c net.Conn, d Deadlines, start time.Time) error {
	m.peer = addrString(c)
	defer func() { _ = c.SetDeadline(time.Time{}) }()
	defer interruptible(ctx, c)()
	total := start.Add(d.Total)
	for m.err == nil && !m.done {
		state, limit := m.state, d.Step
		if state == StateAccept {
			limit = d.Hello
		}
		end := time.Now().Add(limit)
		if state == StateAccept {
			end = start.Add(limit)
		}
		if total.Before(end) {
			end = total
		}
		if err := c.SetDeadline(end); err != nil {
			return m.Fail(err)
		}
		// Asked after the deadline was set: if ctx ends now, its function sets another one later.
		if ctx.Err() != nil {
			return m.Fail(cause.Of(ctx))
		}
		for m.state == state && m.err == nil && !m.done {
			if err := m.exchange(c); err != nil {
				return m.Fail(m.explain(ctx, err, time.Since(start)))
			}
		}
	}
	return m.Err()
}

// interruptible makes reads and writes of c fail when ctx ends, until the function it returns has returned, which then leaves no deadline.
func interruptible(ctx context.Context, c net.Conn) (end func()) {
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		_ = c.SetDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-fired
			_ = c.SetDeadline(time.Time{})
		}
	}
}

// exchange writes or reads once.
func (m *Machine) exchange(c net.Conn) error {
	if out := m.Output(); len(out) > 0 {
		n, err := c.Write(out)
		m.Sent(n)
		return err
	}
	n, err := c.Read(m.buffer())
	if n > 0 {
		if m.Input(m.buf[:n]) != nil {
			return nil // it has failed by itself and keeps its own error
		}
		if m.done || len(m.out) > 0 {
			return nil // the rest of err, if any, shows at the next read or write
		}
	}
	return err
}

// buffer is larger than what is wanted, so that surplus bytes are seen before the owner is asked for anything; but a peer that
// has shown nothing yet is not worth a large one.
func (m *Machine) buffer() []byte {
	n := 64
	if m.state == StateRecv || m.state == StateConnecting {
		n = 8 << 10
	}
	if len(m.buf) < n {
		m.buf = make([]byte, n)
	}
	return m.buf
}

func (m *Machine) explain(ctx context.Context, err error, after time.Duration) error {
	switch {
	case ctx.Err() != nil:
		return cause.Of(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		if m.wants() == 0 {
			return fmt.Errorf("the peer took nothing in after %v: %w", after.Round(time.Millisecond), err)
		}
		return fmt.Errorf("the peer was silent, %d more bytes wanted after %v: %w", m.wants(), after.Round(time.Millisecond), err)
	case closedByPeer(err):
		if m.wants() == 0 {
			return ErrPeerClosed
		}
		return fmt.Errorf("%w with %d bytes still to come", ErrPeerClosed, m.wants())
	}
	return err
}

func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func addrString(c net.Conn) string {
	if a := c.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}

// Step makes what progress c allows without waiting for the peer: false, nil means that it is the peer's turn. It blocks only as
// long as the owner's calls do. c should be a TCP connection; on others it waits a millisecond for the peer, for want of a way
// to ask. It uses deadlines on c and leaves none. A deadline of the handshake is the caller's matter: [Machine.Fail].
func (m *Machine) Step(c net.Conn) (done bool, err error) {
	m.peer = addrString(c)
	nc := newNonblocking(c)
	defer nc.restore()
	for m.err == nil && !m.done {
		err := m.exchange(nc)
		if errors.Is(err, errWouldBlock) || errors.Is(err, os.ErrDeadlineExceeded) {
			return false, nil
		}
		if err != nil {
			return false, m.Fail(m.explain(context.Background(), err, 0))
		}
	}
	return m.done, m.Err()
}

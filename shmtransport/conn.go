package shmtransport

import (
	"context"
	"errors"
	"fmt"

	"github.com/purerdma/purerdma/internal/offheap"
)

// Conn is one end of a connection, both directions, for one goroutine at a time; Close alone may come from any. While Recv waits it
// prepares the memory of the next Send, which makes request and answer of some KiB faster. Where one goroutine sends and another
// receives, Split gives each an end of its own.
type Conn struct {
	s     *Sender
	r     *Receiver
	life  *life
	link  link
	peer  Peer
	token Token // by which it was dialled, at the Listener's side
	split bool
}

// Peer is who is at the other end, as the kernel says.
type Peer struct {
	PID int    // 0 where it is not known: memory by a file
	UID uint32 // effective user
}

// link is what notices the end of the other process. close tells it that this one has ended in order.
type link interface{ close() error }

// newConn makes an end of memory that is mapped and checked. maker says that this process made it.
func newConn(span offheap.Span, g geometry, maker, fenced bool, peer Peer) *Conn {
	_, rings := views(span, g)
	out, in := rings[0], rings[1]
	if !maker {
		out, in = in, out
	}
	l := &life{peer: peer, mapped: true, span: span, sleepers: [2]*uint32{&out.control.senderAsleep, &in.control.receiverAsleep}}
	shared := &gate{fenced: fenced}
	c := &Conn{s: newSender(out, l, shared), r: newReceiver(in, l, shared), life: l, peer: peer}
	c.r.partner = c.s
	return c
}

// Peer tells who is at the other end.
func (c *Conn) Peer() Peer { return c.peer }

// Split gives the two directions ends of their own, which two goroutines may use at the same time. The Conn itself then only closes.
func (c *Conn) Split() (*Sender, *Receiver, error) {
	if err := c.r.gate.enter(c.life); err != nil {
		return nil, nil, err
	}
	if c.split || c.r.gate.held != 0 {
		c.r.gate.leave()
		return nil, nil, fmt.Errorf("%w: Split, of a connection that is split or has memory out", ErrOrder)
	}
	shared := c.s.gate
	defer shared.leave()
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	if c.life.state.Load()&closed != 0 { // Close shuts the gate that was there
		return nil, nil, ErrClosed
	}
	c.split = true
	c.s.gate, c.r.gate, c.r.partner = &gate{fenced: shared.fenced}, &gate{fenced: shared.fenced}, nil
	return c.s, c.r, nil
}

// Send is [Sender.Send]: nil is no receipt.
func (c *Conn) Send(ctx context.Context, b []byte) error { return c.s.Send(ctx, b) }

// TrySend is [Sender.TrySend].
func (c *Conn) TrySend(b []byte) (ok bool, err error) { return c.s.TrySend(b) }

// SendBatch is [Sender.SendBatch].
func (c *Conn) SendBatch(ctx context.Context, messages [][]byte) (sent int, err error) {
	return c.s.SendBatch(ctx, messages)
}

// TrySendBatch is [Sender.TrySendBatch].
func (c *Conn) TrySendBatch(messages [][]byte) (sent int, err error) {
	return c.s.TrySendBatch(messages)
}

// Acquire is [Sender.Acquire].
func (c *Conn) Acquire(n int) ([]byte, error) { return c.s.Acquire(n) }

// MaxAcquire is [Sender.MaxAcquire].
func (c *Conn) MaxAcquire() int { return c.s.MaxAcquire() }

// Commit is [Sender.Commit].
func (c *Conn) Commit(n int) error { return c.s.Commit(n) }

// Recv is [Receiver.Recv].
func (c *Conn) Recv(ctx context.Context, b []byte) (int, error) { return c.r.Recv(ctx, b) }

// TryRecv is [Receiver.TryRecv].
func (c *Conn) TryRecv(b []byte) (n int, ok bool, err error) { return c.r.TryRecv(b) }

// RecvBatch is [Receiver.RecvBatch].
func (c *Conn) RecvBatch(ctx context.Context, buffers [][]byte, sizes []int) (int, error) {
	return c.r.RecvBatch(ctx, buffers, sizes)
}

// TryRecvBatch is [Receiver.TryRecvBatch].
func (c *Conn) TryRecvBatch(buffers [][]byte, sizes []int) (int, error) {
	return c.r.TryRecvBatch(buffers, sizes)
}

// Next is [Receiver.Next].
func (c *Conn) Next() (b []byte, left int, ok bool, err error) { return c.r.Next() }

// Release is [Receiver.Release].
func (c *Conn) Release() error { return c.r.Release() }

// Wait is [Receiver.Wait].
func (c *Conn) Wait(ctx context.Context) error { return c.r.Wait(ctx) }

// Close ends the connection at both ends: calls in progress here return ErrClosed, and the peer receives what was sent, then io.EOF.
// It may be called from any goroutine, and again. The memory is unmapped once nobody is in a call and nothing from Acquire or Next is
// out; whoever has such memory unmaps it by Commit or Release, which are ErrClosed then.
func (c *Conn) Close() error {
	first, err := c.life.close(func() []*gate {
		if c.r.gate == c.s.gate {
			return []*gate{c.s.gate}
		}
		return []*gate{c.s.gate, c.r.gate}
	})
	if !first {
		return nil
	}
	c.s.wait.unregister()
	c.r.wait.unregister()
	return errors.Join(err, c.link.close())
}

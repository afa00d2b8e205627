package transport

import (
	"context"
	"errors"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/offheap"
)

// SendMemory is [Communicator.Send] of memory for RDMA, an mr.Buffer above all, which stays mapped meanwhile whoever closes it. Its bytes
// go through the connection's memory like any others: that is registered, and the memory itself need not be.
func (c *Communicator) SendMemory(ctx context.Context, peer int, m ibverbs.Memory) error {
	s := spanOf(m)
	if err := s.Retain(); err != nil {
		return c.peerError("send to", peer, c.lane(true, peer), err)
	}
	return errors.Join(c.Send(ctx, peer, s.Bytes()), s.Release())
}

// RecvMemory is [Communicator.Recv] into such memory.
func (c *Communicator) RecvMemory(ctx context.Context, peer int, m ibverbs.Memory) (int, error) {
	s := spanOf(m)
	if err := s.Retain(); err != nil {
		return 0, c.peerError("receive from", peer, c.lane(false, peer), err)
	}
	n, err := c.Recv(ctx, peer, s.Bytes())
	return n, errors.Join(err, s.Release())
}

// spanOf is the memory, empty for nil.
func spanOf(m ibverbs.Memory) (s offheap.Span) {
	if m != nil {
		s = m.Span()
	}
	return s
}

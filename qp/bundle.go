package qp

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs"
)

// Lane is one device of a connection: where its queue pairs are made.
type Lane struct {
	PD             *ibverbs.PD
	SendCQ, RecvCQ *ibverbs.CQ
	Options        []Option // for the queue pairs of this device
}

// Bundle is the queue pairs of one connection, striped over its devices: QP q is
// on device q modulo the number of devices. Both ends take QPs in the same
// order, so that message k is on the same ones: that is a rule of the wire. A
// Bundle belongs to one goroutine at a time.
type Bundle struct {
	QPs  []*QP
	next int
}

// DeviceOf is the number of the device, of ndevs, that QP q of a connection is
// on.
func DeviceOf(q, ndevs int) int { return q % ndevs }

// NewBundle makes n queue pairs over the lanes, at most 128 (NCCL_IB_MAX_QPS).
// each, which may be nil, gives further options of QP q, a flow label of its own
// for example.
func NewBundle(lanes []Lane, n int, each func(q int) []Option) (*Bundle, error) {
	if len(lanes) == 0 || n < 1 || n > maxQPs {
		return nil, &ibverbs.Error{Op: "make QPs",
			Err: fmt.Errorf("%d QPs on %d devices; 1 to %d QPs on at least one are possible: %w", n, len(lanes), maxQPs, syscall.EINVAL)}
	}
	b := &Bundle{QPs: make([]*QP, 0, n)}
	for i := range n {
		l := lanes[DeviceOf(i, len(lanes))]
		opts := l.Options
		if each != nil {
			opts = append(opts[:len(opts):len(opts)], each(i)...)
		}
		q, err := New(l.PD, l.SendCQ, l.RecvCQ, opts...)
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		b.QPs = append(b.QPs, q)
	}
	return b, nil
}

const maxQPs = 128

// Connect connects QP q to peers[q], one after the other: the first resolves
// the peer's address for the others.
func (b *Bundle) Connect(ctx context.Context, peers []Info) error {
	if len(peers) != len(b.QPs) {
		return &ibverbs.Error{Op: "connect QPs",
			Err:  fmt.Errorf("%d QPs here, %d at the peer: %w", len(b.QPs), len(peers), syscall.EINVAL),
			Hint: "both ends need the same number of QPs per connection, NCCL_IB_QPS_PER_CONNECTION"}
	}
	for i, q := range b.QPs {
		if err := q.ConnectContext(ctx, peers[i]); err != nil {
			return err
		}
	}
	return nil
}

// Next appends the k queue pairs of the next message to dst and moves the
// cursor by k. k is the same at both ends: the larger number of devices, or all
// QPs where each message is split over all.
func (b *Bundle) Next(k int, dst []*QP) []*QP {
	for range k {
		dst = append(dst, b.QPs[b.NextIndex()])
	}
	return dst
}

// NextIndex is the number of the queue pair that Next would give, and moves the
// cursor by one.
func (b *Bundle) NextIndex() int {
	i := b.next
	if b.next++; b.next == len(b.QPs) {
		b.next = 0
	}
	return i
}

// Close closes all queue pairs.
func (b *Bundle) Close() error {
	var errs []error
	for _, q := range b.QPs {
		errs = append(errs, q.Close())
	}
	return errors.Join(errs...)
}

package nettransport

import (
	"context"
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/fifo"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/cause"
)

// Irecv offers 1 to MaxRecvs buffers to the peer, as one group: it ends when the peer has filled all of them, and groups are
// filled in the order in which they were offered. ok is false if MaxRequests are in flight. Test tells how much came for each
// buffer. The memory is the peer's until Test says done.
func (c *RecvComm) Irecv(bs ...Buffer) (r Request, ok bool, err error) {
	if c.err != nil {
		return Request{}, false, c.err
	}
	n := len(bs)
	if n < 1 || n > MaxRecvs {
		return Request{}, false, c.argError("receive", fmt.Errorf("%d buffers, where 1 to %d can be: %w", n, MaxRecvs, syscall.EINVAL), "")
	}
	for i := range bs {
		if err := bs[i].check(&c.Comm, "receive"); err != nil {
			return Request{}, false, err
		}
	}
	row := &c.rows[c.tail%fifo.Rows]
	if *row != nil {
		return Request{}, false, nil // its sizes are still to be read
	}
	q := c.requests.take(receiving, n)
	if q == nil {
		return Request{}, false, nil
	}
	q.group, q.row, *row = c.tail, row, q
	for i := range bs {
		b := &bs[i]
		q.mrs[i], q.room[i] = b.MR, b.N
		b.MR.users++
		o := &c.offers[i]
		*o = fifo.CTS{Addr: b.MR.addr + uint64(b.Off), Size: uint64(b.N), Tag: uint32(b.Tag)}
		copy(o.RKeys[:], b.MR.rkeys[:c.layout.MaxDevs()])
	}
	if err := c.postReceives(q); err != nil {
		return Request{}, false, err
	}
	if err := c.postCredits(q); err != nil {
		return Request{}, false, err
	}
	q.posted = true
	return c.requests.handle(q), true, nil
}

// Recv is Irecv that says with an error that MaxRequests are in flight: only their Test makes room. It does not wait for the
// message: Test or Wait of the Request tells its end.
func (c *RecvComm) Recv(ctx context.Context, bs ...Buffer) (Request, error) {
	if err := cause.Of(ctx); err != nil {
		return Request{}, c.argError("receive", err, "")
	}
	r, ok, err := c.Irecv(bs...)
	if err == nil && !ok {
		err = c.argError("receive", fmt.Errorf("%d requests are in flight: %w", MaxRequests, ibverbs.ErrQueueFull), "test some of them first")
	}
	return r, err
}

// postReceives posts an empty receive on each queue pair of the group, for its immediate data. They must be there before the
// credits leave.
func (c *RecvComm) postReceives(q *request) error {
	for i := range c.k {
		l := &c.lanes[c.bundle.NextIndex()]
		if _, err := l.qp.PostRecv(ibverbs.RecvWR{ID: uint64(q.slot) | uint64(i)<<slotBits}); err != nil {
			return c.fail(c.postError(l, err))
		}
		q.events[l.rail]++
		q.pending++
	}
	return nil
}

// postCredits writes the group's offers into the peer's ring, in turn over the first queue pairs of the rails. One write in 256 of
// a queue pair asks for a completion, so that its send queue does not fill.
func (c *RecvComm) postCredits(q *request) error {
	c.sizesIn.Clear(c.tail, q.n)
	off, n, err := c.credits.Fill(c.tail, c.offers[:q.n])
	if err != nil {
		return c.fail(err)
	}
	l := &c.lanes[c.turn]
	if c.turn++; c.turn == len(c.rails) {
		c.turn = 0
	}
	w := ibverbs.SendWR{ID: uint64(q.slot), Op: ibverbs.OpWrite, Remote: ibverbs.Remote{
		Addr: c.fifoLayout().CreditAddr(c.peerMeta.FIFOAddr, c.tail), RKey: c.peerMeta.Devs[l.remote].FIFORKey}}
	if c.t.cfg.Inline && q.n == 1 {
		w.Inline = c.credits.Buffer().Bytes()[off : off+n]
	} else {
		w.SGL = []ibverbs.SGE{{Addr: c.credits.Buffer().Addr() + uint64(off), Length: uint32(n), LKey: c.clkeys[l.rail]}}
	}
	if int(c.tail%fifo.Rows) == l.rail {
		w.Flags = ibverbs.Signaled
		q.events[l.rail]++
		q.pending++
	}
	c.tail++
	if _, err := l.qp.PostSend(w); err != nil {
		return c.fail(c.postError(l, err))
	}
	return nil
}

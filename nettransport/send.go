package nettransport

import (
	"context"
	"fmt"

	"github.com/purerdma/purerdma/fifo"
	"github.com/purerdma/purerdma/ibverbs"
)

// Isend starts to send a buffer to the first of the peer's oldest offers that has its tag. ok is false if there is none yet, or
// if MaxRequests are in flight: call again, after Test of those. An empty message needs a tag and an MR too. A message longer
// than the peer's buffer is cut: Test tells the length that was sent, Stats how often it happened. The memory must stay as it is
// until Test says done.
func (c *SendComm) Isend(b Buffer) (r Request, ok bool, err error) {
	if c.err != nil {
		return Request{}, false, c.err
	}
	if err := b.check(&c.Comm, "send"); err != nil {
		return Request{}, false, err
	}
	if !c.arrivals() {
		return Request{}, false, c.err
	}
	i := c.match(b.Tag)
	if i < 0 {
		c.idle()
		return Request{}, false, c.err
	}
	q := c.requests.take(sending, 1)
	if q == nil {
		return Request{}, false, nil
	}
	q.mrs[0], q.sizes[0], q.group = b.MR, b.N, c.head
	q.off = b.Off
	b.MR.users++
	if most := int(c.group[i].Size); b.N > most {
		q.sizes[0] = most
		c.truncated(b.N, most)
	}
	c.slots[i] = q
	if c.matched++; c.matched == c.n {
		if err := c.sendGroup(); err != nil {
			return Request{}, false, err
		}
	}
	return c.requests.handle(q), true, nil
}

// Send is Isend that waits, until ctx ends, for the peer to offer a buffer with the tag of b. The message is then on its way: Test
// or Wait of the Request tells its end. With MaxRequests in flight it refuses at once: only their Test makes room.
func (c *SendComm) Send(ctx context.Context, b Buffer) (r Request, err error) {
	if c.err == nil && c.requests.nfree == 0 {
		return Request{}, c.argError("send", fmt.Errorf("%d requests are in flight: %w", MaxRequests, ibverbs.ErrQueueFull), "test some of them first")
	}
	err = c.await(ctx, "send", func() (ok bool, err error) {
		r, ok, err = c.Isend(b)
		return ok || err != nil, err
	})
	return r, err
}

// arrivals says whether the offers of the group at the head are there, and copies them once.
func (c *SendComm) arrivals() bool {
	if c.n > 0 {
		return true
	}
	n, err := c.credits.Peek(c.head, &c.group)
	if err == nil && n > 0 {
		err = c.checkKeys(n)
	}
	if err != nil {
		c.fail(c.protocolError(0, c.lanes[0].qp.Num(), err))
		return false
	}
	if n == 0 {
		c.idle()
		return false
	}
	c.n = n
	return true
}

// checkKeys wants a key for each device of the peer.
func (c *SendComm) checkKeys(n int) error {
	for i := range c.group[:n] {
		for d := range c.peerMeta.Devs {
			if c.group[i].RKeys[d] == 0 {
				return errNoKey(c.head, i, d)
			}
		}
	}
	return nil
}

// match is the first free offer of a tag, -1 if there is none. Only the group at the head is looked at: groups are filled in
// order.
func (c *SendComm) match(tag int32) int {
	for i := range c.group[:c.n] {
		if c.slots[i] == nil && c.group[i].Tag == uint32(tag) {
			return i
		}
	}
	return -1
}

// sendGroup posts the messages of the group at the head, of which all are there: on each queue pair a piece of each message by
// plain writes, and in the last request the immediate data, for which alone a completion is asked.
func (c *SendComm) sendGroup() error {
	n, id := c.n, uint64(0)
	var sizes [fifo.MaxRecvs]int
	for i, q := range c.slots[:n] {
		id |= uint64(q.slot) << (slotBits * i)
		sizes[i] = q.sizes[0]
		q.members = n // before any post: a completion may come as soon as there is one
	}
	var told ibverbs.SGE // the sizes of a group
	if n > 1 {
		off, bytes, err := c.sizes.Fill(c.head, sizes[:n])
		if err != nil {
			return c.fail(err)
		}
		told = ibverbs.SGE{Addr: c.sizes.Buffer().Addr() + uint64(off), Length: uint32(bytes)}
	}
	head := c.head
	c.credits.Clear(head) // from the first post on the peer may use the row again
	c.head, c.n, c.matched = head+1, 0, 0

	alone := n == 1 && c.adaptive && sizes[0] > c.t.cfg.ARThreshold
	for i := range c.k {
		l := &c.lanes[c.bundle.NextIndex()]
		for j, q := range c.slots[:n] {
			c.writePiece(j, l, q, i)
			q.events[l.rail]++
			q.pending++
		}
		last := n - 1
		if n > 1 || alone {
			last = n
			c.wrs[last] = ibverbs.SendWR{}
		}
		w := &c.wrs[last]
		w.ID, w.Op, w.Flags = id, ibverbs.OpWriteWithImm, ibverbs.Signaled
		if n > 1 {
			told.LKey = c.slkeys[l.rail]
			c.sges[last] = told
			w.SGL = c.sges[last : last+1]
			w.Remote = ibverbs.Remote{Addr: c.fifoLayout().SizesAddr(c.peerMeta.FIFOAddr, head), RKey: c.peerMeta.Devs[l.remote].FIFORKey}
		} else {
			w.Imm = c.order(uint32(sizes[0]))
		}
		if _, err := l.qp.PostSend(c.wrs[:last+1]...); err != nil {
			return c.fail(c.postError(l, err))
		}
	}
	for i, q := range c.slots[:n] {
		q.posted = true
		c.slots[i] = nil
	}
	return nil
}

// writePiece makes request j the write of q's piece on the i-th queue pair of the message, which may be empty.
func (c *SendComm) writePiece(j int, l *lane, q *request, i int) {
	off, n := c.piece(q.sizes[0], i)
	w, offer := &c.wrs[j], &c.group[j]
	*w = ibverbs.SendWR{Op: ibverbs.OpWrite, Remote: ibverbs.Remote{Addr: offer.Addr + uint64(off), RKey: offer.RKeys[l.remote]}}
	if n > 0 {
		m := q.mrs[0]
		c.sges[j] = ibverbs.SGE{Addr: m.addr + uint64(q.off+off), Length: uint32(n), LKey: m.lkeys[l.rail]}
		w.SGL = c.sges[j : j+1]
	}
}

// truncated counts a message that does not fit, and says so once.
func (c *SendComm) truncated(n, most int) {
	if c.stats.truncated.Add(1) == 1 {
		c.t.log.Warn("a message is longer than the peer's buffer and is cut, as NCCL does; later ones are only counted",
			"peer", c.peerName(), "bytes", n, "buffer", most)
	}
}

package nettransport

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
)

// A work request's ID is local: the low 8 bits are the slot of its request. The last request of a send has the slots of its
// whole group, 8 bits each; a receive has its place among the queue pairs of the message above them.
const slotBits = 8

// progress polls the rails on which q still waits, and looks at the watchdogs when nothing has completed.
func (c *Comm) progress(q *request) {
	any := false
	for i := range c.rails {
		if q.events[i] > 0 && c.err == nil {
			any = c.pollRail(i) || any
		}
	}
	if !any && c.err == nil {
		c.idle()
	}
}

// pollRail takes what has completed on a rail. A failure comes after all that succeeded before it.
func (c *Comm) pollRail(i int) (some bool) {
	n, err := c.rails[i].cq.Poll(c.wcs[:])
	for j := range c.wcs[:n] {
		if e := c.complete(i, &c.wcs[j]); e != nil && err == nil {
			err = e
		}
	}
	if err != nil && c.err == nil {
		c.fail(c.pollError(i, err))
	}
	if n > 0 && (c.t.cfg.ProgressTimeout > 0 || !c.goneAt.IsZero()) {
		c.lastProgress = time.Now()
	}
	return n > 0
}

// complete takes one completion of rail i.
func (c *Comm) complete(i int, wc *ibverbs.WC) error {
	if wc.Status != ibverbs.Success {
		return c.completionError(i, wc)
	}
	q := &c.requests.table[wc.ID&(MaxRequests-1)]
	switch {
	case q.kind == sending:
		id := wc.ID
		for range q.members {
			c.requests.table[id&(MaxRequests-1)].arrived(i)
			id >>= slotBits
		}
	case q.kind == receiving && wc.Op.IsRecv():
		if err := c.received(q, wc); err != nil {
			return c.protocolError(i, wc.QPN, err)
		}
		q.arrived(i)
	case q.kind == unused:
		return c.protocolError(i, wc.QPN, fmt.Errorf("a completion of no request, %#x: %w", wc.ID, errDevice))
	default: // credits, or a flush
		q.arrived(i)
	}
	if q.kind == receiving && q.done() && q.n > 1 {
		if err := c.sizesIn.Read(q.group, q.room[:q.n], q.sizes[:q.n]); err != nil {
			q.pending++ // its sizes are not known: it has not succeeded
			return c.protocolError(i, wc.QPN, err)
		}
	}
	return nil
}

func (q *request) arrived(rail int) {
	q.events[rail]--
	q.pending--
}

var errDevice = errors.New("the device completed what was not asked for")

// received checks what a message's last write on one queue pair told against what it must be. NCCL trusts it, so ends with
// another number of queue pairs or another way to split take pieces of one message for another.
func (c *Comm) received(q *request, wc *ibverbs.WC) error {
	if wc.Op != ibverbs.WCRecvWriteWithImm || wc.Flags&ibverbs.WCWithImm == 0 {
		return fmt.Errorf("%w: a message did not end with an RDMA write with immediate data", ErrProtocol)
	}
	imm := c.order(wc.Imm)
	if q.n > 1 {
		if imm != 0 || int(wc.ByteLen) != q.n*4 {
			return mismatch("%d bytes with immediate data %d end %d messages, want %d and 0", wc.ByteLen, imm, q.n, q.n*4)
		}
		return nil
	}
	if q.seen && imm != q.imm {
		return mismatch("one message is %d bytes long by one queue pair and %d by another", q.imm, imm)
	}
	q.seen, q.imm = true, imm
	if uint64(imm) > uint64(q.room[0]) {
		return mismatch("a message of %d bytes came for a buffer of %d", imm, q.room[0])
	}
	size := int(imm)
	_, n := c.piece(size, int(wc.ID>>slotBits))
	if int(wc.ByteLen) != n && (wc.ByteLen != 0 || size <= c.t.cfg.ARThreshold) {
		return mismatch("a queue pair brought %d of the %d bytes of a message, want %d", wc.ByteLen, size, n)
	}
	q.sizes[0] = size
	return nil
}

func mismatch(format string, args ...any) error {
	return &disagreement{fmt.Sprintf(format, args...)}
}

// disagreement is what ends of different settings do to each other.
type disagreement struct{ what string }

func (e *disagreement) Error() string { return ErrProtocol.Error() + ": " + e.what }
func (e *disagreement) Unwrap() error { return ErrProtocol }

// piece is the bytes that the i-th of the k queue pairs of a message carries: n from off on. Beyond the message off goes on and
// n is 0. NCCL keeps pieces multiples of 128 for its LL128 protocol.
func (c *Comm) piece(size, i int) (off, n int) {
	const align = 128
	chunk := ((size+c.k-1)/c.k + align - 1) / align * align
	off = i * chunk
	return off, max(0, min(chunk, size-off))
}

// order turns immediate data between what package ibverbs has, a number sent most significant byte first, and what the layout
// puts there: NCCL before 2.29 hands its number to the device as it lies in memory.
func (c *Comm) order(imm uint32) uint32 {
	if c.layout.ImmBigEndian() {
		return imm
	}
	return bits.ReverseBytes32(imm)
}

const (
	// lastCompletions is how long completions are waited for after the peer has gone and since the last one came.
	lastCompletions = 250 * time.Millisecond
	// idleLooks is how many times nothing was found between two looks at the clock for Config.ProgressTimeout.
	idleLooks = 16
)

// idle is called when there was nothing to do: it looks for what will never come.
func (c *Comm) idle() {
	if f := c.faults.Load(); f != nil {
		for i := range c.rails {
			c.pollRail(i) // a failed completion says more
		}
		c.fail(c.faultError(f))
		return
	}
	select {
	case <-c.gone:
		c.watchGone()
		return
	default:
	}
	if limit := c.t.cfg.ProgressTimeout; limit > 0 {
		if c.idles++; c.idles%idleLooks == 0 {
			c.watchProgress(limit)
		}
	}
}

// watchGone ends what a peer that has gone leaves, after a time for what is under way.
func (c *Comm) watchGone() {
	now := time.Now()
	if c.goneAt.IsZero() {
		c.goneAt = now
	}
	quiet := c.goneAt
	if c.lastProgress.After(quiet) {
		quiet = c.lastProgress
	}
	if limit := c.t.cfg.Timeout; now.Sub(c.goneAt) >= limit || now.Sub(quiet) >= min(lastCompletions, limit) {
		c.fail(c.goneError())
	}
}

func (c *Comm) watchProgress(limit time.Duration) {
	now := time.Now()
	if c.lastProgress.IsZero() || !c.requests.inFlight() {
		c.lastProgress = now
	}
	if now.Sub(c.lastProgress) >= limit {
		c.fail(c.noProgressError(limit))
	}
}

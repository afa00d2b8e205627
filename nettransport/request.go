package nettransport

import (
	"context"
	"runtime"
	"time"

	"github.com/purerdma/purerdma/fifo"
	"github.com/purerdma/purerdma/internal/cause"
)

// Request is an operation in flight. It is a value of 16 bytes; its outcome is told once, after which it is stale.
type Request struct {
	c         *Comm
	slot, gen uint32
}

// kind is what a request does, with NCCL's numbers.
type kind uint8

const (
	unused kind = iota
	sending
	receiving
	flushing
)

// request is a slot of a connection's table.
type request struct {
	gen     uint32
	slot    uint8
	kind    kind
	posted  bool // a send waits for the others of its group
	n       int  // buffers
	off     int  // of a send, in its MR
	members int  // sends that one completion is for
	pending int  // completions to come on all rails
	events  [maxDevs]int
	sizes   [fifo.MaxRecvs]int // of the messages
	room    [fifo.MaxRecvs]int // of the buffers of a receive
	mrs     [fifo.MaxRecvs]*MR
	group   uint64    // number of the group
	row     **request // what says that the group's row is taken, nil where none is
	imm     uint32    // of the first completion of a receive
	seen    bool      // imm is there
}

func (q *request) done() bool { return q.posted && q.pending == 0 }

// requests is the table, with the free slots on a stack.
type requests struct {
	c     *Comm
	table [MaxRequests]request
	free  [MaxRequests]uint8
	nfree int
}

func (r *requests) init(c *Comm) {
	r.c, r.nfree = c, MaxRequests
	for i := range r.table {
		r.table[i].slot = uint8(i)
		r.free[i] = uint8(MaxRequests - 1 - i)
	}
}

// take is a free slot, nil if there is none.
func (r *requests) take(k kind, n int) *request {
	if r.nfree == 0 {
		return nil
	}
	if r.c.t.cfg.ProgressTimeout > 0 && !r.inFlight() {
		r.c.lastProgress = time.Now() // the time without requests does not count
	}
	r.nfree--
	q := &r.table[r.free[r.nfree]]
	q.gen++
	q.kind, q.n, q.members, q.posted, q.seen = k, n, 0, false, false
	return q
}

// give frees a slot, whatever its state.
func (r *requests) give(q *request) {
	for i, m := range q.mrs[:q.n] {
		if m != nil {
			m.users--
			q.mrs[i] = nil
		}
	}
	if q.row != nil {
		*q.row, q.row = nil, nil
	}
	q.kind, q.pending, q.events = unused, 0, [maxDevs]int{}
	r.free[r.nfree] = q.slot
	r.nfree++
}

func (r *requests) handle(q *request) Request { return Request{r.c, uint32(q.slot), q.gen} }

// inFlight says whether some request waits for a completion.
func (r *requests) inFlight() bool {
	if r.nfree == MaxRequests {
		return false
	}
	for i := range r.table {
		if q := &r.table[i]; q.kind != unused && !q.done() {
			return true
		}
	}
	return false
}

// Test makes progress on the connection and says whether the request has ended. With done, err is its outcome, the Request is
// stale from then on, and sizes, if not nil, has the length of each of its messages, as many as fit. It does not wait.
func (r Request) Test(sizes []int) (done bool, err error) {
	if r.c == nil || r.slot >= MaxRequests {
		return true, ErrStale
	}
	c := r.c
	q := &c.requests.table[r.slot]
	if q.gen != r.gen || q.kind == unused {
		return true, ErrStale
	}
	if !q.done() && c.err == nil {
		c.progress(q)
	}
	switch {
	case q.done():
		copy(sizes, q.sizes[:q.n])
		c.finish(q)
		return true, nil
	case c.err != nil:
		c.requests.give(q)
		return true, c.err
	}
	return false, nil
}

// spins is how often Wait tests before it sleeps: enough for a peer on this machine to answer.
const spins = 64

// await calls try until it is over, and between two calls yields at first and later sleeps in steps of up to 1 ms. When ctx ends
// the error names op and the peer, around ctx.Err and its cause.
func (c *Comm) await(ctx context.Context, op string, try func() (over bool, err error)) error {
	if ctx == nil {
		return c.argError(op, cause.Of(ctx), "")
	}
	for range spins {
		if over, err := try(); over {
			return err
		}
		runtime.Gosched()
	}
	step := 10 * time.Microsecond
	timer := time.NewTimer(step)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return c.argError(op, cause.Of(ctx), "")
		}
		if over, err := try(); over {
			return err
		}
		step = min(2*step, time.Millisecond)
		timer.Reset(step)
	}
}

// Wait is Test until done, or until ctx ends, which leaves the request in flight and is an *ibverbs.Error. It sleeps in steps of up to
// 1 ms; a program that wants less latency calls Test in a loop that yields.
func (r Request) Wait(ctx context.Context, sizes []int) error {
	if r.c == nil {
		return ErrStale
	}
	return r.c.await(ctx, "wait for the end of a request", func() (bool, error) { return r.Test(sizes) })
}

// finish ends a request that has succeeded.
func (c *Comm) finish(q *request) {
	if q.kind != flushing {
		for _, size := range q.sizes[:q.n] {
			c.stats.messages.Add(1)
			c.stats.bytes.Add(uint64(size))
		}
	}
	c.requests.give(q)
}

package mlx5

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	"github.com/purerdma/purerdma/internal/offheap"
)

// errNoResizeMark is of a device that resized a CQ and did not say where in the old ring
// that was.
var errNoResizeMark = fmt.Errorf("the old ring does not say where the resized queue begins: completions are lost: %w", syscall.EPROTO)

// Resize implements driver.CQ. The device writes a last completion of its own kind into
// the old ring, and goes on in the new one behind the place that this one has there. So
// what was not polled moves into the new ring one number up.
func (c *CQ) Resize(depth int) error {
	n, err := c.dev.entries(depth)
	if err != nil {
		return err
	}
	if n == c.n {
		return nil
	}
	if waiting := c.waiting(); waiting >= n {
		return hint(syscall.EINVAL, "%d completions are in the queue: poll first", waiting)
	}
	mem, err := offheap.Map(int(n*c.stride), offheap.Options{})
	if err != nil {
		return err
	}
	next := newCompletions(mem, c.records, n, c.stride)
	req := uapi.MLX5ResizeCQ{BufAddr: mem.Addr(), CQESize: uint16(c.stride)}
	_, err = c.dev.Dev.ResizeCQ(c.h, int(n)-1, uverbs.UHW{In: bytesOf(&req)})
	if absurd := (*uverbs.ResponseError)(nil); err != nil && !errors.As(err, &absurd) {
		if err == syscall.EINVAL {
			err = hint(err, "the device refuses a depth of %d: more completions may be in the queue, poll first", n-1)
		}
		return errors.Join(err, mem.Release())
	}
	// The device writes into the new ring by now, whatever it answered.
	if !next.follow(&c.completions) {
		c.overrun.Store(true)
		err = errors.Join(err, errNoResizeMark)
	}
	old := c.mem
	c.mem, c.completions = mem, next
	return errors.Join(err, old.Release())
}

// waiting is how many completions were not polled.
func (q *completions) waiting() (n uint32) {
	for n < q.n && q.ready(q.ci+n) {
		n++
	}
	return n
}

// follow takes over what is in the old ring up to the mark, and says whether there was
// one. The record keeps the old number until the next poll: it only makes the ring look
// fuller than it is.
func (q *completions) follow(old *completions) bool {
	q.ci = old.ci + 1
	for i := old.ci; i-old.ci < old.n && old.ready(i); i++ {
		e := old.cqe(old.where(i))
		if e.Opcode() == mlx5prm.CQEResizeCQ {
			return true
		}
		d := q.cqe(q.where(i + 1))
		*d = *e
		d.OpOwn &^= mlx5prm.OwnerMask
		if (i+1)&q.n != 0 {
			d.OpOwn |= mlx5prm.OwnerMask
		}
	}
	return false
}

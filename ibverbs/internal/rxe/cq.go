package rxe

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/offheap"
)

// CQ is a completion queue. It implements driver.CQ.
type CQ struct {
	driver.BaseCQ
	q       compQueue
	overrun atomic.Bool // by NextEvent
	dev     *Context
	h       uverbs.CQHandle
	cookie  uint64
}

// CreateCQ implements driver.Context.
func (c *Context) CreateCQ(config driver.CQConfig) (driver.CQ, error) {
	u := uverbs.CQConfig{Depth: config.Depth, Vector: config.Vector, Cookie: config.Cookie}
	if config.Channel != nil {
		ch, ok := config.Channel.(*uverbs.CompChannel)
		if !ok {
			return nil, errOtherChannel
		}
		u.Channel = ch
	}
	var resp [16]byte // struct rxe_create_cq_resp
	h, depth, err := c.Dev.CreateCQ(u, uverbs.UHW{Out: resp[:]})
	if err != nil {
		if err == syscall.EINVAL {
			err = overLimit(err, limit{"the depth", config.Depth, c.attr.MaxCQE}, limit{"the completion vector", config.Vector, c.attr.CompVectors - 1})
		}
		return nil, err
	}
	r, err := c.mapRing(resp[:], cqeSize, depth)
	if err != nil {
		return nil, errors.Join(err, c.Dev.DestroyCQ(h))
	}
	cq := &CQ{q: compQueue{ring: r}, dev: c, h: h, cookie: config.Cookie}
	c.mu.Lock()
	c.cqs[cq] = struct{}{}
	c.mu.Unlock()
	return cq, nil
}

// mapRing maps the ring of a struct mminfo. It holds n elements of size bytes
// or more.
func (c *Context) mapRing(mminfo []byte, size, n int) (ring, error) {
	mem, err := c.Dev.MapRing(binary.NativeEndian.Uint64(mminfo), binary.NativeEndian.Uint32(mminfo[8:]))
	if err != nil {
		return ring{}, err
	}
	return newRingOf(mem, size, n)
}

func newRingOf(mem offheap.Span, size, n int) (ring, error) {
	r, err := newRing(mem, size)
	if err == nil && r.usable() < n {
		err = errors.Join(&uverbs.ResponseError{What: "ring index mask", Value: uint64(r.mask)}, r.release())
	}
	return r, err
}

// Poll implements driver.CQ. What is in an overrun queue is delivered before
// ErrCQOverrun. When a completion failed, its QP is moved to ERR once more, for
// receives that were posted since the kernel did.
func (c *CQ) Poll(wcs []driver.WC) (int, error) {
	q := &c.q
	cons := q.cons
	n := min(q.used(q.produced(), cons), len(wcs))
	if n == 0 {
		if c.overrun.Load() {
			return 0, driver.ErrCQOverrun
		}
		return 0, nil
	}
	var status, flags uint32
	for wc, left := &wcs[0], n; ; wc = following(wc) {
		e := q.cqe(cons)
		status |= e.Status
		move(wc, e)
		if e.WCFlags&(wcWithImm|wcWithInvalidate)|e.SrcQP != 0 && driver.WCOpcode(e.Opcode).IsRecv() {
			more(wc, e)
			flags |= e.WCFlags
		}
		cons++
		if left--; left == 0 {
			break
		}
	}
	q.cons = cons & q.mask
	q.consume(q.cons)
	if flags&wcWithInvalidate != 0 {
		c.dev.invalidated(wcs[:n])
	}
	if status != uint32(driver.Success) {
		c.dev.failed(wcs[:n])
	}
	return n, nil
}

// Arm implements driver.CQ. Completions that are there already give no event.
func (c *CQ) Arm(solicitedOnly bool) error { return c.dev.Dev.ReqNotifyCQ(c.h, solicitedOnly) }

// Moderate implements driver.CQ. Soft-RoCE of Linux 6.1 does not have it.
func (c *CQ) Moderate(count, periodMicros int) error {
	return c.dev.Dev.ModerateCQ(c.h, count, periodMicros)
}

// Depth implements driver.CQ.
func (c *CQ) Depth() int { return c.q.usable() }

// Resize implements driver.CQ. The kernel moves the completions that are there to
// a new ring.
func (c *CQ) Resize(depth int) error {
	if depth < 1 {
		return hint(syscall.EINVAL, "the depth is %d", depth)
	}
	var resp [16]byte // struct rxe_resize_cq_resp
	made, err := c.dev.Dev.ResizeCQ(c.h, depth, uverbs.UHW{Out: resp[:]})
	if absurd := (*uverbs.ResponseError)(nil); err != nil && !errors.As(err, &absurd) {
		if err == syscall.EINVAL {
			if err = overLimit(err, limit{"the depth", depth, c.dev.attr.MaxCQE}); err == syscall.EINVAL {
				err = hint(err, "more than %d completions are in the queue: poll first", depth)
			}
		}
		return err
	}
	var r ring
	if err == nil {
		r, err = c.dev.mapRing(resp[:], cqeSize, made)
	}
	if err != nil {
		c.overrun.Store(true) // what completes from now on goes where nobody sees it
		return hint(err, "the queue was made anew by Resize, but could not be mapped: what completes is lost")
	}
	old := c.q.ring
	c.q = compQueue{ring: r}
	return old.release()
}

// Close implements driver.CQ.
func (c *CQ) Close() error {
	err := c.dev.Dev.DestroyCQ(c.h)
	if !destroyed(err) {
		return err
	}
	c.dev.mu.Lock()
	delete(c.dev.cqs, c)
	c.dev.mu.Unlock()
	return errors.Join(err, c.q.release())
}

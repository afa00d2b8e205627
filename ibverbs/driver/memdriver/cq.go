package memdriver

import (
	"context"
	"slices"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/softdev"
)

// cq is a ring of completions. It holds a reference to each QP that completes
// into it.
type cq struct {
	driver.BaseCQ
	ctx     *memContext
	channel *compChannel
	cookie  uint64
	polling turn
	control turn

	ring    []cqe
	head, n int
	qps     []*qp // in the order of creation; one that uses it twice is there twice
	arm     arming
	overrun bool
}

// cqe is a completion and the queue slots that polling it frees.
type cqe struct {
	wc   driver.WC
	qp   *qp
	free uint64 // slots of the queue up to here
	recv bool
}

type arming uint8

const (
	unarmed arming = iota
	armedSolicited
	armedAll
)

func (c *cq) Poll(wcs []driver.WC) (int, error) {
	c.polling.take("Poll")
	defer c.polling.give()
	d := c.ctx.dev.d
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for ; n < len(wcs) && c.n > 0; n++ {
		e := &c.ring[c.head]
		wcs[n] = e.wc
		if e.recv {
			e.qp.rqFreed = e.free
		} else {
			e.qp.sqFreed = e.free
		}
		e.qp = nil
		c.head = (c.head + 1) % len(c.ring)
		c.n--
	}
	switch {
	case n > 0 || len(wcs) == 0:
		return n, nil
	case c.ctx.dev.faults.gone:
		return 0, driver.ErrDeviceGone
	case c.overrun:
		return 0, driver.ErrCQOverrun
	}
	return 0, c.ctx.dev.faults.next(OpPoll)
}

func (c *cq) Arm(solicitedOnly bool) error {
	c.control.take("Arm")
	defer c.control.give()
	d := c.ctx.dev.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := c.ctx.dev.control(OpArm); err != nil {
		return err
	}
	// A queue armed for all stays so when asked for less, as on hardware.
	if solicitedOnly {
		c.arm = max(c.arm, armedSolicited)
	} else {
		c.arm = armedAll
	}
	return nil
}

func (c *cq) Depth() int { return len(c.ring) }

func (c *cq) Close() error {
	dev := c.ctx.dev
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	if len(c.qps) > 0 {
		return driver.ErrBusy
	}
	if err := dev.faults.next(OpClose); err != nil {
		return err
	}
	c.control.close("CQ.Close")
	c.polling.close("CQ.Close")
	if c.channel != nil {
		c.channel.users--
		c.channel.events.Drop(func(o *cq) bool { return o == c })
	}
	dev.cqs--
	c.ctx.users--
	return nil
}

// put adds a completion, unless they are being held back.
func (c *cq) put(e cqe, solicited bool) {
	if f := &c.ctx.dev.faults; f.holdCompletions {
		f.late = append(f.late, lateCompletion{c, e, solicited})
		return
	}
	if c.n == len(c.ring) {
		c.lose()
		return
	}
	c.ring[(c.head+c.n)%len(c.ring)] = e
	c.n++
	if c.arm == armedAll || c.arm == armedSolicited && (solicited || e.wc.Status != driver.Success) {
		c.arm = unarmed
		if c.channel != nil {
			c.channel.events.Put(c)
		}
	}
}

// lose is what happens to a queue that is full: an event, once, and all its QPs
// go to the error state.
func (c *cq) lose() {
	if c.overrun {
		return
	}
	c.overrun = true
	c.ctx.events.Put(driver.Event{Type: driver.EventCQErr, Cookie: c.cookie})
	for _, q := range c.qps {
		q.fail()
	}
}

// drop takes out what belongs to q.
func (c *cq) drop(q *qp) {
	kept := 0
	for i := range c.n {
		e := c.ring[(c.head+i)%len(c.ring)]
		if e.qp != q {
			c.ring[(c.head+kept)%len(c.ring)] = e
			kept++
		}
	}
	c.n = kept
	f := &c.ctx.dev.faults
	f.late = slices.DeleteFunc(f.late, func(l lateCompletion) bool { return l.e.qp == q && l.cq == c })
}

// leave takes q off the list, once.
func (c *cq) leave(q *qp) {
	i := slices.Index(c.qps, q)
	c.qps = slices.Delete(c.qps, i, i+1)
}

type compChannel struct {
	ctx    *memContext
	events *softdev.Mailbox[*cq]
	turn   turn
	users  int
}

func (ch *compChannel) Wait(ctx context.Context) (uint64, error) {
	ch.turn.take("CompChannel.Wait")
	defer ch.turn.give()
	c, err := ch.events.Wait(ctx)
	if err != nil {
		return 0, err
	}
	return c.cookie, nil
}

func (ch *compChannel) Close() error {
	dev := ch.ctx.dev
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	if ch.users > 0 {
		return driver.ErrBusy
	}
	if err := dev.faults.next(OpClose); err != nil {
		return err
	}
	ch.ctx.users--
	ch.events.Close()
	return nil
}

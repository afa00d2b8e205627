package softroce

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// cq is a ring of completions.
type cq struct {
	driver.BaseCQ
	ctx     *softContext
	channel *compChannel
	cookie  uint64
	users   atomic.Int64 // QPs, one that uses it twice counts twice

	filled atomic.Bool // whether there may be anything, for a Poll that finds nothing

	mu      sync.Mutex
	ring    []cqe
	head, n int
	arm     arming
	hold    moderation
	overrun bool
}

// cqe is a completion and the queue slots that polling it frees.
type cqe struct {
	wc    driver.WC
	qp    *qp
	freed *atomic.Uint64 // position up to which slots of the queue are free; nil for an SRQ
	upTo  uint64
}

type arming uint8

const (
	unarmed arming = iota
	armedSolicited
	armedAll
)

func (c *cq) Poll(wcs []driver.WC) (n int, err error) {
	if !c.filled.Load() && !(c.ctx.e.poll() && c.filled.Load()) {
		return 0, nil
	}
	c.mu.Lock()
	for ; n < len(wcs) && c.n > 0; n++ {
		e := &c.ring[c.head]
		wcs[n] = e.wc
		if e.freed != nil {
			e.freed.Store(e.upTo)
		}
		e.qp, e.freed = nil, nil
		if c.head++; c.head == len(c.ring) {
			c.head = 0
		}
		c.n--
	}
	switch {
	case c.overrun:
		if n == 0 && len(wcs) > 0 {
			err = driver.ErrCQOverrun
		}
	case c.n == 0:
		c.filled.Store(false)
	}
	c.mu.Unlock()
	return n, err
}

func (c *cq) Arm(solicitedOnly bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A queue armed for all stays so when asked for less, as on hardware.
	if solicitedOnly {
		c.arm = max(c.arm, armedSolicited)
	} else {
		c.arm = armedAll
	}
	// Who arms goes to sleep.
	select {
	case c.ctx.e.handover <- struct{}{}:
	default:
	}
	return nil
}

func (c *cq) Depth() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ring)
}

// Resize keeps what is in the queue.
func (c *cq) Resize(depth int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if depth < 1 || depth > maxCQE || depth < c.n {
		return syscall.EINVAL
	}
	ring := make([]cqe, depth)
	for i := range c.n {
		ring[i] = c.ring[(c.head+i)%len(c.ring)]
	}
	c.ring, c.head = ring, 0
	return nil
}

func (c *cq) Close() error {
	if c.users.Load() > 0 {
		return driver.ErrBusy
	}
	c.mu.Lock()
	c.let()
	c.mu.Unlock()
	if c.channel != nil {
		c.channel.users.Add(-1)
		c.channel.events.Drop(func(o *cq) bool { return o == c })
	}
	c.ctx.e.cqs.Add(-1)
	c.ctx.users.Add(-1)
	return nil
}

// put adds a completion. It reports false if the queue is full, now or before:
// completions were lost, and the QP must stop.
func (c *cq) put(e cqe, solicited bool) bool {
	c.mu.Lock()
	if c.overrun || c.n == len(c.ring) {
		first := !c.overrun
		c.overrun = true
		c.filled.Store(true)
		c.mu.Unlock()
		if first {
			c.ctx.events.Put(driver.Event{Type: driver.EventCQErr, Cookie: c.cookie})
		}
		return false
	}
	at := c.head + c.n
	if at >= len(c.ring) {
		at -= len(c.ring)
	}
	c.ring[at] = e
	if c.n++; c.n == 1 {
		c.filled.Store(true)
	}
	wake := c.channel != nil && (c.arm == armedAll || c.arm == armedSolicited && (solicited || e.wc.Status != driver.Success))
	if wake = wake && !c.holds(e.wc.Status); wake {
		c.arm = unarmed
	}
	c.mu.Unlock()
	if wake {
		c.channel.events.Put(c)
	}
	return true
}

// drop takes out what belongs to q.
func (c *cq) drop(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := 0
	for i := range c.n {
		e := c.ring[(c.head+i)%len(c.ring)]
		if e.qp != q {
			c.ring[(c.head+kept)%len(c.ring)] = e
			kept++
		}
	}
	c.n = kept
}

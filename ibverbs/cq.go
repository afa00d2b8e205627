package ibverbs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/spin"
)

// CQ is a completion queue. Any number of QPs may use it for their sends, their
// receives or both.
type CQ struct {
	dev *device
	d   driver.CQ
	n   *node
	ch  *CompChannel // nil without events
	own bool         // ch is closed with the CQ

	depth atomic.Int64

	mu    spin.Mutex // a poll is shorter than the second half of a sync.Mutex
	fault error      // ErrClosed, ErrCQOverrun or ErrDeviceGone, as the *Error to return
	qps   map[uint32]*QP
	full  bool // overrun was handled

	waiters atomic.Int32
	passed  chan struct{} // an event, handed to one waiter
	gone    chan struct{}
}

// CQOption changes what CreateCQ makes.
type CQOption func(*cqOptions)

type cqOptions struct {
	events  bool
	channel *CompChannel
	vector  int
}

// WithEvents gives the CQ a completion channel of its own, so that Wait sleeps
// until a completion comes.
func WithEvents() CQOption { return func(o *cqOptions) { o.events = true } }

// WithChannel makes the CQ send its events to ch, which other CQs may share.
func WithChannel(ch *CompChannel) CQOption { return func(o *cqOptions) { o.channel = ch } }

// WithVector chooses the completion vector, that is, which interrupt and so
// which processor; 0 is the default. DeviceAttr.CompVectors is how many there
// are.
func WithVector(v int) CQOption { return func(o *cqOptions) { o.vector = v } }

// CreateCQ makes a CQ for at least depth completions. A queue that gets more
// before they are polled is overrun: it loses completions, reports
// ErrCQOverrun, and its QPs go to Err.
func (v *device) CreateCQ(depth int, opts ...CQOption) (*CQ, error) {
	const op = "create CQ"
	var o cqOptions
	for _, f := range opts {
		if f != nil {
			f(&o)
		}
	}
	if depth < 1 {
		return nil, &Error{Op: op, Device: v.info.Name, Err: errDepth}
	}
	c := &CQ{dev: v, ch: o.channel, qps: map[uint32]*QP{}, passed: make(chan struct{}, 1), gone: make(chan struct{})}
	if o.events && c.ch == nil {
		ch, err := v.CreateCompChannel()
		if err != nil {
			return nil, err
		}
		c.ch, c.own = ch, true
	}
	config := driver.CQConfig{Depth: depth, Vector: o.vector}
	var parents []*node
	if c.ch != nil {
		if c.ch.dev != v {
			return nil, &Error{Op: op, Device: v.info.Name, Object: c.ch.n.label(), Err: errOtherChannel}
		}
		config.Channel, parents = c.ch.d, []*node{c.ch.n}
	}
	err := v.create(op, rankCQ, "CQ", parents, func(n *node) (string, func() error, error) {
		config.Cookie = n.id
		d, err := v.d.CreateCQ(config)
		if err != nil {
			return "", nil, v.explainCQ(err, depth, o.vector)
		}
		c.d, c.n = d, n
		c.depth.Store(int64(d.Depth()))
		return "", c.destroy, nil
	}, c)
	if err != nil {
		if c.own {
			_ = c.ch.Close()
		}
		return nil, err
	}
	return c, nil
}

// Depth is how many completions fit.
func (c *CQ) Depth() int { return int(c.depth.Load()) }

// Resize makes room for at least depth completions, and keeps what is there. It
// is EINVAL below that. Polls wait meanwhile.
func (c *CQ) Resize(depth int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		return c.fault
	}
	if depth < 1 {
		return &Error{Op: "resize CQ", Device: c.dev.info.Name, Object: c.n.name, Err: errDepth}
	}
	err := c.dev.explainCQ(c.d.Resize(depth), depth, 0)
	if err == syscall.EINVAL {
		err = because(err, fmt.Sprintf("the depth is %d, and more completions may be in the queue", depth))
	}
	c.depth.Store(int64(c.d.Depth()))
	return wrap("resize CQ", c.dev.info.Name, c.n.name, err)
}

// Moderate makes the device raise an event only after count completions, or
// period after the first, whichever is sooner. Zeros end it.
func (c *CQ) Moderate(count int, period time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		return c.fault
	}
	err := c.d.Moderate(count, int(period.Microseconds()))
	return wrap("moderate CQ", c.dev.info.Name, c.n.name, explain(err, extent{"the count", count, 0, math.MaxUint16},
		extent{"the period in microseconds", int(period.Microseconds()), 0, math.MaxUint16}))
}

// Poll fills wcs from the front and returns how many; 0 means nothing yet. It
// never blocks and allocates nothing, also when wcs is an array on the stack. A
// loop that finds nothing must yield (runtime.Gosched), or use Wait. After an
// overrun or the loss of the device it returns what is left and then the error.
func (c *CQ) Poll(wcs []WC) (n int, err error) {
	c.mu.Lock()
	if c.fault == nil {
		n, err = c.d.Poll(hide(wcs))
	} else {
		n, err = c.drain(wcs)
	}
	c.mu.Unlock()
	if err != nil {
		err = c.polled(err)
	}
	return n, err
}

// drain is Poll of a queue that has failed.
func (c *CQ) drain(wcs []WC) (int, error) {
	if !errors.Is(c.fault, driver.ErrClosed) {
		if n, err := c.d.Poll(hide(wcs)); n > 0 && err == nil {
			return n, nil
		}
	}
	return 0, c.fault
}

// polled handles an error of Poll. A driver that sees an overrun itself tells it
// this way.
func (c *CQ) polled(err error) error {
	if _, ok := err.(*Error); ok {
		return err
	}
	if errors.Is(err, driver.ErrCQOverrun) {
		c.dev.background.run(c.overrun()) // a poll does not wait for QPs
	}
	return wrap("poll", c.dev.info.Name, c.n.name, err)
}

// spins is how often Wait polls before it goes to sleep: enough for a peer on
// the same machine to answer, little enough not to be felt.
const spins = 64

// Wait returns at least one completion or an *Error: around the error and cause of
// ctx, or ErrClosed, ErrCQOverrun or ErrDeviceGone. It polls a little, then arms the queue and
// sleeps until the event; without a channel it sleeps in steps of up to 1 ms.
// When ctx is done at the call it takes nothing from the queue. Several
// goroutines may wait on one CQ.
func (c *CQ) Wait(ctx context.Context, wcs []WC) (int, error) {
	if len(wcs) == 0 {
		return 0, &Error{Op: "wait for completion", Device: c.dev.info.Name, Object: c.n.name, Err: errNoRoom}
	}
	if ctx == nil {
		return 0, c.late(ctx)
	}
	for range spins {
		if ctx.Err() != nil {
			return 0, c.late(ctx)
		}
		if n, err := c.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		runtime.Gosched()
	}
	if c.ch == nil {
		return c.waitByTime(ctx, wcs)
	}
	return c.waitByEvent(ctx, wcs)
}

func (c *CQ) waitByTime(ctx context.Context, wcs []WC) (int, error) {
	const most = time.Millisecond
	step := 20 * time.Microsecond
	timer := time.NewTimer(step)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-c.gone:
		case <-ctx.Done():
			return 0, c.late(ctx)
		}
		if ctx.Err() != nil {
			return 0, c.late(ctx)
		}
		if n, err := c.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		step = min(2*step, most)
		timer.Reset(step)
	}
}

// waitByEvent sleeps on the channel. One event may stand for many completions
// and wakes one waiter: whoever leaves passes it on.
func (c *CQ) waitByEvent(ctx context.Context, wcs []WC) (int, error) {
	c.waiters.Add(1)
	defer func() {
		if c.waiters.Add(-1) > 0 {
			c.pass()
		}
	}()
	for {
		if err := c.Arm(false); err != nil {
			return 0, err
		}
		// What came before Arm gives no event.
		if n, err := c.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		if c.ch.take(c) == nil {
			if err := c.sleep(ctx); err != nil {
				return 0, err
			}
		}
		if ctx.Err() != nil {
			return 0, c.late(ctx)
		}
		if n, err := c.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
	}
}

// sleep returns when there may be something to poll.
func (c *CQ) sleep(ctx context.Context) error {
	select {
	case <-c.passed:
	case <-c.gone:
	case c.ch.reading <- struct{}{}:
		err := c.read(ctx)
		<-c.ch.reading
		if ctx.Err() != nil {
			return c.late(ctx)
		}
		return wrap("wait for completion event", c.dev.info.Name, c.n.name, err)
	case <-ctx.Done():
		return c.late(ctx)
	}
	return nil
}

// late is why Wait has nothing to give.
func (c *CQ) late(ctx context.Context) error {
	return ended(ctx, "wait for completion", c.dev.info.Name, c.n.name)
}

// read takes an event for the queue, or reads the channel, whose lock for reading
// the caller holds. An event that was passed on just before the lock was taken
// must not be left behind.
func (c *CQ) read(ctx context.Context) error {
	select {
	case <-c.passed:
		return nil
	default:
		return c.ch.read(ctx, c)
	}
}

func (c *CQ) pass() {
	select {
	case c.passed <- struct{}{}:
	default:
	}
}

// Arm asks for one event on the channel at the next completion; with
// solicitedOnly at the next one that the peer asked to be told, or that failed.
// Poll once more after it: what is there already gives no event. Wait does all
// of this.
func (c *CQ) Arm(solicitedOnly bool) error {
	if c.ch == nil {
		return &Error{Op: "arm", Device: c.dev.info.Name, Object: c.n.name, Err: errNoEvents, Hint: "create it with WithEvents or WithChannel"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		return c.fault
	}
	return wrap("arm", c.dev.info.Name, c.n.name, c.d.Arm(solicitedOnly))
}

// Err is nil if wc succeeded, else an *Error with the device, the QP and its
// peer around a *CompletionError.
func (c *CQ) Err(wc *WC) error {
	if wc.Status == Success {
		return nil
	}
	e := &Error{Op: "complete request", Device: c.dev.info.Name, Object: fmt.Sprintf("QP %#x", wc.QPN),
		Err: &CompletionError{Status: wc.Status, VendorErr: wc.VendorErr, QPN: wc.QPN, ID: wc.ID}}
	c.mu.Lock()
	q := c.qps[wc.QPN]
	c.mu.Unlock()
	if q != nil {
		e.Peer, e.Hint = q.Peer(), q.hintAbout(wc.Status)
	}
	return e
}

// overrun handles a queue that lost completions: it fails, and so do its QPs,
// which would otherwise go on (the kernel's Soft-RoCE leaves them in RTS). What
// it returns moves these to Err.
func (c *CQ) overrun() (rest func()) {
	c.mu.Lock()
	if c.full {
		c.mu.Unlock()
		return func() {}
	}
	c.full = true
	qps := make([]*QP, 0, len(c.qps))
	for _, q := range c.qps {
		qps = append(qps, q)
		q.brokeBy(driver.ErrCQOverrun)
	}
	c.mu.Unlock()
	c.fail(driver.ErrCQOverrun)
	return func() { tellQPs(qps, driver.ErrCQOverrun) }
}

// fail makes the queue report err for good, and wakes who waits for it.
func (c *CQ) fail(err error) {
	e := wrap("poll", c.dev.info.Name, c.n.name, err)
	if errors.Is(err, driver.ErrCQOverrun) {
		e.(*Error).Hint = fmt.Sprintf("it holds %d; make it as deep as all requests that can complete between two polls", c.Depth())
	}
	c.mu.Lock()
	if c.fault == nil {
		c.fault = e
		close(c.gone)
	}
	c.mu.Unlock()
	if c.ch != nil {
		c.ch.failed(c)
	}
}

// failure is what the queue reports for good, nil if it works.
func (c *CQ) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.fault.(*Error); ok {
		return e.Err
	}
	return c.fault
}

func (c *CQ) overran() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.full
}

func (c *CQ) isClosed() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

func (c *CQ) destroy() error {
	closed := wrap("use", c.dev.info.Name, c.n.name, driver.ErrClosed)
	c.mu.Lock()
	err := c.d.Close()
	if errors.Is(err, syscall.EBUSY) {
		c.mu.Unlock()
		return err
	}
	if c.fault == nil {
		close(c.gone)
	}
	c.fault = closed
	c.mu.Unlock()
	if c.ch != nil {
		c.ch.forget(c)
	}
	return err
}

// Close is ErrBusy while a QP uses the queue. Waiters return ErrClosed.
func (c *CQ) Close() error {
	err := c.dev.closeNode("close CQ", c.n)
	if err == nil && c.own {
		return c.ch.Close()
	}
	return err
}

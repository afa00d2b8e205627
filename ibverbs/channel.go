package ibverbs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// CompChannel is a completion channel (struct ibv_comp_channel): CQs made with
// WithChannel tell it when they were armed and have a completion.
type CompChannel struct {
	dev *device
	d   driver.CompChannel
	n   *node
	// reading is held by the one goroutine that reads events, and hands each to
	// whom it concerns.
	reading chan struct{}
	gone    chan struct{}

	mu      sync.Mutex
	ready   []*CQ         // had an event that no CQ.Wait took
	news    chan struct{} // something was added to ready
	stop    context.CancelFunc
	readFor *CQ // whose Wait is reading, nil for CompChannel.Wait
}

func newCompChannel(v *device) *CompChannel {
	return &CompChannel{dev: v, reading: make(chan struct{}, 1), gone: make(chan struct{}), news: make(chan struct{}, 1)}
}

// Wait blocks in Go's network poller until a CQ of the channel has an event,
// which it acknowledges, until ctx is done or the channel is closed. The CQ
// must be armed again before its next event. A CQ that fails (ErrCQOverrun,
// ErrDeviceGone) is returned once, armed or not. One goroutine reads at a time;
// others queue, each under its ctx.
func (ch *CompChannel) Wait(ctx context.Context) (*CQ, error) {
	const op = "wait for completion event"
	if ctx == nil {
		return nil, ended(ctx, op, ch.dev.info.Name, ch.n.name)
	}
	for {
		if cq := ch.take(nil); cq != nil {
			return cq, nil
		}
		select {
		case <-ch.news:
		case ch.reading <- struct{}{}:
			err := ch.read(ctx, nil)
			<-ch.reading
			if err != nil && ctx.Err() != nil {
				return nil, ended(ctx, op, ch.dev.info.Name, ch.n.name)
			}
			if err != nil {
				return nil, wrap(op, ch.dev.info.Name, ch.n.name, err)
			}
		case <-ch.gone:
			return nil, wrap(op, ch.dev.info.Name, ch.n.name, driver.ErrClosed)
		case <-ctx.Done():
			return nil, ended(ctx, op, ch.dev.info.Name, ch.n.name)
		}
	}
}

// take removes a CQ that had an event: want, or any for nil.
func (ch *CompChannel) take(want *CQ) *CQ {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for i, cq := range ch.ready {
		if want == nil || cq == want {
			ch.ready = slices.Delete(ch.ready, i, i+1)
			if len(ch.ready) > 0 {
				ch.tell()
			}
			return cq
		}
	}
	return nil
}

func (ch *CompChannel) tell() {
	select {
	case ch.news <- struct{}{}:
	default:
	}
}

// read takes one event from the device and hands it on. It is called by the
// holder of reading. cq is on whose behalf, nil for Wait; its end, and for Wait
// a CQ that failed, end the read without an error.
func (ch *CompChannel) read(outer context.Context, cq *CQ) error {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	ch.mu.Lock()
	ch.stop, ch.readFor = cancel, cq
	known := cq == nil && len(ch.ready) > 0 || cq != nil && cq.isClosed()
	ch.mu.Unlock()
	if known {
		return nil
	}
	cookie, err := ch.d.Wait(ctx)
	ch.mu.Lock()
	ch.stop, ch.readFor = nil, nil
	ch.mu.Unlock()
	if err != nil {
		if outer.Err() == nil && ctx.Err() != nil {
			return nil // ended by forget or failed
		}
		return err
	}
	if hit, ok := ch.dev.tree.find(cookie).(*CQ); ok && hit != cq {
		ch.hand(hit)
	}
	return nil
}

// hand gives an event to the waiters of its CQ, or keeps it for Wait.
func (ch *CompChannel) hand(cq *CQ) {
	if cq.waiters.Load() > 0 {
		cq.pass()
		return
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !slices.Contains(ch.ready, cq) {
		ch.ready = append(ch.ready, cq)
	}
	ch.tell()
}

// failed hands on a CQ that reports an error from now on, armed or not, so that
// who waits for it by the channel polls it.
func (ch *CompChannel) failed(cq *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !slices.Contains(ch.ready, cq) {
		ch.ready = append(ch.ready, cq)
	}
	ch.tell()
	if ch.stop != nil && (ch.readFor == nil || ch.readFor == cq) {
		ch.stop()
	}
}

// forget drops a CQ that is being closed and ends a read on its behalf.
func (ch *CompChannel) forget(cq *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.ready = slices.DeleteFunc(ch.ready, func(o *CQ) bool { return o == cq })
	if ch.readFor == cq && ch.stop != nil {
		ch.stop()
	}
}

func (ch *CompChannel) destroy() error {
	err := ch.d.Close()
	if !errors.Is(err, syscall.EBUSY) {
		close(ch.gone)
	}
	return err
}

// Close is ErrBusy while a CQ uses the channel. Waiters return ErrClosed.
func (ch *CompChannel) Close() error { return ch.dev.closeNode("close completion channel", ch.n) }

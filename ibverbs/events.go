package ibverbs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/cause"
)

// Event is an asynchronous event of a device. Object is the *QP, *CQ or *SRQ that
// it concerns, nil for ports and the device, or if the object is closed by now.
// Count is how often the same event came since it was last taken; its place among
// the others is that of the last time, so that who takes them all knows how it ended.
type Event struct {
	Type   EventType
	Port   int // 0 unless it concerns a port
	Count  int
	Object any
}

// events reads a device's asynchronous events in one goroutine, acts on those
// that change what the library knows, and hands each to all subscriptions.
type events struct {
	cancel context.CancelFunc
	done   chan struct{}
	mu     sync.Mutex
	subs   map[*Subscription]struct{}
	ended  error // set once the goroutine is gone
}

func (e *events) start(v *device) {
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel, e.done = cancel, make(chan struct{})
	e.subs = map[*Subscription]struct{}{}
	go e.run(ctx, v)
}

func (e *events) run(ctx context.Context, v *device) {
	defer close(e.done)
	for {
		ev, err := v.d.NextEvent(ctx)
		if err == nil {
			err = cause.Of(ctx) // do not work off a flood before closing
		}
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, driver.ErrClosed) {
				err = driver.ErrClosed
			} else {
				v.log.Warn("asynchronous events of an RDMA device end", "device", v.info.Name, "err", err)
				v.gids.end()
				if errors.Is(err, syscall.EIO) {
					v.background.run(v.gone())
				}
			}
			e.end(wrap("wait for asynchronous event", v.info.Name, "", err))
			return
		}
		object := v.tree.find(ev.Cookie) // cookies count from 1
		if rest := v.react(ev, object); rest != nil {
			v.background.run(rest)
		}
		e.deliver(Event{Type: ev.Type, Port: ev.Port, Count: 1, Object: object})
	}
}

// react does what the library itself must do about an event, and returns what of
// that has to wait for calls in the kernel, nil for none.
func (v *device) react(ev driver.Event, object any) (rest func()) {
	switch ev.Type {
	case driver.EventCQErr:
		if cq, ok := object.(*CQ); ok {
			return cq.overrun()
		}
	case driver.EventQPFatal, driver.EventQPReqErr, driver.EventQPAccessErr:
		if qp, ok := object.(*QP); ok {
			qp.broke()
		}
	case driver.EventSRQErr:
		if srq, ok := object.(*SRQ); ok {
			srq.fail(errSRQ)
		}
	case driver.EventGIDChange, driver.EventPortActive, driver.EventPortErr, driver.EventLIDChange, driver.EventClientReregister:
		v.gids.forget()
	case driver.EventDeviceFatal:
		return v.gone()
	}
	return nil
}

// gone tells all queues that the device will complete nothing any more. What it
// returns tells the QPs.
func (v *device) gone() (rest func()) {
	v.lost.Store(true) // before the list: what is being made looks for it afterwards
	var qps []*QP
	for _, n := range v.tree.list() {
		qps = append(qps, v.tellGone(n.object)...)
	}
	return func() { tellQPs(qps, driver.ErrDeviceGone) }
}

// tellGone tells an object, and returns it if it is a QP, which must be told by
// tellQPs too.
func (*device) tellGone(object any) []*QP {
	switch o := object.(type) {
	case *QP:
		o.brokeBy(driver.ErrDeviceGone)
		return []*QP{o}
	case *CQ:
		o.fail(driver.ErrDeviceGone)
	case *SRQ:
		o.fail(driver.ErrDeviceGone)
	}
	return nil
}

// tellQPs waits for the control calls under way on each QP.
func tellQPs(qps []*QP, err error) {
	for _, q := range qps {
		q.fail(err)
	}
}

func (e *events) deliver(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.subs {
		s.add(ev)
	}
}

func (e *events) end(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = err
	for s := range e.subs {
		s.finish(err)
	}
	clear(e.subs)
}

// stop ends the goroutine and waits for it.
func (e *events) stop() {
	e.cancel()
	<-e.done
}

func (e *events) subscribe(device string) *Subscription {
	s := &Subscription{e: e, device: device, ready: make(chan struct{}, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended != nil {
		s.finish(e.ended)
	} else {
		e.subs[s] = struct{}{}
	}
	return s
}

// Subscription gets each asynchronous event of a device once, from when it was
// made. A slow reader loses none: equal events merge and are counted.
type Subscription struct {
	e      *events
	device string
	mu     sync.Mutex
	queue  []Event
	err    error // why no more will come
	ready  chan struct{}
}

func (s *Subscription) add(ev Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := func(q Event) bool { return q.Type == ev.Type && q.Port == ev.Port && q.Object == ev.Object }
	if i := slices.IndexFunc(s.queue, same); i >= 0 {
		ev.Count += s.queue[i].Count
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	s.queue = append(s.queue, ev)
	s.wake()
}

func (s *Subscription) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.wake()
}

func (s *Subscription) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Next waits for the next event, until ctx is done. After the last one it
// returns ErrClosed when the subscription or the device was closed. Several
// goroutines may wait; each event goes to one of them.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	const op = "wait for asynchronous event"
	if ctx == nil {
		return Event{}, ended(ctx, op, s.device, "")
	}
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			ev := s.queue[0]
			s.queue = slices.Delete(s.queue, 0, 1)
			if len(s.queue) > 0 || s.err != nil {
				s.wake()
			}
			s.mu.Unlock()
			return ev, nil
		}
		if err := s.err; err != nil {
			s.wake()
			s.mu.Unlock()
			return Event{}, err
		}
		s.mu.Unlock()
		select {
		case <-s.ready:
		case <-ctx.Done():
			return Event{}, ended(ctx, op, s.device, "")
		}
	}
}

// Close ends the subscription; Next returns what has come and then ErrClosed.
func (s *Subscription) Close() error {
	s.e.mu.Lock()
	delete(s.e.subs, s)
	s.e.mu.Unlock()
	s.finish(driver.ErrClosed)
	return nil
}

package ibverbs_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// openHooked opens mem0 of a fabric through h.
func openHooked(t *testing.T, h *hooked) (*memdriver.Driver, *ibverbs.Context) {
	t.Helper()
	fabric := memdriver.New(memdriver.Config{})
	h.Driver = fabric
	dev := get(ibverbs.Open("mem0", ibverbs.WithDrivers(h)))(t)
	t.Cleanup(func() { try(t, dev.Close()) })
	return fabric, dev
}

// An event that says that a QP has failed counts also if a Modify is just
// coming back, until a Reset.
func TestFailureDuringModify(t *testing.T) {
	h := &hooked{}
	fabric, dev := openHooked(t, h)
	pd, cq := get(dev.AllocPD())(t), get(dev.CreateCQ(64))(t)
	a, b := newQP(t, pd, cq, cq), newQP(t, pd, cq, cq)
	sub := dev.Subscribe()
	h.afterModify = func(q driver.QP, attr *driver.QPAttr) {
		if attr.State == driver.StateRTS && q.Num() == a.Num() {
			fabric.Device("mem0").RaiseQP(q.Num(), driver.EventQPFatal)
			get(sub.Next(deadline(t)))(t)
		}
	}
	join(t, dev, a, b)
	h.afterModify = nil
	if a.State() != ibverbs.StateErr || b.State() != ibverbs.StateRTS {
		t.Errorf("the QP that had %v is in %v, the other in %v", driver.EventQPFatal, a.State(), b.State())
	}
	try(t, a.Modify(&ibverbs.QPAttr{State: ibverbs.StateReset}, ibverbs.QPStateMask))
	toInit(t, a)
	if a.State() != ibverbs.StateInit {
		t.Errorf("after a Reset the QP is in %v", a.State())
	}
}

// A completion that is looked at late says nothing of what its QP is now.
func TestStaleCompletion(t *testing.T) {
	e := connect(t)
	q := e.qps[0]
	get(q.PostRecv(ibverbs.RecvWR{ID: 1}))(t)
	try(t, q.Modify(&ibverbs.QPAttr{State: ibverbs.StateErr}, ibverbs.QPStateMask))
	wc := one(t, e.cqs[0])
	try(t, q.Modify(&ibverbs.QPAttr{State: ibverbs.StateReset}, ibverbs.QPStateMask))
	toInit(t, q)
	if err := e.cqs[0].Err(&wc); !errors.Is(err, ibverbs.WRFlushErr) {
		t.Errorf("the flushed receive says %v", err)
	}
	if q.State() != ibverbs.StateInit {
		t.Errorf("the QP is in INIT and State says %v", q.State())
	}
	if n, err := q.PostSend(e.write(1, 8)); n != 0 || !errors.Is(err, ibverbs.ErrBadState) {
		t.Errorf("a send posted in INIT: %d, %v", n, err)
	}
}

// Poll returns while a QP of its queue is being closed, or sits in a Modify
// when the queue turns out to have been overrun.
func TestPollDoesNotWait(t *testing.T) {
	for _, name := range []string{"close", "modify"} {
		t.Run(name, func(t *testing.T) {
			h := &hooked{}
			fabric, dev := openHooked(t, h)
			pd, cq := get(dev.AllocPD())(t), get(dev.CreateCQ(64))(t)
			q := newQP(t, pd, cq, cq)
			toInit(t, q)
			inside, leave := make(chan struct{}), make(chan struct{})
			slow := sync.OnceFunc(func() { close(inside); <-leave })
			var busy sync.WaitGroup
			if name == "close" {
				h.beforeQPClose = slow
				busy.Go(func() { _ = q.Close() })
			} else {
				h.beforeModify = func(*driver.QPAttr) { slow() }
				busy.Go(func() { _ = q.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit}, ibverbs.QPStateMask) })
				<-inside
				fabric.Device("mem0").FailNext(memdriver.OpPoll, driver.ErrCQOverrun)
			}
			<-inside
			var wcs [1]ibverbs.WC
			_, err := cq.Poll(wcs[:]) // hangs if it waits
			if want := name == "modify"; errors.Is(err, ibverbs.ErrCQOverrun) != want {
				t.Errorf("poll says %v", err)
			}
			close(leave)
			busy.Wait()
		})
	}
}

// What is made while the device goes learns of it.
func TestGoneWhileMaking(t *testing.T) {
	h := &hooked{}
	fabric, dev := openHooked(t, h)
	sub := dev.Subscribe()
	h.cqMade = func() {
		fabric.Device("mem0").Fatal()
		get(sub.Next(deadline(t)))(t) // the library has acted on it by now
	}
	cq := get(dev.CreateCQ(16))(t)
	var wcs [1]ibverbs.WC
	if _, err := cq.Wait(deadline(t), wcs[:]); !errors.Is(err, ibverbs.ErrDeviceGone) {
		t.Errorf("wait on a queue of a lost device says %v", err)
	}
}

// Where events cannot be read any more, nothing is remembered that an event
// would change, and the log says so.
func TestEventsEnd(t *testing.T) {
	var log bytes.Buffer
	fabric := memdriver.New(memdriver.Config{})
	h := &hooked{Driver: fabric, nextEvent: func() error { return errors.New("bad descriptor") }}
	dev := get(ibverbs.Open("mem0", ibverbs.WithDrivers(h), ibverbs.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))(t)
	defer func() { try(t, dev.Close()) }()
	if _, err := dev.Subscribe().Next(deadline(t)); err == nil {
		t.Error("a subscription without events has one")
	}
	before := get(dev.GIDs(1))(t)
	fabric.Device("mem0").SetGIDs(1, before[:1])
	if after := get(dev.GIDs(1))(t); len(after) != 1 {
		t.Errorf("a table of one GID has %d", len(after))
	}
	if !strings.Contains(log.String(), "bad descriptor") {
		t.Errorf("the log says %q", &log)
	}
}

// Events come also while a QP sits in a Modify, and the loss of the device is
// known to its queues at once.
func TestEventDuringModify(t *testing.T) {
	h := &hooked{}
	fabric, dev := openHooked(t, h)
	pd, cq := get(dev.AllocPD())(t), get(dev.CreateCQ(64))(t)
	q := newQP(t, pd, cq, cq)
	toInit(t, q)
	sub := dev.Subscribe()
	inside, leave := make(chan struct{}), make(chan struct{})
	slow := sync.OnceFunc(func() { close(inside); <-leave })
	h.beforeModify = func(*driver.QPAttr) { slow() }
	var busy sync.WaitGroup
	busy.Go(func() { _ = q.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit}, ibverbs.QPStateMask) })
	<-inside
	fabric.Device("mem0").Fatal()
	if ev := get(sub.Next(deadline(t)))(t); ev.Type != ibverbs.EventDeviceFatal {
		t.Errorf("event %+v", ev)
	}
	if _, err := q.PostRecv(ibverbs.RecvWR{ID: 1}); !errors.Is(err, ibverbs.ErrDeviceGone) {
		t.Errorf("a receive posted to a lost device: %v", err)
	}
	close(leave)
	busy.Wait()
}

// A poll that tells of an overrun is the last that looks as if nothing were, and the device is told to stop the queue's QPs: not all do
// by themselves.
func TestOverrunIsToldAtOnce(t *testing.T) {
	h := &hooked{}
	fabric, dev := openHooked(t, h)
	pd, cq := get(dev.AllocPD())(t), get(dev.CreateCQ(64))(t)
	q := newQP(t, pd, cq, cq)
	toInit(t, q)
	stopped := make(chan ibverbs.QPState, 1)
	h.beforeModify = func(a *driver.QPAttr) { stopped <- a.State }
	fabric.Device("mem0").FailNext(memdriver.OpPoll, driver.ErrCQOverrun)
	var wcs [1]ibverbs.WC
	for range 2 {
		if _, err := cq.Poll(wcs[:]); !errors.Is(err, ibverbs.ErrCQOverrun) {
			t.Errorf("poll says %v", err)
		}
	}
	if _, err := q.PostRecv(ibverbs.RecvWR{ID: 1}); !errors.Is(err, ibverbs.ErrCQOverrun) {
		t.Errorf("a receive posted to a QP of the queue: %v", err)
	}
	select {
	case state := <-stopped:
		if state != ibverbs.StateErr {
			t.Errorf("the QP was moved to %v", state)
		}
	case <-deadline(t).Done():
		t.Error("the device was not told to stop the QP")
	}
}

// What a device that is gone answers to a Close is success: nothing is left of the object. Any other failure is told once, and the object
// is gone all the same.
func TestCloseOfWhatIsGone(t *testing.T) {
	for _, c := range []struct{ answer, want error }{{driver.ErrDeviceGone, nil}, {syscall.EIO, nil}, {syscall.EFAULT, syscall.EFAULT}} {
		h := &hooked{qpClosed: c.answer}
		_, dev := openHooked(t, h)
		pd, cq := get(dev.AllocPD())(t), get(dev.CreateCQ(64))(t)
		q := newQP(t, pd, cq, cq)
		if err := q.Close(); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%v: %v", c.answer, err)
		}
		for _, o := range []interface{ Close() error }{q, cq, pd} {
			try(t, o.Close())
		}
		if left := dev.Objects(); len(left) > 0 {
			t.Errorf("%v: left %v", c.answer, left)
		}
	}
}

package shmtransport

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/purerdma/purerdma/internal/cause"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/shmtransport/internal/futex"
)

// Whoever waits looks looksPerRound times with a pause in between, yields to other goroutines, and does so rounds times: some 50 µs.
// Then it sleeps. A yield at every look would cost as much as what is waited for; without any, other goroutines of a processor
// would stand still.
const (
	looksPerRound = 64
	rounds        = 40
	// longestNap is for a peer that breaks the protocol: it can mark the word again just after this process has cleared it for a context that
	// ended, and before the sleeper sleeps.
	longestNap = time.Second
)

// nap is how one side goes to sleep without losing a wake-up, as a machine of small steps: the same steps run here, on the memory, and
// in the test that explores their interleavings with the other side's.
//
// The other side publishes (a cell, or what it has read) and then looks whether the word says asleep. Here the word is set, then
// published things are looked for once more. One of the two must see the other's store, which takes a full barrier on both sides
// between store and load; the step barrier makes it for both, so that the many publishes need none.
type nap struct{ at napStep }

type napStep uint8

// The steps of a nap, in their order.
const (
	napMark napStep = iota // say that we are about to sleep
	napBarrier
	napLook  // is there something by now?
	napSleep // unless somebody has cleared the word
	napClear
	napOver
)

// bed is what a nap touches.
type bed interface {
	mark(v uint32) // store the word
	barrier()
	ready() bool
	sleep() // while the word is 1
}

// step makes one step. Each touches shared memory once.
func (n *nap) step(b bed) {
	switch n.at {
	case napMark:
		b.mark(1)
		n.at = napBarrier
	case napBarrier:
		b.barrier()
		n.at = napLook
	case napLook:
		n.at = napSleep
		if b.ready() {
			n.at = napClear
		}
	case napSleep:
		b.sleep()
		n.at = napClear
	case napClear:
		b.mark(0)
		n.at = napOver
	}
}

// waiter is one direction's waiting in this process.
type waiter struct {
	life   *life
	asleep *uint32
	fenced bool            // no futex.Barrier: each side has fences of its own
	look   func(int) bool  // is what is waited for there? A bounded poll of so many looks.
	what   string          // that is, for people
	ctx    context.Context // of the wait that goes on

	// The context whose end wakes us stays registered until another one comes: to register costs allocations, and programs mostly wait
	// with the same one again.
	registered <-chan struct{}
	stop       func() bool
}

// mark implements [bed].
func (w *waiter) mark(v uint32) { atomic.StoreUint32(w.asleep, v) }

// barrier implements [bed].
func (w *waiter) barrier() {
	if w.fenced {
		mmio.FullFence()
		return
	}
	futex.Barrier()
}

// ready implements [bed].
func (w *waiter) ready() bool { return w.look(1) || w.life.state.Load() != 0 || w.ctx.Err() != nil }

// sleep implements [bed].
func (w *waiter) sleep() { _ = futex.Wait(w.asleep, 1, longestNap) }

// wait returns nil when there may be something, else why the context ended.
func (w *waiter) wait(ctx context.Context) error {
	if ctx == nil {
		return w.ended(ctx)
	}
	for range rounds {
		if w.look(looksPerRound) || w.life.state.Load() != 0 {
			return nil
		}
		runtime.Gosched()
	}
	if ctx.Err() == nil {
		w.register(ctx)
		w.ctx = ctx
		for n := (nap{}); n.at != napOver; {
			n.step(w)
		}
		w.ctx = nil
	}
	if ctx.Err() == nil {
		return nil
	}
	return w.ended(ctx)
}

func (w *waiter) ended(ctx context.Context) error {
	with := "by a file"
	if pid := w.life.peer.PID; pid != 0 {
		with = fmt.Sprintf("with process %d", pid)
	}
	return fmt.Errorf("shared memory %s: wait for %s: %w", with, w.what, cause.Of(ctx))
}

// register makes the end of ctx wake this process's sleepers.
func (w *waiter) register(ctx context.Context) {
	if ctx.Done() == w.registered {
		return
	}
	w.unregister()
	if w.registered = ctx.Done(); w.registered != nil {
		w.stop = context.AfterFunc(ctx, w.life.wakeAll)
	}
}

func (w *waiter) unregister() {
	if w.stop != nil {
		w.stop()
	}
	w.registered, w.stop = nil, nil
}

package shmtransport

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/purerdma/purerdma/internal/mmio"
)

// gate tells Close whether a goroutine is in the memory, or has a piece of it. A goroutine that comes in stores that it is inside,
// then looks whether the end has come; Close stores that the end has come, then looks who is inside. Each must see the other's store,
// which takes a full barrier between a side's store and load. Calls come by the million and Close once, so Close makes the barrier
// for both (futex.Barrier), where the kernel can.
type gate struct {
	state  uint32
	held   uint32 // of the goroutine inside: what state becomes when it leaves
	fenced bool   // no futex.Barrier: whoever comes in has a fence of its own
}

// quick is enter where nothing is special, small enough for the compiler to put it into its callers. Where it reports false, enter
// says what is.
func (g *gate) quick(l *life) bool {
	if g.held|g.load() != 0 || g.fenced {
		return false
	}
	g.store(inside)
	if l.state.Load() == 0 {
		return true
	}
	g.store(0)
	return false
}

// The bits of a gate's state.
const (
	inside   = 1
	heldSend = 2 // memory from Acquire is out
	heldRecv = 4 // memory from Next is out
	orphaned = 8 // Close left the mapping to whoever holds memory
)

// enter comes in, or says why not. Whoever got in calls leave.
func (g *gate) enter(l *life) error {
	if g.held == 0 {
		if g.load() != 0 {
			return g.refused()
		}
		g.store(inside)
		if g.fenced {
			mmio.FullFence()
		}
	} else if !atomic.CompareAndSwapUint32(&g.state, g.held, g.held|inside) {
		return g.refused()
	}
	if l.state.Load()&closed != 0 {
		g.leave()
		return ErrClosed
	}
	return nil
}

func (g *gate) refused() error {
	if atomic.LoadUint32(&g.state)&orphaned != 0 {
		return ErrClosed
	}
	return ErrBusy
}

func (g *gate) leave() { g.store(g.held) }

// drop ends the holding of memory after enter has failed. last says that Close left the mapping to it.
func (g *gate) drop(bit uint32) (last bool) {
	if atomic.LoadUint32(&g.state)&orphaned == 0 {
		g.held &^= bit
		return false
	}
	had := g.held
	g.held &^= bit
	return had != 0 && g.held == 0
}

// shut waits, after the closed bit is set and the barrier made, until nobody is inside. orphan says that memory is held: whoever does
// gets the mapping.
func (g *gate) shut() (orphan bool) {
	const yields, most = 64, time.Millisecond
	for i, nap := 0, 10*time.Microsecond; ; i++ {
		switch s := atomic.LoadUint32(&g.state); {
		case s == 0:
			return false
		case s&inside == 0 && s&orphaned == 0:
			if atomic.CompareAndSwapUint32(&g.state, s, s|orphaned) {
				return true
			}
		case s&orphaned != 0:
			return false
		}
		if i < yields {
			runtime.Gosched()
			continue
		}
		time.Sleep(nap)
		nap = min(2*nap, most)
	}
}

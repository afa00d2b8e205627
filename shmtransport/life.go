package shmtransport

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/internal/offheap"
	"github.com/purerdma/purerdma/shmtransport/internal/futex"
)

// life is what both directions know of the end of their connection, and the mapping, which stays until nobody uses it.
type life struct {
	state atomic.Uint32
	peer  Peer // for errors

	mu       sync.Mutex // of what follows
	mapped   bool
	span     offheap.Span
	sleepers [2]*uint32 // the words on which this process sleeps
	why      error      // of the broken bit
}

// The bits of a life's state. Several may be set.
const (
	closed = 1 << iota // by Close of this process
	done               // the peer closed in order
	gone               // the peer ended otherwise
	broken             // ErrProtocol
)

// end sets a bit and wakes whoever sleeps in this process. A sleeper that has set its word looks at the state once more before it
// sleeps, so one of the two sees the other.
func (l *life) end(bit uint32, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if why != nil && l.why == nil {
		l.why = why
	}
	l.state.Or(bit)
	l.wake()
}

// wakeAll makes whoever sleeps in this process look around.
func (l *life) wakeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wake()
}

func (l *life) wake() {
	if !l.mapped {
		return
	}
	for _, p := range l.sleepers {
		atomic.StoreUint32(p, 0)
		futex.Wake(p)
	}
}

// brokenBy ends the connection for what the peer wrote.
func (l *life) brokenBy(err error) error {
	l.end(broken, err)
	return err
}

// sending is why nothing can be sent any more, or nil.
func (l *life) sending() error {
	switch s := l.state.Load(); {
	case s == 0:
		return nil
	case s&closed != 0:
		return ErrClosed
	case s&broken != 0:
		return l.reason()
	}
	return ErrPeerGone
}

// receiving is why nothing more will arrive, or nil; inMessage that a part of a message has. What the peer sent before it ended is in
// the memory by the time that this is known.
func (l *life) receiving(inMessage bool) error {
	switch s := l.state.Load(); {
	case s == 0:
		return nil
	case s&closed != 0:
		return ErrClosed
	case s&broken != 0:
		return l.reason()
	case s&done != 0 && !inMessage:
		return io.EOF
	}
	return ErrPeerGone
}

func (l *life) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// close ends the connection in this process and unmaps its memory, once nobody is in it. gates is called under mu with the end said: what
// changes the gates looks for the end there, so that they are all there will be. first says that no call came before.
func (l *life) close(gates func() []*gate) (first bool, err error) {
	l.mu.Lock()
	if l.state.Or(closed)&closed != 0 {
		l.mu.Unlock()
		return false, nil
	}
	all := gates()
	l.wake()
	l.mu.Unlock()
	futex.Barrier()
	var errs []error
	for _, g := range all {
		errs = append(errs, l.span.Retain()) // for a holder, who may release it as soon as the gate is shut
		if orphan := g.shut(); !orphan {
			errs = append(errs, l.span.Release())
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mapped = false
	return true, errors.Join(append(errs, l.span.Release())...)
}

// release ends the holding of memory after the end of the connection; err is why the call fails. Where Close left the mapping to the
// holder it is unmapped.
func (l *life) release(g *gate, bit uint32, err error) error {
	if g.drop(bit) {
		return errors.Join(err, l.span.Release())
	}
	return err
}

// wakePeer wakes the other process's sleeper, whose word was seen set.
func wakePeer(asleep *uint32) {
	mmio.StoreRelease32(asleep, 0)
	futex.Wake(asleep)
}

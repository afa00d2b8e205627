package transport

import (
	"errors"
	"sync"
)

// lane is one direction of messages with one peer: calls in the order in which they came, of which the first has the turn and moves its
// message, over the channels that the first Connect with connection index 0 has connected. Nothing runs while there is no call.
type lane struct {
	comm       *Communicator
	peer       int
	send       bool
	transport  string
	connectors []Connector // by channel

	mu          sync.Mutex
	taken       bool  // somebody has the turn
	first, last *call // who waits for it
	users       int   // calls that have begun and not ended
	lent        bool  // the turn is with whoever called Acquire or Next, between calls
	out         bool  // memory is with them, or a call of theirs is at work
	orphaned    bool  // free left the memory to them
	place       []byte
	at          int   // the channel whose memory it is
	err         error // why there are no more messages
	left        chan struct{}
	pumps       []pump // the ends, from open on

	// Of whoever has the turn.
	outs []outlet
	ins  []inlet
	m    transfer
}

// transfer is the message under way on a lane.
type transfer struct {
	number uint64 // counts messages
	begun  bool
	size   int
	parts  []part
	at     int // the first part that is not done
}

// part is what one channel carries of a message: bytes off to end. off is where it goes on.
type part struct{ off, end, channel int }

// partBytes is the least that a second channel is used for, partAlign what parts but the last are multiples of.
const (
	partBytes = 64 << 10
	partAlign = 128
)

// begin divides a message of size bytes among channels: equal parts, the first of them on the channel that number says.
func (m *transfer) begin(size, channels int) {
	m.begun, m.size, m.at, m.parts = true, size, 0, m.parts[:0]
	most := max(partBytes, ((size+channels-1)/channels+partAlign-1)/partAlign*partAlign)
	for off := 0; off < size || off == 0; off += most {
		m.parts = append(m.parts, part{off, min(off+most, size), (m.lead(channels) + len(m.parts)) % channels})
	}
}

// lead is the channel on which the message begins.
func (m *transfer) lead(channels int) int { return int(m.number % uint64(channels)) }

func (m *transfer) end() { m.begun, m.number = false, m.number+1 }

// done moves at, and tells whether all parts are done.
func (m *transfer) done() bool {
	for m.at < len(m.parts) && m.parts[m.at].off == m.parts[m.at].end {
		m.at++
	}
	return m.at == len(m.parts)
}

// start gives a call its place in the queue, or ends it.
func (l *lane) start(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		c.stage, c.err = over, l.err
		return
	}
	if l.lent && (l.out || l.send || !c.place) {
		c.stage, c.err = over, ErrHeld
		return
	}
	l.users++
	if l.lent { // Next, in the middle of a message
		l.out, c.stage = true, moving
		return
	}
	if !l.taken {
		l.taken, c.stage = true, moving
		return
	}
	c.stage = queued
	if l.last != nil {
		l.last.next = c
	} else {
		l.first = c
	}
	l.last = c
}

// pass gives the turn to the next call.
func (l *lane) pass() {
	l.mu.Lock()
	l.passLocked()
	l.mu.Unlock()
}

func (l *lane) passLocked() {
	c := l.first
	if c == nil {
		l.taken = false
		return
	}
	l.unlink(c)
	c.granted <- struct{}{}
}

// unlink takes a call out of the queue; false if it is not there any more.
func (l *lane) unlink(c *call) bool {
	var before *call
	at := l.first
	for ; at != nil && at != c; at = at.next {
		before = at
	}
	if at == nil {
		return false
	}
	if before == nil {
		l.first = c.next
	} else {
		before.next = c.next
	}
	if l.last == c {
		l.last = before
	}
	c.next = nil
	return true
}

// withdraw takes a call out that waits; false if its turn has come.
func (l *lane) withdraw(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.unlink(c) {
		return false
	}
	l.depart()
	return true
}

// why there are no more messages.
func (l *lane) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// finish ends a call. turn says that it has the turn.
func (l *lane) finish(c *call, turn bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case turn && l.lent:
		l.out = false
	case turn:
		l.passLocked()
	}
	c.stage, c.err = over, err
	l.depart()
}

func (l *lane) depart() {
	if l.users--; l.users == 0 && l.left != nil {
		close(l.left)
		l.left = nil
	}
}

// fail says that there are no more messages, and why, to all that wait. It returns the first such reason.
func (l *lane) fail(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failLocked(err)
}

func (l *lane) failLocked(err error) error {
	if l.err != nil {
		return l.err
	}
	l.err = err
	for c := l.first; c != nil; c = l.first {
		l.unlink(c)
		c.refused = true
		c.granted <- struct{}{}
		l.depart()
	}
	return err
}

// open finds the ends of the channels, once.
func (l *lane) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.pumps != nil {
		return l.err
	}
	for _, c := range l.connectors {
		out, in, err := newEnd(c, l.send)
		if err != nil {
			return err
		}
		if l.send {
			l.outs, l.pumps = append(l.outs, out), append(l.pumps, out)
		} else {
			l.ins, l.pumps = append(l.ins, in), append(l.pumps, in)
		}
	}
	return nil
}

// onGPU tells that the processor does not reach the connection's buffers.
func (l *lane) onGPU() bool {
	if l.open() != nil {
		return false // the call will say why
	}
	for _, p := range l.pumps {
		if p, ok := p.(interface{ onGPU() bool }); ok && p.onGPU() {
			return true
		}
	}
	return false
}

// cut ends the connection, which the peer learns of, and all calls. It returns why there are no more messages.
func (l *lane) cut(err error) error {
	err = l.fail(err)
	l.mu.Lock()
	pumps := l.pumps
	l.mu.Unlock()
	for i, c := range l.connectors {
		var e error
		if i < len(pumps) {
			e = pumps[i].cut()
		} else {
			e = leaveUnused(c, l.send)
		}
		if e != nil {
			l.comm.log.Warn("transport: a connection that has ended was not closed in order", "peer", l.peer, "error", e)
		}
	}
	return err
}

// free waits for calls to end and frees what cut has left.
func (l *lane) free() error {
	l.mu.Lock()
	var left chan struct{}
	if l.users > 0 {
		left = make(chan struct{})
		l.left = left
	}
	l.mu.Unlock()
	if left != nil {
		<-left
	}
	l.mu.Lock()
	l.orphaned = l.out
	l.mu.Unlock()
	if l.orphaned {
		return nil
	}
	return l.release()
}

// release frees the ends.
func (l *lane) release() error {
	var errs []error
	for _, p := range l.pumps {
		errs = append(errs, p.free())
	}
	return errors.Join(errs...)
}

// progress moves what the ends of the message's channels do not move themselves. Before a message it is those of the first channel.
func (l *lane) progress() (moved bool, err error) {
	if !l.m.begun {
		return l.pumps[l.m.lead(len(l.pumps))].progress()
	}
	for _, p := range l.m.parts {
		some, e := l.pumps[p.channel].progress()
		moved = moved || some
		if err == nil {
			err = e
		}
	}
	return moved, err
}

// waitsFor is the end on which the message under way waits: the first channel's that is not done. The peer's end waits for the same one
// or an earlier one, so not both sleep.
func (l *lane) waitsFor() pump {
	if !l.m.begun {
		return l.pumps[l.m.lead(len(l.pumps))]
	}
	return l.pumps[l.m.parts[l.m.at].channel]
}

package transport

import (
	"context"
	"fmt"
)

// MaxAcquire is the most bytes that Acquire gives for a message to a rank: 64 KiB, less where NCCL_BUFFSIZE is small, or 0 without a
// connection and where its buffer is in the memory of a GPU. There Acquire and Next are ErrGPUMemory.
func (c *Communicator) MaxAcquire(peer int) int {
	l := c.lane(true, peer)
	if l == nil || l.open() != nil {
		return 0
	}
	return min(l.outs[0].most(), partBytes) // one part
}

// Acquire waits for n bytes of the connection's memory, at most MaxAcquire, in which the caller makes a message to a rank that
// [Communicator.Commit] sends without copying it. Until then the way to that rank is the caller's: calls that wait for it go on waiting,
// and later ones are ErrHeld. Close leaves the memory; Commit, which is ErrClosed then, gives it back.
func (c *Communicator) Acquire(ctx context.Context, peer, n int) ([]byte, error) {
	if most := c.MaxAcquire(peer); n < 0 || n > most && most > 0 {
		return nil, c.peerError("acquire for", peer, c.lane(true, peer), fmt.Errorf("%w: %d bytes, want 0 to %d", ErrTooLong, n, most))
	}
	k := [1]*call{c.newCallInPlace(true, peer, n)}
	drive(ctx, k[:])
	b := k[0].b.b
	_, err := k[0].end(c, "acquire for", peer)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Commit sends the first n bytes of what Acquire gave as one message, and waits like Send.
func (c *Communicator) Commit(ctx context.Context, peer, n int) error {
	k := calls.Get().(*call)
	k.reset(true, span{}, 0)
	if k.lane = c.lane(true, peer); k.lane == nil {
		k.err = ErrNotHeld
	} else {
		k.lane.commit(k, n)
	}
	one := [1]*call{k}
	drive(ctx, one[:])
	_, err := k.end(c, "commit to", peer)
	return err
}

// Next waits for the next message of a rank and gives it, or its next part, in the connection's memory; left is how many bytes of the
// message come after it, by the next calls. The memory is the caller's until [Communicator.Release], and until then, and until the whole
// message has been read, other calls that receive from that rank are ErrHeld or wait. The peer may still write there if it breaks the
// protocol: copy before you check and use. A message of 0 bytes is to be released, too. When ctx ends nothing is lost.
func (c *Communicator) Next(ctx context.Context, peer int) (b []byte, left int, err error) {
	k := [1]*call{c.newCallInPlace(false, peer, 0)}
	drive(ctx, k[:])
	b = k[0].b.b
	if left, err = k[0].end(c, "receive from", peer); err != nil {
		return nil, 0, err
	}
	return b, left, nil
}

// Release gives back what Next gave.
func (c *Communicator) Release(peer int) error {
	l := c.lane(false, peer)
	err := ErrNotHeld
	if l != nil {
		err = l.giveBack()
	}
	if err != nil {
		return c.peerError("release what came from", peer, l, err)
	}
	return nil
}

func (c *Communicator) newCallInPlace(send bool, peer, n int) *call {
	k := calls.Get().(*call)
	k.reset(send, span{}, n)
	k.place = true
	k.begin(c, peer)
	return k
}

// lane is that of messages to a rank, or from it; nil if there is none.
func (c *Communicator) lane(send bool, peer int) *lane {
	switch {
	case peer < 0 || peer >= c.size:
		return nil
	case send:
		return c.sendLanes[peer].Load()
	}
	return c.recvLanes[peer].Load()
}

// moveInPlace is move of Acquire and Next.
func (l *lane) moveInPlace(k *call) (moved bool) {
	b, left, err := l.reach(k)
	if b == nil && err == nil {
		if moved, err = l.progress(); err != nil && !k.send { // what has come before the end counts
			if b, left, _ = l.reach(k); b != nil {
				err = nil
			}
		}
	}
	switch {
	case err != nil:
		l.finish(k, true, l.fail(l.inWords(err)))
		return true
	case b == nil:
		return moved
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lent, l.out, l.place = true, true, b
	k.b, k.n, k.stage = host(b), left, over
	l.depart()
	return true
}

func (l *lane) reach(k *call) (b []byte, left int, err error) {
	if !k.send {
		return l.reachNext()
	}
	l.at = l.m.lead(len(l.outs))
	b, err = l.outs[l.at].acquire(k.n)
	return b, 0, err
}

// reachNext finds the next bytes of a message, and moves past them but for the release. What was given up by others it drops first.
func (l *lane) reachNext() (b []byte, left int, err error) {
	m := &l.m
	for m.begun && !l.lent {
		if done, _, err := l.takeParts(nil); !done {
			return nil, 0, err
		}
	}
	if !m.begun {
		in := l.ins[m.lead(len(l.ins))]
		size, first, ok, err := in.header()
		if !ok {
			return nil, 0, err
		}
		m.begin(size, len(l.ins))
		p := &m.parts[0]
		if n := min(first.n, p.end); n > 0 || size == 0 {
			p.off, l.at = n, p.channel
			return first.b[:n:n], size - n, nil
		}
		l.mu.Lock()
		l.lent = true // to those who call Next, from here on
		l.mu.Unlock()
		if err := in.release(); err != nil {
			return nil, 0, err
		}
	}
	m.done()
	p := &m.parts[m.at]
	more, ok, err := l.ins[p.channel].next(p.end - p.off)
	if !ok {
		return nil, 0, err
	}
	p.off += more.n
	l.at = p.channel
	return more.b[:more.n:more.n], m.size - p.off, nil
}

// commit sends what Acquire gave; k waits for its end.
func (l *lane) commit(k *call, n int) {
	l.mu.Lock()
	switch {
	case l.place == nil:
		k.err = ErrNotHeld
	case n < 0 || n > len(l.place):
		k.err = fmt.Errorf("%w: %d bytes, want 0 to %d", ErrTooLong, n, len(l.place))
	}
	if k.err != nil {
		l.mu.Unlock()
		return
	}
	l.place = nil
	l.mu.Unlock()
	err := l.outs[l.at].commit(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lent = false
	if k.err = l.returned(err); k.err != nil {
		return
	}
	l.m.number++
	k.marks = append(k.marks[:0], mark{l.at, l.outs[l.at].sent()})
	k.own, k.stage = true, draining
	l.users++
	l.passLocked()
}

// giveBack is Release.
func (l *lane) giveBack() error {
	l.mu.Lock()
	if l.place == nil {
		l.mu.Unlock()
		return ErrNotHeld
	}
	l.place = nil
	l.mu.Unlock()
	err := l.ins[l.at].release()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err = l.returned(err); err == nil && l.m.done() {
		l.m.end()
		l.lent = false
		l.passLocked()
	}
	return err
}

// returned says that no memory is out any more, and why there are no more messages. Freeing is left to it where the lane has ended. The
// caller holds mu.
func (l *lane) returned(err error) error {
	l.out = false
	if l.orphaned {
		l.orphaned = false
		if e := l.release(); e != nil {
			l.comm.log.Warn("transport: memory of a connection was not freed", "peer", l.peer, "error", e)
		}
	}
	if l.err == nil && err != nil {
		l.failLocked(err)
	}
	return l.err
}

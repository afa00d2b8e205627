package transport

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/purerdma/purerdma/internal/cause"
)

// call is one message that this rank sends or receives, until it is over.
type call struct {
	lane *lane // nil where the peer is this rank
	self *self
	send bool
	b    span
	n    int // of a message received: its size
	err  error

	place   bool // Acquire or Next: b is memory of the connection, for n bytes, or of which n come after it
	stage   stage
	own     bool // the message under way on the lane is this call's
	next    *call
	granted chan struct{} // holds a token when the turn has come, or refused is set
	refused bool
	marks   []mark // what must be gone before a message sent is with the peer
}

type mark struct {
	channel int
	sent    uint64
}

type stage uint8

const (
	over     stage = iota
	queued         // waits for the turn
	moving         // has the turn
	draining       // all is given to the connections, which have not brought it to the peer yet
)

var calls = sync.Pool{New: func() any { return &call{granted: make(chan struct{}, 1)} }}

// newCall begins a message with a rank.
func (c *Communicator) newCall(send bool, peer int, b span) *call {
	k := calls.Get().(*call)
	k.reset(send, b, 0)
	k.begin(c, peer)
	return k
}

func (k *call) reset(send bool, b span, n int) {
	*k = call{send: send, b: b, n: n, granted: k.granted, marks: k.marks[:0]}
}

// begin finds what the call goes through, and its place there.
func (k *call) begin(c *Communicator, peer int) {
	send, b := k.send, k.b
	lanes := c.recvLanes
	if send {
		lanes = c.sendLanes
	}
	switch {
	case peer < 0 || peer >= c.size:
		k.stage, k.err = over, errNoPeer
	case send && b.n > MaxMessage:
		k.stage, k.err = over, ErrTooLong
	case peer == c.rank && k.place:
		k.stage, k.err = over, ErrSelf
	case peer == c.rank:
		k.self = &c.self
		k.self.start(k)
	default:
		if k.lane = lanes[peer].Load(); k.lane == nil {
			k.stage, k.err = over, c.unconnected()
		} else if k.place && k.lane.onGPU() {
			k.stage, k.err = over, ErrGPUMemory
		} else {
			k.lane.start(k)
		}
	}
}

// end gives the call back and returns its outcome, as the caller is told of it.
func (k *call) end(c *Communicator, op string, peer int) (int, error) {
	n, err, l := k.n, k.err, k.lane
	k.b, k.err, k.lane, k.self = span{}, nil, nil, nil
	calls.Put(k)
	if err != nil {
		return 0, c.peerError(op, peer, l, err)
	}
	return n, nil
}

func (c *Communicator) peerError(op string, peer int, l *lane, err error) error {
	e := &PeerError{Op: op, Peer: peer, Err: err}
	if peer >= 0 && peer < c.size {
		e.Addr = c.job.Addr(peer)
	}
	if l != nil {
		e.Transport = l.transport
	}
	return e
}

// step moves the call as far as it goes without waiting.
func (k *call) step() (moved bool) {
	switch k.stage {
	case queued:
		select {
		case <-k.granted:
			k.turn()
			return true
		default:
			return false
		}
	case moving:
		return k.move()
	case draining:
		return k.drain()
	}
	return false
}

// turn is what a token says: the call has the turn, or is refused.
func (k *call) turn() {
	switch {
	case k.self != nil:
		k.stage = over
	case k.refused:
		k.stage, k.err = over, k.lane.why()
	default:
		k.stage = moving
	}
}

func (k *call) move() (moved bool) {
	l := k.lane
	if err := l.open(); err != nil {
		l.finish(k, true, l.fail(err))
		return true
	}
	var done bool
	var err error
	if k.place {
		return l.moveInPlace(k)
	}
	if k.send {
		done, moved, err = l.push(k)
	} else {
		done, moved, err = l.pull(k)
	}
	if !done && err == nil {
		var some bool
		some, err = l.progress()
		moved = moved || some
		if err != nil && !k.send { // what has come before the end counts
			done, _, _ = l.pull(k)
		}
	}
	switch {
	case done && k.send:
		l.m.end()
		l.pass()
		k.stage = draining
		k.drain()
		return true
	case done:
		err = nil
		if k.n > k.b.n {
			err = &SizeError{k.n, k.b.n}
		}
		l.finish(k, true, err)
		return true
	case err != nil:
		l.finish(k, true, l.fail(l.inWords(err)))
		return true
	}
	return moved
}

// inWords is what the end of a connection means here.
func (l *lane) inWords(err error) error {
	if l.m.begun && errors.Is(err, ErrPeerClosed) {
		return ErrCut
	}
	return err
}

// push gives the message to the connections as far as there is room.
func (l *lane) push(k *call) (done, moved bool, err error) {
	m := &l.m
	if !m.begun {
		m.begin(k.b.n, len(l.outs))
		p := &m.parts[0]
		n, ok, err := l.outs[p.channel].begin(m.size, k.b.from(0, p.end))
		if !ok {
			m.begun = false
			return false, false, err
		}
		p.off += n
		k.own, moved = true, true
	}
	for i := m.at; i < len(m.parts); i++ {
		p := &m.parts[i]
		for p.off < p.end {
			n, err := l.outs[p.channel].put(k.b.from(p.off, p.end))
			if err != nil {
				return false, moved, err
			}
			if n == 0 {
				break
			}
			p.off += n
			moved = true
		}
	}
	if !m.done() {
		return false, moved, nil
	}
	k.marks = k.marks[:0]
	for _, p := range m.parts {
		k.marks = append(k.marks, mark{p.channel, l.outs[p.channel].sent()})
	}
	return true, true, nil
}

// drain brings what is with the connections to the peer.
func (k *call) drain() (moved bool) {
	l := k.lane
	if k.gone() {
		l.finish(k, false, nil)
		return true
	}
	for _, m := range k.marks {
		some, err := l.pumps[m.channel].progress()
		moved = moved || some
		if err != nil && !k.gone() {
			l.finish(k, false, l.fail(err))
			return true
		}
	}
	return moved
}

func (k *call) gone() bool {
	for _, m := range k.marks {
		if int64(k.lane.outs[m.channel].gone()-m.sent) < 0 {
			return false
		}
	}
	return true
}

// pull takes what has come. The rest of a message whose call was given up it drops first.
func (l *lane) pull(k *call) (done, moved bool, err error) {
	m := &l.m
	for {
		if !m.begun {
			ok, err := l.takeHeader(k)
			if !ok || err != nil {
				return false, moved, err
			}
			moved = true
		}
		var dst *span
		if k.own && m.size <= k.b.n {
			dst = &k.b
		}
		done, some, err := l.takeParts(dst)
		moved = moved || some
		if k.own || !done {
			return done, moved, err
		}
	}
}

// takeParts copies what has come of the message under way, or drops it; done says that it was all of it.
func (l *lane) takeParts(dst *span) (done, moved bool, err error) {
	m := &l.m
	for i := m.at; i < len(m.parts); i++ {
		some, err := l.takePart(&m.parts[i], dst)
		moved = moved || some
		if err != nil {
			return false, moved, err
		}
	}
	if done = m.done(); done {
		m.end()
	}
	return done, moved, nil
}

func (l *lane) takeHeader(k *call) (ok bool, err error) {
	m := &l.m
	in := l.ins[m.lead(len(l.ins))]
	size, first, ok, err := in.header()
	if !ok {
		return false, err
	}
	m.begin(size, len(l.ins))
	k.own, k.n = true, size
	p := &m.parts[0]
	n := min(first.n, p.end)
	if size <= k.b.n {
		if _, err := k.b.copy(first.from(0, n)); err != nil {
			return false, err
		}
	}
	p.off = n
	return true, in.release()
}

// takePart copies what has come of a part, or drops it.
func (l *lane) takePart(p *part, dst *span) (moved bool, err error) {
	for in := l.ins[p.channel]; p.off < p.end; moved = true {
		b, ok, err := in.next(p.end - p.off)
		if !ok {
			return moved, err
		}
		if dst != nil {
			if _, err := dst.from(p.off, p.end).copy(b); err != nil {
				return true, err
			}
		}
		p.off += b.n
		if err := in.release(); err != nil {
			return true, err
		}
	}
	return moved, nil
}

// cancel gives the call up.
func (k *call) cancel(why error) {
	switch {
	case k.self != nil:
		k.self.cancel(k, why)
		return
	case k.stage == queued && k.lane.withdraw(k):
		k.stage, k.err = over, why
		return
	case k.stage == queued:
		<-k.granted
		if k.turn(); k.stage == over {
			return
		}
	}
	switch {
	case k.send && (k.own || k.stage == draining): // nobody will move the rest
		k.lane.finish(k, k.stage == moving, errors.Join(why, k.lane.cut(ErrCut)))
	default: // what has come of a message is lost, its rest dropped by those who receive next
		k.lane.finish(k, true, why)
	}
}

const (
	yields   = 64
	napLeast = 10 * time.Microsecond
	napMost  = time.Millisecond
)

// drive moves calls until all are over. Nobody else does. Where one is left it sleeps until that can go on, if its connection can say so;
// otherwise it looks again, yields, then sleeps for a while.
func drive(ctx context.Context, all []*call) {
	if ctx == nil {
		cancelAll(all, cause.Of(ctx))
		return
	}
	for quiet, nap := 0, napLeast; ; {
		moved, open := false, 0
		var last *call
		for _, k := range all {
			if k.stage == over {
				continue
			}
			moved = k.step() || moved
			if k.stage != over {
				open++
				last = k
			}
		}
		switch {
		case open == 0:
			return
		case moved:
			quiet, nap = 0, napLeast
			continue
		case ctx.Err() != nil:
			cancelAll(all, cause.Of(ctx))
			return
		}
		if open == 1 && last.sleep(ctx) {
			continue
		}
		if quiet++; quiet < yields {
			runtime.Gosched()
			continue
		}
		time.Sleep(nap)
		nap = min(2*nap, napMost)
	}
}

func cancelAll(all []*call, why error) {
	for _, k := range all {
		if k.stage != over {
			k.cancel(why)
		}
	}
}

// sleep waits until the call can go on or ctx ends; false if it cannot know.
func (k *call) sleep(ctx context.Context) bool {
	switch k.stage {
	case queued:
		select {
		case <-k.granted:
			k.turn()
		case <-ctx.Done():
		}
		return true
	case moving:
		if end := k.lane.waitsFor(); end.sleeps() {
			_ = end.wait(ctx) // the next step says what an error means
			return true
		}
	}
	return false
}

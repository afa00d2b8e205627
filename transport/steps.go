package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/transport/driver"
)

// layout is NCCL's, by SIMPLE, in slices and chunks of one step. Its buffer, and the counters too, may be in the memory of GPUs, where
// copies of this rank's GPU move the bytes.
type layout struct {
	connector   Connector
	mine, peers word            // counters of steps: this end's, the peer's
	sizes       *driver.RecvMem // where they are, nil without a FIFO
	memory      []*mr.Buffer    // of the processor, kept here: what is out outlives the connector
	b           span
	room        int                   // of a step, at most chunkBytes where there is a proxy
	burst       int                   // steps that one copy may move: several only on a GPU, whose calls cost more than the bytes
	step        uint64                // the next
	seen        atomic.Uint64         // the peer's counter, as it was last read
	closed      atomic.Bool           // the peer has left
	broken      atomic.Pointer[error] // why the peer's counter could not be read

	mu    sync.Mutex // of what follows
	proxy Proxy
	over  bool // cut
}

func newLayout(c Connector, send bool) (*layout, error) {
	conn := c.Conn()
	if conn == nil {
		return nil, ErrClosed
	}
	g := conn.GPU
	counters, buffer := conn.SendMem != nil && conn.RecvMem != nil, conn.Buffers[Simple] != nil
	if g == nil && !(counters && buffer) || !counters && (g.Head == 0 || g.Tail == 0) || !buffer && g.Buffers[Simple] == 0 {
		return nil, fmt.Errorf("%w: the connection has no counters or no buffer of SIMPLE (NCCL_BUFFSIZE)", ErrConfig)
	}
	l := &layout{connector: c, proxy: c.Proxy()}
	var at *space
	if !counters || !buffer {
		stream, err := g.Context.NewStream()
		if err != nil {
			return nil, err
		}
		at = &space{c: g.Context, stream: stream}
	}
	if err := l.find(conn, at, counters, buffer, send); err != nil {
		return nil, errors.Join(err, l.free(), l.leave(false))
	}
	if l.proxy != nil {
		// One operation for as long as there are messages: a step is what is sent and offered, whichever message it is of.
		if err := l.proxy.Start(Op{Steps: 1 << 62, SliceSteps: 1, ChunkSteps: 1, Bytes: l.room, Protocol: Simple}); err != nil {
			return nil, errors.Join(err, l.free(), l.leave(false))
		}
	}
	return l, nil
}

// find finds counters and buffer.
func (l *layout) find(conn *Conn, at *space, counters, buffer, send bool) error {
	l.b.at = at
	head, tail := word{at: at}, word{at: at}
	if counters {
		sendMem, err := mr.View[driver.SendMem](conn.SendMem, 0)
		if err != nil {
			return err
		}
		recvMem, err := mr.View[driver.RecvMem](conn.RecvMem, 0)
		if err != nil {
			return err
		}
		head.host, tail.host = &sendMem.Head, &recvMem.Tail
		if err := errors.Join(l.keep(conn.SendMem), l.keep(conn.RecvMem)); err != nil {
			return err
		}
		if conn.FIFO {
			l.sizes = recvMem
		}
	} else {
		head.p, tail.p = conn.GPU.Head, conn.GPU.Tail
	}
	if l.mine, l.peers = head, tail; send {
		l.mine, l.peers = tail, head
	}
	if buffer {
		if err := l.keep(conn.Buffers[Simple]); err != nil {
			return err
		}
		l.b = host(conn.Buffers[Simple].Bytes())
		l.b.at = at
	} else {
		l.b = span{c: at.c, p: conn.GPU.Buffers[Simple], n: conn.GPU.Steps[Simple] * driver.Steps, at: at}
	}
	if l.room = l.b.n / driver.Steps; l.proxy != nil || buffer {
		l.room = min(l.room, chunkBytes)
	}
	l.burst = 1
	if l.onGPU() && l.sizes == nil && l.room*driver.Steps == l.b.n {
		l.burst = driver.Steps / 2 // so that both ends copy at the same time
	}
	if l.room <= lineBytes {
		return fmt.Errorf("%w: steps of %d bytes, want more than %d (NCCL_BUFFSIZE)", ErrConfig, l.room, lineBytes)
	}
	return nil
}

func (l *layout) keep(b *mr.Buffer) error {
	kept, err := b.Slice(0, b.Len())
	if err == nil {
		l.memory = append(l.memory, kept)
	}
	return err
}

// slot is the place of the next step.
func (l *layout) slot() span { return l.slots(1) }

// slots is the place of the next steps, which must not go beyond the buffer's end.
func (l *layout) slots(steps int) span {
	size := l.b.n / driver.Steps
	at := int(l.step%driver.Steps) * size
	return l.b.from(at, at+(steps-1)*size+l.room)
}

// wanted is in how many steps one copy may move the next of n bytes, at least 1.
func (l *layout) wanted(n int) int {
	return min(max(1, (n+l.room-1)/l.room), l.burst, driver.Steps-int(l.step%driver.Steps))
}

// onGPU tells that the processor does not reach the buffer.
func (l *layout) onGPU() bool { return l.b.c != nil }

// counter is the peer's. On a GPU it is read anew only if what was read before is not enough.
func (l *layout) counter(enough func(uint64) bool) (uint64, error) {
	v := l.seen.Load()
	if l.peers.host == nil && enough(v) {
		return v, nil
	}
	v, err := l.peers.load()
	if err != nil {
		why := err
		l.broken.CompareAndSwap(nil, &why)
		return 0, err
	}
	if l.peers.host == nil && v&left != 0 {
		l.closed.Store(true)
		v &^= left
	}
	l.seen.Store(v)
	return v, nil
}

// progress leaves the proxy to whoever is at it already.
func (l *layout) progress() (moved bool, err error) {
	if !l.mu.TryLock() {
		return false, nil
	}
	defer l.mu.Unlock()
	switch {
	case l.over:
		return false, ErrClosed
	case l.proxy != nil:
		idle, err := l.proxy.Progress()
		return !idle, err
	}
	if c, ok := l.connector.(interface{ Err() error }); ok { // SHM and P2P, whose layout does not say itself that the peer is gone
		err = ended(c.Err())
	}
	if broken := l.broken.Load(); err == nil && broken != nil {
		err = *broken
	}
	if err == nil && l.closed.Load() {
		err = ErrPeerClosed
	}
	return false, err
}

func (l *layout) sleeps() bool               { return false }
func (l *layout) wait(context.Context) error { return nil }

func (l *layout) cut() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.leave(!l.over && l.there())
	l.over = true
	return errors.Join(err, l.connector.Close())
}

// there tells that the peer has not left, as far as is known.
func (l *layout) there() bool {
	if c, ok := l.connector.(driver.Watcher); ok && c.Err() != nil {
		return false
	}
	if l.peers.host == nil {
		_, err := l.counter(func(uint64) bool { return false })
		return err == nil && !l.closed.Load()
	}
	return true
}

// leave ends the use of GPU memory.
func (l *layout) leave(there bool) error {
	if l.b.at == nil {
		return nil
	}
	return l.b.at.close(&l.mine, there)
}

func (l *layout) free() error {
	var errs []error
	for _, b := range l.memory {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// stepsOut is the producer of a layout.
type stepsOut struct{ *layout }

// empty is the next step's place if the consumer has left it.
func (s *stepsOut) empty() (dst span, ok bool, err error) {
	steps, err := s.vacant(1)
	if steps == 0 {
		return span{}, false, err
	}
	return s.slot(), true, nil
}

// vacant is how many of the next steps the consumer has left, want at most. The counter is the peer's: it cannot be ahead, nor further behind
// than there are steps.
func (s *stepsOut) vacant(want int) (steps int, err error) {
	head, err := s.counter(func(head uint64) bool { return s.step-head <= uint64(driver.Steps-want) })
	if err != nil {
		return 0, err
	}
	used := s.step - head
	switch {
	case s.closed.Load():
		return 0, ErrPeerClosed
	case used <= driver.Steps:
		return min(want, driver.Steps-int(used)), nil
	}
	return 0, fmt.Errorf("%w: the consumer is at step %d, the producer at %d", ErrProtocol, head, s.step)
}

// publish gives the peer the next steps with n bytes.
func (s *stepsOut) publish(steps, n int) error {
	if s.sizes != nil {
		atomic.StoreInt64(&s.sizes.ConnFIFO[s.step%driver.Steps].Size, int64(n))
	}
	s.step += uint64(steps)
	return s.mine.store(s.step)
}

func (s *stepsOut) begin(size int, b span) (taken int, ok bool, err error) {
	dst, ok, err := s.empty()
	if !ok {
		return 0, false, err
	}
	if err := head(dst, size); err != nil {
		return 0, false, err
	}
	n, err := dst.from(lineBytes, dst.n).copy(b)
	if err != nil {
		return 0, false, err
	}
	if err := s.publish(1, lineBytes+n); err != nil {
		return 0, false, err
	}
	return n, true, nil
}

// head writes a header.
func head(dst span, size int) error {
	if dst.c == nil {
		putHeader(dst.b, size)
		return nil
	}
	line := make([]byte, lineBytes)
	putHeader(line, size)
	_, err := dst.copy(host(line))
	return err
}

func (s *stepsOut) put(b span) (int, error) {
	steps, err := s.vacant(s.wanted(b.n))
	if steps == 0 {
		return 0, err
	}
	n, err := s.slots(steps).copy(b)
	if err != nil {
		return 0, err
	}
	return n, s.publish(steps, n)
}

func (s *stepsOut) most() int {
	if s.onGPU() {
		return 0
	}
	return s.room - lineBytes
}

func (s *stepsOut) acquire(n int) ([]byte, error) {
	dst, ok, err := s.empty()
	if !ok {
		return nil, err
	}
	return dst.b[lineBytes : lineBytes+n : lineBytes+n], nil
}

func (s *stepsOut) commit(n int) error {
	putHeader(s.slot().b, n)
	return s.publish(1, lineBytes+n)
}

func (s *stepsOut) sent() uint64 { return s.step }

// gone: where the ends share the processor's memory the peer has what is published, else what the proxy has sent. GPU memory is one of the
// ends', which may free it when it has nothing to send any more, so there the peer has what it has taken.
func (s *stepsOut) gone() uint64 {
	switch {
	case s.peers.host == nil:
		if s.broken.Load() == nil { // progress says why
			_, _ = s.counter(func(head uint64) bool { return false })
		}
		return s.seen.Load()
	case s.sizes == nil:
		return atomic.LoadUint64(s.mine.host)
	}
	return atomic.LoadUint64(s.peers.host)
}

// stepsIn is the consumer of a layout.
type stepsIn struct {
	*layout
	held int // steps that are out until release
}

// full is what is in the next steps, want at most, if something is. Without a FIFO only the producer knows where it ends.
func (s *stepsIn) full(want int) (b span, ok bool, err error) {
	tail, err := s.counter(func(tail uint64) bool { return tail-s.step >= uint64(want) })
	if err != nil {
		return span{}, false, err
	}
	switch ahead := tail - s.step; {
	case ahead == 0 && s.closed.Load():
		return span{}, false, ErrPeerClosed
	case ahead == 0:
		return span{}, false, nil
	case ahead > driver.Steps:
		return span{}, false, fmt.Errorf("%w: the producer is at step %d, the consumer at %d", ErrProtocol, tail, s.step)
	case s.sizes == nil:
		s.held = min(want, int(ahead))
		return s.slots(s.held), true, nil
	}
	s.held = 1
	n := atomic.LoadInt64(&s.sizes.ConnFIFO[s.step%driver.Steps].Size)
	if n < 1 || n > int64(s.room) {
		return span{}, false, fmt.Errorf("%w: step %d has %d bytes, want 1 to %d", ErrProtocol, s.step, n, s.room)
	}
	return s.slot().from(0, int(n)), true, nil
}

func (s *stepsIn) header() (size int, first span, ok bool, err error) {
	b, ok, err := s.full(1)
	if !ok {
		return 0, span{}, false, err
	}
	if b.n < lineBytes {
		return 0, span{}, false, fmt.Errorf("%w: a step of %d bytes where a message begins", ErrProtocol, b.n)
	}
	line := b.b
	if b.c != nil {
		line = make([]byte, headerBytes)
		if _, err := host(line).copy(b); err != nil {
			return 0, span{}, false, err
		}
	}
	size, err = getHeader(line)
	return size, b.from(lineBytes, b.n), err == nil, err
}

func (s *stepsIn) next(rest int) (span, bool, error) {
	b, ok, err := s.full(s.wanted(rest))
	if !ok {
		return span{}, false, err
	}
	if s.sizes != nil && b.n > rest {
		return span{}, false, fmt.Errorf("%w: step %d has %d bytes of a part of which %d are to come", ErrProtocol, s.step, b.n, rest)
	}
	return b.from(0, min(rest, b.n)), true, nil
}

func (s *stepsIn) release() error {
	s.step += uint64(s.held)
	return s.mine.store(s.step)
}

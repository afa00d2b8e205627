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

// layout is NCCL's, by SIMPLE, in slices and chunks of one step.
type layout struct {
	connector Connector
	head      *driver.SendMem
	tail      *driver.RecvMem
	memory    []*mr.Buffer // of head, tail and b, kept here: what is out outlives the connector
	b         []byte
	room      int // of a step, at most chunkBytes
	fifo      bool
	step      uint64 // the next

	mu    sync.Mutex // of what follows
	proxy Proxy
	over  bool // cut
}

func newLayout(c Connector) (*layout, error) {
	conn := c.Conn()
	switch {
	case conn == nil:
		return nil, ErrClosed
	case conn.SendMem == nil || conn.RecvMem == nil || conn.Buffers[Simple] == nil:
		return nil, ErrGPUMemory
	}
	l := &layout{connector: c, fifo: conn.FIFO, proxy: c.Proxy()}
	if l.room = min(conn.Buffers[Simple].Len()/driver.Steps, chunkBytes); l.room <= lineBytes {
		return nil, fmt.Errorf("%w: steps of %d bytes, want more than %d (NCCL_BUFFSIZE)", ErrConfig, l.room, lineBytes)
	}
	if err := l.keep(conn); err != nil {
		return nil, errors.Join(err, l.free())
	}
	if l.proxy != nil {
		// One operation for as long as there are messages: a step is what is sent and offered, whichever message it is of.
		if err := l.proxy.Start(Op{Steps: 1 << 62, SliceSteps: 1, ChunkSteps: 1, Bytes: l.room, Protocol: Simple}); err != nil {
			return nil, errors.Join(err, l.free())
		}
	}
	return l, nil
}

func (l *layout) keep(conn *Conn) (err error) {
	for _, b := range []*mr.Buffer{conn.SendMem, conn.RecvMem, conn.Buffers[Simple]} {
		kept, err := b.Slice(0, b.Len())
		if err != nil {
			return err
		}
		l.memory = append(l.memory, kept)
	}
	if l.head, err = mr.View[driver.SendMem](l.memory[0], 0); err != nil {
		return err
	}
	if l.tail, err = mr.View[driver.RecvMem](l.memory[1], 0); err != nil {
		return err
	}
	l.b = l.memory[2].Bytes()
	return nil
}

// slot is the place of the next step.
func (l *layout) slot() []byte {
	size := len(l.b) / driver.Steps
	return l.b[int(l.step%driver.Steps)*size:][:l.room:l.room]
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
	if c, ok := l.connector.(interface{ Err() error }); ok { // SHM, whose layout does not say itself that the peer is gone
		err = ended(c.Err())
	}
	return false, err
}

func (l *layout) sleeps() bool               { return false }
func (l *layout) wait(context.Context) error { return nil }

func (l *layout) cut() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	return l.connector.Close()
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

// empty is the next step's place if the consumer has left it. The counter is the peer's: it cannot be ahead, nor further behind than there
// are steps.
func (s *stepsOut) empty() ([]byte, error) {
	used := s.step - atomic.LoadUint64(&s.head.Head)
	switch {
	case used < driver.Steps:
		return s.slot(), nil
	case used == driver.Steps:
		return nil, nil
	}
	return nil, fmt.Errorf("%w: the consumer is at step %d, the producer at %d", ErrProtocol, s.step-used, s.step)
}

func (s *stepsOut) publish(n int) {
	if s.fifo {
		atomic.StoreInt64(&s.tail.ConnFIFO[s.step%driver.Steps].Size, int64(n))
	}
	s.step++
	atomic.StoreUint64(&s.tail.Tail, s.step)
}

func (s *stepsOut) begin(size int, b []byte) (taken int, ok bool, err error) {
	dst, err := s.empty()
	if dst == nil {
		return 0, false, err
	}
	putHeader(dst, size)
	n := copy(dst[lineBytes:], b)
	s.publish(lineBytes + n)
	return n, true, nil
}

func (s *stepsOut) put(b []byte) (int, error) {
	dst, err := s.empty()
	if dst == nil {
		return 0, err
	}
	n := copy(dst, b)
	s.publish(n)
	return n, nil
}

func (s *stepsOut) most() int { return s.room - lineBytes }

func (s *stepsOut) acquire(n int) ([]byte, error) {
	dst, err := s.empty()
	if dst == nil {
		return nil, err
	}
	return dst[lineBytes : lineBytes+n : lineBytes+n], nil
}

func (s *stepsOut) commit(n int) error {
	putHeader(s.slot(), n)
	s.publish(lineBytes + n)
	return nil
}

func (s *stepsOut) sent() uint64 { return s.step }

// gone: where the ends share memory the peer has what is published, else what the proxy has sent.
func (s *stepsOut) gone() uint64 {
	if !s.fifo {
		return s.step
	}
	return atomic.LoadUint64(&s.head.Head)
}

// stepsIn is the consumer of a layout.
type stepsIn struct{ *layout }

// full is what is in the next step, if something is. Without a FIFO only the producer knows where it ends.
func (s *stepsIn) full() ([]byte, error) {
	switch ahead := atomic.LoadUint64(&s.tail.Tail) - s.step; {
	case ahead == 0:
		return nil, nil
	case ahead > driver.Steps:
		return nil, fmt.Errorf("%w: the producer is at step %d, the consumer at %d", ErrProtocol, s.step+ahead, s.step)
	case !s.fifo:
		return s.slot(), nil
	}
	n := atomic.LoadInt64(&s.tail.ConnFIFO[s.step%driver.Steps].Size)
	if n < 1 || n > int64(s.room) {
		return nil, fmt.Errorf("%w: step %d has %d bytes, want 1 to %d", ErrProtocol, s.step, n, s.room)
	}
	return s.slot()[:n], nil
}

func (s *stepsIn) header() (size int, first []byte, ok bool, err error) {
	b, err := s.full()
	if b == nil {
		return 0, nil, false, err
	}
	if len(b) < lineBytes {
		return 0, nil, false, fmt.Errorf("%w: a step of %d bytes where a message begins", ErrProtocol, len(b))
	}
	size, err = getHeader(b)
	return size, b[lineBytes:], err == nil, err
}

func (s *stepsIn) next(rest int) ([]byte, bool, error) {
	b, err := s.full()
	if s.fifo && len(b) > rest {
		return nil, false, fmt.Errorf("%w: step %d has %d bytes of a part of which %d are to come", ErrProtocol, s.step, len(b), rest)
	}
	return b[:min(rest, len(b))], b != nil, err
}

func (s *stepsIn) release() error {
	s.step++
	atomic.StoreUint64(&s.head.Head, s.step)
	return nil
}

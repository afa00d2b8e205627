package hostend

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/purerdma/purerdma/internal/cause"
	"github.com/purerdma/purerdma/internal/cpu"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/transport/driver"
)

// ErrProtocol is a counter of the peer's that cannot be: it is ahead of what there was, or further behind than there are steps.
var ErrProtocol = errors.New("the other end breaks the protocol")

// mostLL is the longest message, for each channel that carries it, that NCCL's send and receive move by LL.
const mostLL = 16 << 10

// Choose is NCCL's choice for a message of n bytes that goes over so many channels: LL up to 16 KiB for each, else SIMPLE.
func Choose(n, channels int) driver.Protocol {
	if n <= mostLL*channels {
		return driver.LL
	}
	return driver.Simple
}

// end is what both ends have. The step goes on from protocol to protocol.
type end struct {
	head, tail *uint64 // steps consumed, steps produced
	sizes      *driver.RecvMem
	lines      []Line
	slots      []byte
	step       uint64
	watcher    driver.Watcher
}

func newEnd(c driver.Connector) (*end, error) {
	conn := c.Conn()
	if conn == nil || conn.SendMem == nil || conn.RecvMem == nil {
		return nil, errors.New("hostend: the connection is not connected, or not in the host's memory")
	}
	e := &end{}
	e.watcher, _ = c.(driver.Watcher)
	send, err := mr.View[driver.SendMem](conn.SendMem, 0)
	if err != nil {
		return nil, err
	}
	recv, err := mr.View[driver.RecvMem](conn.RecvMem, 0)
	if err != nil {
		return nil, err
	}
	e.head, e.tail = &send.Head, &recv.Tail
	if conn.FIFO {
		e.sizes = recv
	}
	if b := conn.Buffers[driver.LL]; b != nil {
		if e.lines, err = mr.ViewSlice[Line](b, 0, b.Len()/lineBytes/driver.Steps*driver.Steps); err != nil {
			return nil, err
		}
	}
	if b := conn.Buffers[driver.Simple]; b != nil {
		e.slots = b.Bytes()
	}
	return e, nil
}

// payload is the bytes of a step of a protocol.
func (e *end) payload(p driver.Protocol) (int, error) {
	n := 0
	switch p {
	case driver.LL:
		n = len(e.lines) / driver.Steps * lineData
	case driver.Simple:
		n = len(e.slots) / driver.Steps
	default:
		return 0, fmt.Errorf("hostend: %v is not for the host's memory: %w", p, errors.ErrUnsupported)
	}
	if n == 0 {
		return 0, fmt.Errorf("hostend: the connection has no buffer of %v", p)
	}
	return n, nil
}

// slotLines and slotBytes are the step's place.
func (e *end) slotLines() []Line {
	n := len(e.lines) / driver.Steps
	at := int(e.step%driver.Steps) * n
	return e.lines[at : at+n : at+n]
}

func (e *end) slotBytes() []byte {
	n := len(e.slots) / driver.Steps
	at := int(e.step%driver.Steps) * n
	return e.slots[at : at+n : at+n]
}

// How a wait goes: looks at the other end's word, then a yield to other goroutines; now and then a look at all else that may end it.
// A GPU wakes nobody, so a long wait, of some milliseconds, goes on by short sleeps.
const (
	looks    = 64 // between yields
	between  = 16 // yields between looks at the rest
	restless = 1 << 10
	nap      = 50 * time.Microsecond
)

// wait is a wait for the other end.
type wait struct {
	yields int
	gone   error
}

// pause is called after looks that found nothing. What the peer did before it went is found by the looks after the first that told.
func (e *end) pause(ctx context.Context, w *wait) error {
	w.yields++
	if w.yields < restless {
		runtime.Gosched()
		if w.yields%between != 0 {
			return nil
		}
	} else {
		time.Sleep(nap)
	}
	if w.gone != nil {
		return fmt.Errorf("step %d: %w", e.step, w.gone)
	}
	if err := cause.Of(ctx); err != nil {
		return fmt.Errorf("step %d: %w", e.step, err)
	}
	if e.watcher != nil {
		w.gone = e.watcher.Err()
	}
	return nil
}

// Sender is the producing end. One goroutine at a time uses it.
type Sender struct {
	*end
	taken uint64 // what head was when it was read last: reading a word that the GPU writes takes as long as fetching it from memory
}

// NewSender makes the producing end of a new connection, before anything else has used it. It keeps nothing mapped: it is not to be used
// once c is closed.
func NewSender(c driver.Connector) (*Sender, error) {
	e, err := newEnd(c)
	return &Sender{end: e}, err
}

// Send returns when b is in the connection's memory, b is the caller's again then; the consumer may still have to take it. It waits while
// the consumer has not left room: it looks and yields, after some milliseconds with sleeps of 50 µs in between. The connection is of no use
// after an error, which is the context's, [ErrProtocol], or the end of the peer where the connector is a [driver.Watcher].
func (s *Sender) Send(ctx context.Context, p driver.Protocol, b []byte) error {
	payload, err := s.payload(p)
	if err != nil {
		return err
	}
	for {
		n := min(len(b), payload)
		if err := s.room(ctx); err != nil {
			return err
		}
		if p == driver.LL {
			s.putLines(b[:n])
		} else {
			s.put(b[:n])
		}
		if b = b[n:]; len(b) == 0 {
			return nil
		}
	}
}

// room waits until the next step's place is empty.
func (s *Sender) room(ctx context.Context) error {
	if s.step-s.taken < driver.Steps {
		return nil
	}
	for w := (wait{}); ; {
		for range looks {
			s.taken = mmio.LoadAcquire64(s.head)
			switch used := s.step - s.taken; {
			case used < driver.Steps:
				return nil
			case used > driver.Steps:
				return fmt.Errorf("hostend: %w: %d steps are with the consumer, at most %d can be", ErrProtocol, used, driver.Steps)
			}
			cpu.Pause(1)
		}
		if err := s.pause(ctx, &w); err != nil {
			return fmt.Errorf("hostend: waiting for room: %w", err)
		}
	}
}

// put is a step of SIMPLE.
func (s *Sender) put(b []byte) {
	copy(s.slotBytes(), b)
	s.size(len(b))
	s.step++
	mmio.StoreRelease64(s.tail, s.step)
}

// wraps is the bits of a step of which the flags have come around: every line of its slot is written, so that none keeps its flag of 2³²
// steps ago (NCCL_LL_CLEAN_MASK).
const wraps = 0x7ffffff8

// putLines is a step of LL, which does not move the tail.
func (s *Sender) putLines(b []byte) {
	lines := s.slotLines()
	if s.step&wraps != wraps {
		lines = lines[:max(1, (len(b)+lineData-1)/lineData)]
	}
	s.size(len(lines) * lineBytes)
	s.step++
	flag := uint32(s.step)
	for i := range lines {
		var data uint64
		switch {
		case len(b) >= lineData:
			data = binary.LittleEndian.Uint64(b)
			b = b[lineData:]
		case len(b) > 0:
			var last [lineData]byte
			b = b[copy(last[:], b):]
			data = binary.LittleEndian.Uint64(last[:])
		}
		lines[i].Put(data, flag)
	}
}

// size tells a proxy what the step has, before it is published.
func (s *Sender) size(n int) {
	if s.sizes != nil {
		atomic.StoreInt64(&s.sizes.ConnFIFO[s.step%driver.Steps].Size, int64(n))
	}
}

// Receiver is the consuming end, likewise.
type Receiver struct{ *end }

// NewReceiver makes the consuming end of a new connection.
func NewReceiver(c driver.Connector) (*Receiver, error) {
	e, err := newEnd(c)
	return &Receiver{e}, err
}

// Recv fills b, which has the size of the message sent, and waits for it as Send does, with the same errors.
func (r *Receiver) Recv(ctx context.Context, p driver.Protocol, b []byte) error {
	payload, err := r.payload(p)
	if err != nil {
		return err
	}
	for {
		n := min(len(b), payload)
		if p == driver.LL {
			err = r.getLines(ctx, b[:n])
		} else {
			err = r.get(ctx, b[:n])
		}
		if err != nil {
			return err
		}
		r.step++
		mmio.StoreRelease64(r.head, r.step)
		if b = b[n:]; len(b) == 0 {
			return nil
		}
	}
}

// get is a step of SIMPLE. After steps of LL the tail is behind.
func (r *Receiver) get(ctx context.Context, b []byte) error {
	for w := (wait{}); ; {
		for range looks {
			switch ahead := int64(mmio.LoadAcquire64(r.tail) - r.step); {
			case ahead > 0 && ahead <= driver.Steps:
				copy(b, r.slotBytes())
				return nil
			case ahead > driver.Steps:
				return fmt.Errorf("hostend: %w: the producer is %d steps ahead, at most %d can be", ErrProtocol, ahead, driver.Steps)
			}
			cpu.Pause(1)
		}
		if err := r.pause(ctx, &w); err != nil {
			return fmt.Errorf("hostend: waiting for data: %w", err)
		}
	}
}

// getLines is a step of LL.
func (r *Receiver) getLines(ctx context.Context, b []byte) error {
	lines, flag := r.slotLines(), uint32(r.step+1)
	for i := range max(1, (len(b)+lineData-1)/lineData) {
		data, ok := lines[i].Poll(flag, looks)
		for w := (wait{}); !ok; data, ok = lines[i].Poll(flag, looks) {
			if err := r.pause(ctx, &w); err != nil {
				return fmt.Errorf("hostend: waiting for data: %w", err)
			}
		}
		if len(b) >= lineData {
			binary.LittleEndian.PutUint64(b, data)
			b = b[lineData:]
			continue
		}
		var last [lineData]byte
		binary.LittleEndian.PutUint64(last[:], data)
		b = b[copy(b, last[:]):]
	}
	return nil
}

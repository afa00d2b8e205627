package shmtransport

import (
	"context"
	"encoding/binary"
	"math"
	"sync/atomic"

	"github.com/purerdma/purerdma/internal/cpu"
	"github.com/purerdma/purerdma/internal/mmio"
)

// Sizes of what a long message is cut into. In short parts the receiver starts early; long ones cost less each, which counts in a
// stream, for very long messages, and where each cell's line has far to go.
const (
	partNear   = 16 << 10 // between near cores
	partShort  = 32 << 10
	partLong   = 64 << 10
	longFrom   = 512 << 10 // bytes to come from which parts are long
	batchBytes = 16 << 10  // of messages that travel together
	stampEvery = 16        // parts
	// Below pastFrom bytes, what goes into owned lines goes through the caches also to a distant core; where lines cannot be evicted ahead,
	// up to cachedMax.
	pastFrom  = 1 << 10
	cachedMax = 4 << 10
	ownMost   = 64 << 10 // bytes of the next message to be owned or evicted ahead
	ownStep   = 16       // lines between two looks
)

// Sender is one direction's sending end. Its methods are for one goroutine at a time, others are refused with ErrBusy. None but Send,
// SendBatch and Wait wait; none but these, when they sleep, allocate.
type Sender struct {
	ring
	gate *gate
	wait waiter
	life *life

	next, cellLimit  uint64 // cells written; how many may be
	pos, byteLimit   uint64 // bytes of data written, those skipped at the end of data included; how many may be
	needCells, needs uint64 // what a wait is for

	message []byte // the message of which a part has been sent, and what is left of it
	left    []byte

	acquired  int    // bytes that Acquire gave out; -1 = none
	wrapped   uint64 // and the flag that goes with them
	parts     uint
	ownedTo   uint64 // bytes of data up to which the lines are owned, or evicted
	lastBytes int    // of data that the last message took
}

func newSender(r ring, l *life, g *gate) *Sender {
	s := &Sender{ring: r, gate: g, life: l, acquired: -1, cellLimit: uint64(len(r.cells)), byteLimit: uint64(len(r.data))}
	s.wait = waiter{life: l, asleep: &r.control.senderAsleep, fenced: g.fenced, look: s.lookForRoom, what: "room"}
	return s
}

// Send sends b as one message and returns when the receiver can have all of it; b is the caller's again. A message longer than the
// room in the ring needs a receiver that receives. When ctx ends in the middle of such a message, a part is out: call again with the
// same b, or close; any other call is ErrOrder.
//
// A nil error says that the message is in the shared memory, not that the peer has it: what the peer has not received when it closes or
// dies is lost. Calls after that are nil, too, their messages lost, until this process has learned of the peer's end: over a socket in a
// moment, by a file in up to 0.2 s, and at the latest when Recv, at this end, has said so. From then on they are ErrPeerGone. That is as
// with writes to a TCP connection. Where it matters let the peer answer, and take the answer for the receipt.
func (s *Sender) Send(ctx context.Context, b []byte) error {
	if s.gate.quick(s.life) {
		if len(b) == 8 && s.sendCell(binary.LittleEndian.Uint64(b)) {
			s.gate.leave()
			return nil
		}
	} else if err := s.gate.enter(s.life); err != nil {
		return err
	}
	ok, err := s.send(b)
	for !ok && err == nil {
		if err = s.wait.wait(ctx); err == nil {
			ok, err = s.send(b)
		}
	}
	s.gate.leave()
	return err
}

// TrySend sends b as one message as far as there is room. Until ok, b is the sender's, and the next call must be for the same b.
func (s *Sender) TrySend(b []byte) (ok bool, err error) {
	if err := s.gate.enter(s.life); err != nil {
		return false, err
	}
	ok, err = s.send(b)
	s.gate.leave()
	return ok, err
}

// SendBatch sends each of messages, in order, and returns how many it has sent: all, unless there is an error. Small messages of the
// same size that follow each other travel together, which is faster by a multiple than one Send for each.
// What nil says, and what not, is as of Send.
func (s *Sender) SendBatch(ctx context.Context, messages [][]byte) (sent int, err error) {
	if err := s.gate.enter(s.life); err != nil {
		return 0, err
	}
	for sent < len(messages) && err == nil {
		var n int
		if n, err = s.sendSome(messages[sent:]); n == 0 && err == nil {
			err = s.wait.wait(ctx)
		}
		sent += n
	}
	s.gate.leave()
	return sent, err
}

// TrySendBatch sends the first messages for which there is room and returns how many. As in TrySend, a part of the one after them may
// be out, which must then be the next message.
func (s *Sender) TrySendBatch(messages [][]byte) (sent int, err error) {
	if err := s.gate.enter(s.life); err != nil {
		return 0, err
	}
	for sent < len(messages) {
		n, e := s.sendSome(messages[sent:])
		sent += n
		if err = e; n == 0 || err != nil {
			break
		}
	}
	s.gate.leave()
	return sent, err
}

// Acquire gives n bytes of the ring for a message to be made in place, at most MaxAcquire, or none when there is no room. They are
// the caller's until Commit; a second Acquire takes them back. Nothing is sent in between. Memory that is out keeps the mapping:
// Close does not take it away.
func (s *Sender) Acquire(n int) ([]byte, error) {
	if err := s.gate.enter(s.life); err != nil {
		return nil, err
	}
	b, err := s.acquire(n)
	s.gate.leave()
	return b, err
}

// MaxAcquire is the largest n of Acquire, in bytes.
func (s *Sender) MaxAcquire() int { return maxPart(len(s.data)) }

// Commit sends the first n bytes of what Acquire gave as one message.
func (s *Sender) Commit(n int) error {
	if err := s.gate.enter(s.life); err != nil {
		if s.acquired >= 0 && err != ErrBusy {
			s.acquired = -1
			err = s.life.release(s.gate, heldSend, err)
		}
		return err
	}
	err := s.commit(n)
	s.gate.leave()
	return err
}

// Wait returns when there may be room for what the last TrySend or Acquire found none for, when nothing can be sent any more, which the
// next call says, or when ctx ends.
func (s *Sender) Wait(ctx context.Context) error {
	if err := s.gate.enter(s.life); err != nil {
		return err
	}
	var err error
	if !s.lookForRoom(1) && s.life.state.Load() == 0 {
		err = s.wait.wait(ctx)
	}
	s.gate.leave()
	return err
}

// Prepare takes some of the cache lines that a message of the last one's size would fill, so that the next Send need not wait for them.
// A Conn does it by itself while it receives; whoever has only this end calls it while there is nothing to send, until more is false. In
// the middle of a stream it costs more than it gives. It sends nothing and never waits.
func (s *Sender) Prepare() (more bool) {
	if s.gate.enter(s.life) != nil {
		return false
	}
	more = s.left == nil && s.ownSome()
	s.gate.leave()
	return more
}

// send makes what progress it can.
func (s *Sender) send(b []byte) (ok bool, err error) {
	if s.left != nil || len(b) > inlineMax || s.acquired >= 0 {
		return s.sendLong(b)
	}
	k := uint64(len(b)+7) / 8
	if s.cellLimit-s.next < max(k, 1) {
		s.needCells, s.needs = max(k, 1), 0
		if !s.lookForRoom(1) {
			return false, s.life.sending()
		}
	}
	if s.life.state.Load() != 0 {
		return false, s.life.sending()
	}
	mask := uint64(len(s.cells) - 1)
	for i := k; i > 1; i-- {
		n := s.next + i - 1
		c := &s.cells[n&mask]
		c.value = upTo8(b[(i-1)*8:])
		mmio.StoreRelease64(&c.word, uint64(uint32(n+1))<<32|kindMore<<kindShift)
	}
	s.publish(max(k, 1), upTo8(b), kindInline<<kindShift|uint64(len(b)))
	s.lastBytes = 0
	return true, nil
}

// sendCell is send for a message of 8 bytes where nothing is in its way.
func (s *Sender) sendCell(value uint64) bool {
	if s.left != nil || s.cellLimit == s.next {
		return false
	}
	c := &s.cells[s.next&uint64(len(s.cells)-1)]
	s.next++
	c.value = value
	mmio.StoreRelease64(&c.word, s.next<<32|kindInline<<kindShift|8)
	s.lastBytes = 0
	if atomic.LoadUint32(&s.control.receiverAsleep) != 0 {
		wakePeer(&s.control.receiverAsleep)
	}
	return true
}

// upTo8 is the first 8 bytes of b, or as many as there are.
func upTo8(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.LittleEndian.Uint64(b)
	}
	var v uint64
	for i, x := range b {
		v |= uint64(x) << (8 * i)
	}
	return v
}

// publish writes the cell that tells the receiver of n cells, and wakes it if it sleeps.
func (s *Sender) publish(n, value, low uint64) {
	c := &s.cells[s.next&uint64(len(s.cells)-1)]
	c.value = value
	mmio.StoreRelease64(&c.word, uint64(uint32(s.next+1))<<32|low)
	s.next += n
	if s.gate.fenced {
		mmio.FullFence()
	}
	if atomic.LoadUint32(&s.control.receiverAsleep) != 0 {
		wakePeer(&s.control.receiverAsleep)
	}
}

// sendLong sends by data, and says which calls are out of order.
func (s *Sender) sendLong(b []byte) (ok bool, err error) {
	switch {
	case s.acquired >= 0:
		return false, errAcquired
	case len(b) > MaxMessage:
		return false, tooLong(len(b), MaxMessage)
	case s.left == nil:
		s.message, s.left = b, b
	case len(b) != len(s.message) || &b[0] != &s.message[0]:
		return false, errInMessage
	}
	most := min(s.partSize(), maxPart(len(s.data)))
	for len(s.left) > 0 {
		n := min(len(s.left), most)
		off, wrap, ok := s.room(n)
		if !ok || s.life.state.Load() != 0 {
			if len(s.left) == len(b) {
				s.message, s.left = nil, nil
			}
			return false, s.life.sending()
		}
		s.fill(s.data[off:off+n], s.left[:n])
		s.advance(n, wrap, kindPart, uint64(len(s.left)))
		s.left = s.left[n:]
	}
	s.lastBytes = len(b)
	s.message, s.left = nil, nil
	return true, nil
}

// partSize is for the rest of the message. Lines that are owned ahead tell that this end has waited for an answer: no stream. To a
// distant core short parts cost a stream of shorter messages nothing.
func (s *Sender) partSize() int {
	switch {
	case len(s.left) >= longFrom:
	case s.isFar():
		return partShort
	case int64(s.ownedTo-s.pos) > 0:
		return partNear
	}
	return partLong
}

// isFar is what the receiver says of the distance.
func (s *Sender) isFar() bool { return cpu.Streams && atomic.LoadUint32(&s.control.far) == 1 }

// room finds where n bytes of data go, with a cell for them. wrap is the flag to send with them.
func (s *Sender) room(n int) (off int, wrap uint64, ok bool) {
	size := uint64(len(s.data))
	s.needs = uint64(n)
	if rest := size - s.pos&(size-1); uint64(n) > rest {
		s.needs, wrap = rest+uint64(n), flagWrap
	} else {
		off = int(s.pos & (size - 1))
	}
	s.needCells = 1
	if s.cellLimit == s.next || s.byteLimit-s.pos < s.needs {
		return off, wrap, s.lookForRoom(1)
	}
	return off, wrap, true
}

// fill copies into the ring, past the caches where the receiver says that it is far, but for a few lines that are owned.
func (s *Sender) fill(dst, src []byte) {
	if s.isFar() && (past(len(src)) || int64(s.ownedTo-s.pos) < int64(len(src))) && len(src) >= cpu.Line {
		whole := len(src) &^ (cpu.Line - 1)
		cpu.CopyPast(&dst[0], &src[0], whole)
		dst, src = dst[whole:], src[whole:]
	}
	copy(dst, src)
}

// past says whether so many bytes go past the caches to a distant core whatever was done for their lines.
func past(n int) bool { return n > cachedMax || n >= pastFrom && cpu.Evicts }

// advance publishes n bytes of data.
func (s *Sender) advance(n int, wrap, kind, value uint64) {
	low := kind<<kindShift | wrap | uint64(n)
	size := uint64(len(s.data))
	if wrap != 0 {
		s.pos = (s.pos + size) &^ (size - 1)
	}
	s.pos += (uint64(n) + cpu.Line - 1) &^ (cpu.Line - 1)
	if s.parts++; s.parts%stampEvery == 0 && cpu.Streams {
		mmio.StoreRelease64(&s.control.stamp, s.next)
		low |= flagStamp
	}
	s.publish(1, value, low)
}

// sendSome sends a first few messages together if they can be, else one. 0 = no room.
func (s *Sender) sendSome(messages [][]byte) (int, error) {
	size := len(messages[0])
	most := min(batchBytes, maxPart(len(s.data)))
	if s.left == nil && s.acquired < 0 && size > 0 && size <= most/8 {
		same := 1
		for same < len(messages) && len(messages[same]) == size && (same+1)*size <= most {
			same++
		}
		if same*size > inlineMax {
			return s.sendTogether(messages[:same], size)
		}
	}
	ok, err := s.send(messages[0])
	if !ok {
		return 0, err
	}
	return 1, nil
}

func (s *Sender) sendTogether(messages [][]byte, size int) (int, error) {
	n := len(messages) * size
	off, wrap, ok := s.room(n)
	if !ok || s.life.state.Load() != 0 {
		return 0, s.life.sending()
	}
	dst := s.data[off : off+n]
	if size == 8 {
		for _, m := range messages {
			binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(m))
			dst = dst[8:]
		}
	} else {
		for _, m := range messages {
			copy(dst, m)
			dst = dst[size:]
		}
	}
	s.advance(n, wrap, kindBatch, uint64(size))
	s.lastBytes = n
	return len(messages), nil
}

func (s *Sender) acquire(n int) ([]byte, error) {
	switch {
	case s.left != nil:
		return nil, errInMessage
	case n < 1 || n > s.MaxAcquire():
		return nil, tooLong(n, s.MaxAcquire())
	}
	s.acquired = -1
	s.gate.held &^= heldSend
	off, wrap, ok := s.room(n)
	if err := s.life.sending(); err != nil || !ok {
		return nil, err
	}
	s.acquired, s.wrapped = n, wrap
	s.gate.held |= heldSend
	return s.data[off : off+n : off+n], nil
}

func (s *Sender) commit(n int) error {
	switch {
	case s.acquired < 0:
		return errNotAcquired
	case n < 0 || n > s.acquired:
		return tooLong(n, s.acquired)
	}
	s.acquired = -1
	s.gate.held &^= heldSend
	if err := s.life.sending(); err != nil {
		return err
	}
	if n == 0 {
		s.publish(1, 0, kindInline<<kindShift)
		return nil
	}
	s.advance(n, s.wrapped, kindPart, uint64(n))
	s.lastBytes = n
	return nil
}

// lookForRoom reads how far the receiver is, at most looks times, until there is room for what is needed. What the receiver wrote is
// checked: it cannot have read what was not sent, nor take back what it has read.
func (s *Sender) lookForRoom(looks int) bool {
	for range looks {
		cells, bytes := mmio.LoadAcquire64(&s.control.cellsRead), mmio.LoadAcquire64(&s.control.bytesRead)
		cellLimit, byteLimit := cells+uint64(len(s.cells)), bytes+uint64(len(s.data))
		if cells-(s.cellLimit-uint64(len(s.cells))) > s.next-(s.cellLimit-uint64(len(s.cells))) ||
			bytes-(s.byteLimit-uint64(len(s.data))) > s.pos-(s.byteLimit-uint64(len(s.data))) {
			_ = s.life.brokenBy(protocolError("the receiver says that it has read %d cells and %d bytes of %d and %d", cells, bytes, s.next, s.pos))
			return false
		}
		s.cellLimit, s.byteLimit = cellLimit, byteLimit
		if s.cellLimit-s.next >= s.needCells && s.byteLimit-s.pos >= s.needs {
			return true
		}
		if looks > 1 {
			cpu.Pause(1)
		}
	}
	return false
}

// ownSome prepares the next lines that a message like the last one would fill, a few at a time. It takes them by a store to each:
// whoever stores into a line of another core waits for it, and here there is the time. Lines that will be stored past the caches it
// moves out of all of them: such a store waits where a cache has the line. Only what the receiver has read is touched. It reports
// whether it did anything.
func (s *Sender) ownSome() bool {
	size := uint64(len(s.data))
	want := uint64(min(s.lastBytes, ownMost))
	evict := past(int(want)) && s.isFar()
	if evict && !cpu.Evicts || s.acquired >= 0 { // these lines are the caller's
		return false
	}
	ahead := int64(s.ownedTo - s.pos) // below 0 where more was sent than was owned
	if ahead < 0 {
		s.ownedTo, ahead = s.pos, 0
	}
	if uint64(ahead) >= want {
		return false
	}
	if s.byteLimit-s.pos < want {
		if s.needCells, s.needs = 0, want; !s.lookForRoom(1) {
			return false
		}
	}
	for i := 0; i < ownStep && s.ownedTo-s.pos < want; i++ {
		if at := s.ownedTo & (size - 1); evict {
			cpu.Evict(&s.data[at], cpu.Line)
		} else {
			s.lines[at/cpu.Line][0] = math.MaxUint64
		}
		s.ownedTo += cpu.Line
	}
	return true
}

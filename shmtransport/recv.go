package shmtransport

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"sync/atomic"

	"github.com/purerdma/purerdma/internal/cpu"
	"github.com/purerdma/purerdma/internal/mmio"
)

// dropMost bounds what a receiver evicts after it has read it, in bytes: longer parts would hold up the next ones.
const dropMost = 8 << 10

// MaxMessage is the largest message, in bytes.
const MaxMessage = 1 << 40

// Receiver is one direction's receiving end. Its methods are for one goroutine at a time, others are refused with ErrBusy. None but
// Recv and RecvBatch wait; none but these, when they sleep, allocate.
type Receiver struct {
	ring
	gate *gate
	wait waiter
	life *life
	// partner is the other direction's sender where one goroutine uses both: while this end waits, it prepares the next message.
	partner *Sender

	next, toldCells uint64 // cells read; what the sender knows of it
	pos, toldBytes  uint64 // bytes of data read, those skipped included
	dropped         uint64 // of these, up to where dropRead has come

	left  uint64 // of the message in progress: bytes still to come
	got   int    // and how many went into the caller's buffer,
	into  *byte  // which is this; nil when Next has taken them
	batch struct{ off, end, size int }

	held   bool // Next gave memory out
	small  [inlineMax]byte
	sensor sensor
}

func newReceiver(r ring, l *life, g *gate) *Receiver {
	x := &Receiver{ring: r, gate: g, life: l, sensor: newSensor()}
	x.wait = waiter{life: l, asleep: &r.control.receiverAsleep, fenced: g.fenced, look: x.look, what: "a message"}
	return x
}

// Recv waits for the next message, copies it into b and returns its size. A message longer than b stays where it is, and the call is
// io.ErrShortBuffer with the size that is needed. After the peer's last message it is io.EOF if the peer closed, else ErrPeerGone.
// When ctx ends in the middle of a long message, call again with the same b; any other call is ErrOrder.
func (r *Receiver) Recv(ctx context.Context, b []byte) (int, error) {
	if r.gate.quick(r.life) {
		if len(b) >= 8 && r.recvCell(b) {
			r.gate.leave()
			return 8, nil
		}
	} else if err := r.gate.enter(r.life); err != nil {
		return 0, err
	}
	n, ok, err := r.receive(b)
	for !ok && err == nil {
		if err = r.wait.wait(ctx); err == nil {
			n, ok, err = r.receive(b)
		}
	}
	r.gate.leave()
	return n, err
}

// TryRecv is Recv without the wait: ok says that a message is in b. Until ok, a part of a long message may be in b, and the next call
// must be with the same b.
func (r *Receiver) TryRecv(b []byte) (n int, ok bool, err error) {
	if err := r.gate.enter(r.life); err != nil {
		return 0, false, err
	}
	n, ok, err = r.receive(b)
	r.gate.leave()
	return n, ok, err
}

// RecvBatch waits for a message and takes those that are there by then, at most one for each of buffers. The sizes go into sizes,
// which is as long as buffers. A message in several parts is always the first that a call takes. It returns how many it has received; an error concerns the one after these.
func (r *Receiver) RecvBatch(ctx context.Context, buffers [][]byte, sizes []int) (int, error) {
	if err := r.gate.enter(r.life); err != nil {
		return 0, err
	}
	n, err := r.receiveSome(buffers, sizes)
	for n == 0 && err == nil && len(buffers) > 0 {
		if err = r.wait.wait(ctx); err == nil {
			n, err = r.receiveSome(buffers, sizes)
		}
	}
	r.gate.leave()
	return n, err
}

// TryRecvBatch is RecvBatch without the wait. If it returns 0, a part of a long message may be in the first of buffers, which must be
// the first in the next call.
func (r *Receiver) TryRecvBatch(buffers [][]byte, sizes []int) (int, error) {
	if err := r.gate.enter(r.life); err != nil {
		return 0, err
	}
	n, err := r.receiveSome(buffers, sizes)
	r.gate.leave()
	return n, err
}

// Next gives the next message, or the next part of a long one, in place, without copying. left is how many bytes of the message come
// after it, in the next parts. ok = false: there is nothing yet. The memory is the caller's until Release; the sender can change it
// all the same if it breaks the protocol, so copy before you check and use. Memory that is out keeps the mapping: Close does not take
// it away.
func (r *Receiver) Next() (b []byte, left int, ok bool, err error) {
	if err := r.gate.enter(r.life); err != nil {
		return nil, 0, false, err
	}
	b, left, ok, err = r.peek()
	r.gate.leave()
	return b, left, ok, err
}

// Release gives back what Next gave.
func (r *Receiver) Release() error {
	if err := r.gate.enter(r.life); err != nil {
		if r.held && err != ErrBusy {
			r.held = false
			err = r.life.release(r.gate, heldRecv, err)
		}
		return err
	}
	err := errNotHeld
	if r.held {
		err = nil
		r.held = false
		r.gate.held &^= heldRecv
		r.tell()
	}
	r.gate.leave()
	return err
}

// Wait returns when there is something to receive, when nothing more will come, which the next call says, or when ctx ends.
func (r *Receiver) Wait(ctx context.Context) error {
	if err := r.gate.enter(r.life); err != nil {
		return err
	}
	var err error
	for err == nil && !r.look(1) && r.life.state.Load() == 0 {
		err = r.wait.wait(ctx)
	}
	r.gate.leave()
	return err
}

// recvCell is receive for a message of 8 bytes where nothing is in its way. Where there is nothing to prepare it polls for a while.
func (r *Receiver) recvCell(b []byte) bool {
	if r.left != 0 || r.batch.off < r.batch.end {
		return false
	}
	looks := looksPerRound
	if r.partner != nil && r.partner.lastBytes != 0 {
		looks = 1
	}
	c := &r.cells[r.next&uint64(len(r.cells)-1)]
	if cpu.PollHigh(&c.word, uint32(r.next+1), looks) != (r.next+1)<<32|kindInline<<kindShift|8 {
		return false
	}
	binary.LittleEndian.PutUint64(b, atomic.LoadUint64(&c.value))
	r.next++
	if r.next-r.toldCells >= uint64(len(r.cells)/4) {
		r.tell()
	}
	return true
}

// look polls for the next cell, at most looks times, and lets the partner prepare in between.
func (r *Receiver) look(looks int) bool {
	if r.batch.off < r.batch.end {
		return true
	}
	want := uint32(r.next + 1)
	word := &r.cells[r.next&uint64(len(r.cells)-1)].word
	if r.pos != r.dropped && looks > 1 {
		r.dropRead()
	}
	if r.partner != nil && looks > 1 {
		for r.partner.ownSome() {
			if uint32(cpu.PollHigh(word, want, 2)>>32) == want {
				return true
			}
		}
	}
	return uint32(cpu.PollHigh(word, want, looks)>>32) == want
}

// dropRead moves what a distant core has stored past the caches, and was read since, out of this one's, so that the core need not wait
// for that when it stores there next.
func (r *Receiver) dropRead() {
	if n := r.pos - r.dropped; n <= dropMost && r.sensor.far == 1 {
		mask := uint64(len(r.data) - 1)
		for ; r.dropped < r.pos; r.dropped += cpu.Line {
			cpu.Evict(&r.data[r.dropped&mask], cpu.Line)
		}
	}
	r.dropped = r.pos
}

// head is the next cell's value and the low half of its word. What the sender does next to them changes nothing here.
func (r *Receiver) head() (value, low uint64, ok bool) {
	c := &r.cells[r.next&uint64(len(r.cells)-1)]
	w := mmio.LoadAcquire64(&c.word)
	if uint32(w>>32) != uint32(r.next+1) {
		return 0, 0, false
	}
	return atomic.LoadUint64(&c.value), w & (1<<32 - 1), true
}

// receive makes what progress it can.
func (r *Receiver) receive(b []byte) (n int, ok bool, err error) {
	if r.held {
		return 0, false, errHeld
	}
	if r.batch.off < r.batch.end {
		return r.fromBatch(b)
	}
	if r.left > 0 {
		if r.into == nil && uint64(len(b)) >= r.left { // its first parts went by Next
			r.into = &b[0]
		}
		if uint64(len(b)) < uint64(r.got)+r.left || r.into != &b[0] {
			return 0, false, errInMessage
		}
	}
	for {
		value, low, there := r.head()
		if !there {
			if err := r.life.receiving(r.left > 0); err != nil {
				if value, low, there = r.head(); !there {
					return 0, false, err
				}
			} else {
				return 0, false, nil
			}
		}
		if low>>kindShift == kindInline && r.left == 0 {
			return r.inline(b, value, low)
		}
		src, left, err := r.part(value, low)
		if err != nil {
			return 0, false, err
		}
		if r.batch.off < r.batch.end {
			return r.fromBatch(b)
		}
		if r.left == 0 {
			if total := uint64(len(src)) + left; total > uint64(len(b)) {
				return int(min(total, math.MaxInt)), false, io.ErrShortBuffer
			}
			r.got, r.into = 0, &b[0]
		}
		r.got += r.read(b[r.got:], src)
		r.took(low)
		if r.left = left; left == 0 {
			r.into = nil
			r.tell()
			return r.got, true, nil
		}
		r.tell()
	}
}

// inline takes a message out of cells.
func (r *Receiver) inline(b []byte, value, low uint64) (n int, ok bool, err error) {
	n = int(low & sizeMask)
	switch {
	case n > inlineMax:
		return 0, false, r.life.brokenBy(protocolError("a message of %d bytes in cells", n))
	case n > len(b):
		return n, false, io.ErrShortBuffer
	}
	if n == 8 {
		binary.LittleEndian.PutUint64(b, value)
	} else if err := r.gather(b[:n], value); err != nil {
		return 0, false, err
	}
	r.next += uint64(max(n+7, 8) / 8)
	r.tell()
	return n, true, nil
}

// gather copies a message out of cells whose first has value.
func (r *Receiver) gather(b []byte, value uint64) error {
	for i := uint64(0); ; {
		if len(b) < 8 {
			for j := range b {
				b[j] = byte(value >> (8 * j))
			}
			return nil
		}
		binary.LittleEndian.PutUint64(b, value)
		if b = b[8:]; len(b) == 0 {
			return nil
		}
		i++
		c := &r.cells[(r.next+i)&uint64(len(r.cells)-1)]
		if w := mmio.LoadAcquire64(&c.word); w != uint64(uint32(r.next+i+1))<<32|kindMore<<kindShift {
			return r.life.brokenBy(protocolError("cell %d of a message is not there", i))
		}
		value = atomic.LoadUint64(&c.value)
	}
}

// part checks a cell that speaks of data, and finds the data. It takes nothing yet; a batch it opens.
func (r *Receiver) part(value, low uint64) (src []byte, left uint64, err error) {
	n := low & sizeMask
	off := r.pos & uint64(len(r.data)-1)
	if low&flagWrap != 0 {
		off = 0
	}
	kind := low >> kindShift
	switch {
	case n == 0 || off+n > uint64(len(r.data)):
		err = protocolError("%d bytes at %d of %d", n, off, len(r.data))
	case kind == kindPart && (value < n || value > MaxMessage || r.left > 0 && value != r.left):
		err = protocolError("%d bytes of which %d are here, where %d were to come", value, n, r.left)
	case kind == kindBatch && (r.left > 0 || value == 0 || value > n || n%value != 0):
		err = protocolError("messages of %d bytes in %d, in a message of which %d are to come", value, n, r.left)
	case kind != kindPart && kind != kindBatch:
		err = protocolError("a cell of kind %d, in a message of which %d bytes are to come", kind, r.left)
	}
	if err != nil {
		return nil, 0, r.life.brokenBy(err)
	}
	if low&flagStamp != 0 {
		r.sensor.feel(r.control)
	}
	if kind == kindBatch {
		r.batch.off, r.batch.end, r.batch.size = int(off), int(off+n), int(value)
		r.took(low)
		return nil, 0, nil
	}
	return r.data[off : off+n : off+n], value - n, nil
}

// read copies out of the ring. What a distant core has stored past the caches comes from memory; of long parts copy gets it as fast.
func (r *Receiver) read(dst, src []byte) (n int) {
	if r.sensor.far == 1 && past(len(src)) && len(src) <= partShort {
		n = cpu.CopyDistant(dst, src)
	}
	return n + copy(dst[n:], src[n:])
}

// took moves past a cell of data; tell says so to the sender.
func (r *Receiver) took(low uint64) {
	size := uint64(len(r.data))
	if low&flagWrap != 0 {
		r.pos = (r.pos + size) &^ (size - 1)
	}
	r.pos += (low&sizeMask + cpu.Line - 1) &^ (cpu.Line - 1)
	r.next++
}

// fromBatch takes the next message of an open batch.
func (r *Receiver) fromBatch(b []byte) (n int, ok bool, err error) {
	n = r.batch.size
	if n > len(b) {
		return n, false, io.ErrShortBuffer
	}
	copy(b, r.data[r.batch.off:r.batch.off+n])
	if r.batch.off += n; r.batch.off == r.batch.end {
		r.tell()
	}
	return n, true, nil
}

// receiveSome takes what is there.
func (r *Receiver) receiveSome(buffers [][]byte, sizes []int) (n int, err error) {
	if len(sizes) < len(buffers) {
		return 0, errSizes
	}
	for n < len(buffers) {
		if r.batch.size == 8 && !r.held {
			n += r.eights(buffers[n:], sizes[n:])
			if n == len(buffers) {
				break
			}
		}
		if n > 0 && !r.wholeNext() {
			break
		}
		size, ok, e := r.receive(buffers[n])
		if !ok {
			if e == io.ErrShortBuffer {
				sizes[n] = size
			}
			if n == 0 || e != nil && e == io.ErrShortBuffer {
				err = e
			}
			break
		}
		sizes[n] = size
		n++
	}
	return n, err
}

// wholeNext says that all of the next message is there. One in several parts has to go into the first buffer of a call, to go on there in
// the next, and so has what comes only after this look: it may be one.
func (r *Receiver) wholeNext() bool {
	if r.batch.off < r.batch.end {
		return true
	}
	value, low, ok := r.head()
	return ok && (low>>kindShift != kindPart || value <= low&sizeMask)
}

// eights takes messages of 8 bytes out of an open batch.
func (r *Receiver) eights(buffers [][]byte, sizes []int) (n int) {
	src := r.data[r.batch.off:r.batch.end]
	for n < len(buffers) && len(src) >= 8 && len(buffers[n]) >= 8 {
		binary.LittleEndian.PutUint64(buffers[n], binary.LittleEndian.Uint64(src))
		src = src[8:]
		sizes[n] = 8
		n++
	}
	if n > 0 {
		if r.batch.off += 8 * n; r.batch.off == r.batch.end {
			r.tell()
		}
	}
	return n
}

// peek finds what Next gives, and moves past it; the sender is told by Release.
func (r *Receiver) peek() (b []byte, left int, ok bool, err error) {
	switch {
	case r.held:
		return nil, 0, false, errHeld
	case r.into != nil && r.left > 0:
		return nil, 0, false, errInMessage
	}
	if r.batch.off >= r.batch.end {
		value, low, there := r.head()
		if !there {
			if err = r.life.receiving(r.left > 0); err == nil {
				return nil, 0, false, nil
			}
			if value, low, there = r.head(); !there {
				return nil, 0, false, err
			}
		}
		if low>>kindShift == kindInline && r.left == 0 {
			n, _, err := r.inline(r.small[:], value, low)
			if err != nil {
				return nil, 0, false, err
			}
			return r.hold(r.small[:n], 0)
		}
		src, more, err := r.part(value, low)
		if err != nil {
			return nil, 0, false, err
		}
		if src != nil {
			r.took(low)
			r.left, r.got, r.into = more, 0, nil
			return r.hold(src, int(more))
		}
	}
	b = r.data[r.batch.off : r.batch.off+r.batch.size]
	r.batch.off += r.batch.size
	return r.hold(b, 0)
}

func (r *Receiver) hold(b []byte, left int) ([]byte, int, bool, error) {
	r.held = true
	r.gate.held |= heldRecv
	return b[:len(b):len(b)], left, true, nil
}

// tell publishes how far this end has read, a quarter of the cells or an eighth of the data at a time: each telling takes the line from
// the sender. It wakes a sender that sleeps for want of room.
func (r *Receiver) tell() {
	if r.next-r.toldCells < uint64(len(r.cells)/4) && r.pos-r.toldBytes < uint64(len(r.data)/8) || r.batch.off < r.batch.end {
		return
	}
	r.toldCells, r.toldBytes = r.next, r.pos
	mmio.StoreRelease64(&r.control.cellsRead, r.next)
	mmio.StoreRelease64(&r.control.bytesRead, r.pos)
	if r.gate.fenced {
		mmio.FullFence()
	}
	if atomic.LoadUint32(&r.control.senderAsleep) != 0 {
		wakePeer(&r.control.senderAsleep)
	}
}

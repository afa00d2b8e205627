package nettransport

import (
	"fmt"
	"sync/atomic"

	"github.com/purerdma/purerdma/transport/driver"
)

// maxOps bounds the operations of a proxy that have not ended.
const maxOps = 64

// proxy is NCCL's progress of NET, for one end whose buffers are its own. Counters of an operation are steps from base on, and advance by
// slices: posted ≥ arrived ≥ moved ≥ done. Only a receiver has arrived: what has come and may have to be flushed.
type proxy struct {
	e    *end
	ops  []driver.Op // started and not ended; the first is under way
	step uint64      // of the connection, at which the next operation begins

	base     uint64
	begun    bool
	posted   int
	arrived  int
	moved    int
	done     int
	requests [driver.Steps]Request
	flushing [driver.Steps]bool // requests are flushes
	sizes    [1]int
	err      error
}

func newProxy(e *end) *proxy { return &proxy{e: e} }

// Start is [driver.Proxy.Start].
func (p *proxy) Start(op driver.Op) error {
	bad := func(format string, a ...any) error { return fmt.Errorf("nettransport: operation: "+format, a...) }
	switch {
	case p.err != nil:
		return p.err
	case len(p.ops) >= maxOps:
		return bad("%d are under way", len(p.ops))
	case op.Protocol >= driver.Protocols || p.e.sizes[op.Protocol] == 0:
		return bad("%v has no buffer here", op.Protocol)
	case op.SliceSteps < 1 || op.ChunkSteps < op.SliceSteps || op.ChunkSteps%op.SliceSteps != 0:
		return bad("chunks of %d steps in slices of %d, want a multiple", op.ChunkSteps, op.SliceSteps)
	case op.ChunkSteps > driver.Steps/2 || driver.Steps%op.ChunkSteps != 0:
		return bad("chunks of %d steps, want a divisor of %d", op.ChunkSteps, driver.Steps/2)
	case op.Steps < op.SliceSteps || op.Steps%op.SliceSteps != 0:
		return bad("%d steps, slices of %d", op.Steps, op.SliceSteps)
	case op.Bytes < 0:
		return bad("%d bytes", op.Bytes)
	}
	p.ops = append(p.ops, op)
	return nil
}

// Pending is [driver.Proxy.Pending].
func (p *proxy) Pending() int { return len(p.ops) }

// Progress is [driver.Proxy.Progress].
func (p *proxy) Progress() (idle bool, err error) {
	if p.err != nil || len(p.ops) == 0 {
		return true, p.err
	}
	op := &p.ops[0]
	if !p.begun {
		chunk := uint64(op.ChunkSteps)
		p.base = (p.step + chunk - 1) / chunk * chunk
		p.step = p.base + uint64(op.Steps)
		p.posted, p.arrived, p.moved, p.done, p.begun = 0, 0, 0, 0, true
	}
	var moved bool
	if p.e.send {
		moved, err = p.sendSlices(op)
	} else {
		moved, err = p.recvSlices(op)
	}
	if err != nil {
		p.err = err
		return true, err
	}
	if p.done == op.Steps {
		p.begun = false
		p.ops = append(p.ops[:0], p.ops[1:]...)
		moved = true
	}
	return !moved, nil
}

// place is the slot of a step and its place in the buffer.
func (p *proxy) place(op *driver.Op, at int) (slot, off, room int) {
	slot = int((p.base + uint64(at)) % driver.Steps)
	step := p.e.sizes[op.Protocol] / driver.Steps
	return slot, slot * step, step * op.SliceSteps
}

func (p *proxy) buffer(op *driver.Op, off, n int) Buffer {
	return p.e.mrs[op.Protocol].Buffer(off, n, p.e.tag)
}

// sendSlices sends what the producer has made and gives back to it what has gone.
func (p *proxy) sendSlices(op *driver.Op) (moved bool, err error) {
	fifo, head := &p.e.tail.ConnFIFO, &p.e.head.Head
	for p.moved < op.Steps && p.moved < p.done+driver.Steps {
		slot, off, room := p.place(op, p.moved)
		size := atomic.LoadInt64(&fifo[slot].Size)
		if size == -1 {
			break
		}
		if op.Protocol != driver.LL && atomic.LoadUint64(&p.e.tail.Tail) <= p.base+uint64(p.moved) {
			break
		}
		if size < 0 || size > int64(room) {
			return moved, fmt.Errorf("nettransport: step %d has %d bytes, want 0 to %d", p.base+uint64(p.moved), size, room)
		}
		if !p.complete(op, off, int(size), p.base+uint64(p.moved)) {
			break
		}
		r, ok, err := p.e.sender.Isend(p.buffer(op, off, int(size)))
		if err != nil {
			return moved, err
		}
		if !ok {
			break
		}
		p.requests[slot] = r
		p.moved += op.SliceSteps
		moved = true
	}
	for p.done < p.moved {
		slot, _, _ := p.place(op, p.done)
		ended, err := p.requests[slot].Test(p.sizes[:])
		if err != nil {
			return moved, err
		}
		if !ended {
			break
		}
		atomic.StoreInt64(&fifo[slot].Size, -1)
		p.done += op.SliceSteps
		atomic.StoreUint64(head, p.base+uint64(p.done))
		moved = true
	}
	return moved, nil
}

// complete tells whether all lines of a step of LL or LL128 have been stored: their producer moves no counter that says so. LL128 in
// GPU memory goes by the counter.
func (p *proxy) complete(op *driver.Op, off, n int, step uint64) bool {
	if p.e.conn.Buffers[op.Protocol] == nil {
		return true
	}
	b := p.e.conn.Buffers[op.Protocol].Bytes()[off : off+n]
	switch op.Protocol {
	case driver.LL:
		return linesLL(b, uint32(step+1))
	case driver.LL128:
		return linesLL128(b, step+1)
	}
	return true
}

// recvSlices offers room to the sender, tells the consumer what has come, and takes back what it has read.
func (p *proxy) recvSlices(op *driver.Op) (moved bool, err error) {
	fifo := &p.e.tail.ConnFIFO
	for p.posted < op.Steps && p.posted < p.done+driver.Steps {
		slot, off, room := p.place(op, p.posted)
		if op.Bytes > 0 {
			room = min(room, op.Bytes)
		}
		r, ok, err := p.e.receiver.Irecv(p.buffer(op, off, room))
		if err != nil {
			return moved, err
		}
		if !ok {
			break
		}
		p.requests[slot] = r
		p.posted += op.SliceSteps
		moved = true
	}
	for p.arrived < p.posted {
		slot, off, _ := p.place(op, p.arrived)
		ended, err := p.requests[slot].Test(p.sizes[:])
		if err != nil {
			return moved, err
		}
		if !ended {
			break
		}
		atomic.StoreInt64(&fifo[slot].Size, int64(p.sizes[0]))
		p.flushing[slot] = false
		if p.e.flush && op.Protocol == driver.Simple {
			if p.requests[slot], p.flushing[slot], err = p.e.receiver.Flush(p.buffer(op, off, p.sizes[0])); err != nil {
				return moved, err
			}
		}
		p.arrived += op.SliceSteps
		moved = true
	}
	for p.moved < p.arrived {
		slot, _, _ := p.place(op, p.moved)
		if p.flushing[slot] {
			ended, err := p.requests[slot].Test(nil)
			if err != nil {
				return moved, err
			}
			if !ended {
				break
			}
		}
		p.moved += op.SliceSteps
		atomic.StoreUint64(&p.e.tail.Tail, p.base+uint64(p.moved))
		moved = true
	}
	for p.done < p.moved && atomic.LoadUint64(&p.e.head.Head) > p.base+uint64(p.done) {
		p.done += op.SliceSteps
		moved = true
	}
	return moved, nil
}

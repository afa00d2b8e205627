package mlx5model

import (
	"encoding/binary"
	"fmt"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// entry is one of a send queue, taken apart.
type entry struct {
	mlx5prm.Ctrl
	index  uint16 // the basic block that it begins at
	blocks uint16
	av     mlx5prm.AV
	remote mlx5prm.RAddr
	atomic mlx5prm.Atomic
	umr    umr
	data   []piece
	length uint64
}

// piece is a part of a message, in memory or in the entry itself.
type piece struct {
	inline  []byte
	key     uint32
	addr, n uint64
}

func pieceOf(d *mlx5prm.Data) piece {
	p := piece{key: d.LKey.Get(), addr: d.Addr.Get(), n: uint64(d.ByteCount.Get())}
	if p.n == 0 {
		p.n = 1 << 31
	}
	return p
}

// kinds of operations that an entry's head is followed by other segments for.
func remoteOp(op uint8) bool {
	return op == mlx5prm.OpWrite || op == mlx5prm.OpWriteImm || op == mlx5prm.OpRead || atomicOp(op)
}

func atomicOp(op uint8) bool { return op == mlx5prm.OpAtomicCS || op == mlx5prm.OpAtomicFA }

func sendOp(op uint8) bool {
	return op == mlx5prm.OpSend || op == mlx5prm.OpSendImm || op == mlx5prm.OpSendInval
}

// mayPost says whether a type of queue pair has an operation.
func mayPost(kind driver.QPType, op uint8) bool {
	switch op {
	case mlx5prm.OpNop, mlx5prm.OpSend, mlx5prm.OpSendImm:
		return true
	case mlx5prm.OpWrite, mlx5prm.OpWriteImm, mlx5prm.OpUMR:
		return kind != driver.UD
	}
	return kind == driver.RC && (remoteOp(op) || sendOp(op))
}

// next reads the entry at the head of the send queue, of which the program has posted
// so many basic blocks. An error is a fault of the program's.
func (q *qp) next(posted uint16) (*entry, error) {
	e := &entry{index: q.sqCI, blocks: 1}
	b, err := q.blocks(e.index, mlx5prm.SendBB)
	if err != nil {
		return e, err
	}
	e.Ctrl = structOf[mlx5prm.Ctrl](b)
	e.blocks = max(1, uint16(e.DS()+3)/4)
	switch op := e.Opcode(); {
	case e.Index() != e.index:
		return e, fmt.Errorf("it says that it is %d", e.Index())
	case e.QPN() != q.num:
		return e, fmt.Errorf("it says that it is of %#x", e.QPN())
	case e.DS() == 0, e.blocks > posted:
		return e, fmt.Errorf("its length is %d, where %d blocks were posted", e.DS(), posted)
	case !mayPost(q.kind, op):
		return e, fmt.Errorf("%v has no opcode %#x", q.kind, op)
	}
	if e.blocks > 1 {
		if b, err = q.blocks(e.index, e.DS()*mlx5prm.DSUnit); err != nil {
			return e, err
		}
	}
	return e, e.parse(q.kind, b[mlx5prm.DSUnit:e.DS()*mlx5prm.DSUnit])
}

// blocks is the first n bytes of the entry at a basic block, which goes on at the start
// of the queue where that ends.
func (q *qp) blocks(index uint16, n int) ([]byte, error) {
	size := q.sqN * mlx5prm.SendBB
	at := uint32(index) * mlx5prm.SendBB & (size - 1)
	b := make([]byte, n)
	first := min(n, int(size-at))
	if err := q.c.mem.read(q.sq+uint64(at), b[:first]); err != nil {
		return nil, err
	}
	return b, q.c.mem.read(q.sq, b[first:])
}

func (e *entry) parse(kind driver.QPType, b []byte) error {
	if e.Opcode() == mlx5prm.OpUMR {
		return e.umr.parse(b, e.DS())
	}
	take := func(into []byte) { b = b[copy(into, b):] }
	want := 0
	switch op := e.Opcode(); {
	case kind == driver.UD && sendOp(op):
		want = len(bytesOf(&e.av))
	case atomicOp(op):
		want = len(bytesOf(&e.remote)) + len(bytesOf(&e.atomic))
	case remoteOp(op):
		want = len(bytesOf(&e.remote))
	}
	if len(b) < want {
		return fmt.Errorf("opcode %#x in an entry of length %d", e.Opcode(), e.DS())
	}
	switch op := e.Opcode(); {
	case kind == driver.UD && sendOp(op):
		take(bytesOf(&e.av))
	case remoteOp(op):
		take(bytesOf(&e.remote))
		if atomicOp(op) {
			take(bytesOf(&e.atomic))
		}
	}
	for len(b) > 0 {
		p := piece{}
		used := mlx5prm.DSUnit
		if n := binary.BigEndian.Uint32(b); n&mlx5prm.InlineSeg != 0 {
			p.n = uint64(n &^ mlx5prm.InlineSeg)
			used = (4 + int(p.n) + mlx5prm.DSUnit - 1) &^ (mlx5prm.DSUnit - 1)
			if used > len(b) {
				return fmt.Errorf("%d inline bytes in an entry of length %d", p.n, e.DS())
			}
			p.inline = b[4 : 4+p.n]
		} else {
			d := structOf[mlx5prm.Data](b)
			p = pieceOf(&d)
		}
		e.data = append(e.data, p)
		e.length += p.n
		b = b[used:]
	}
	return nil
}

// gather reads a message from the memory of its sender, into a buffer that is good
// until the next message.
func (q *qp) gather(pieces []piece, length uint64) ([]byte, bool) {
	m := q.c.m
	if uint64(cap(m.buffer)) < length {
		m.buffer = make([]byte, length)
	}
	b := m.buffer[:0]
	for _, p := range pieces {
		to := b[len(b) : uint64(len(b))+p.n]
		b = b[:uint64(len(b))+p.n]
		if p.inline != nil {
			copy(to, p.inline)
			continue
		}
		mem, addr, ok := m.reach(q.pd, p.key, p.addr, p.n, 0)
		if !ok || mem.read(addr, to) != nil {
			return nil, false
		}
	}
	return b, true
}

// scatter writes a message to the memory that a list names.
func (q *qp) scatter(pieces []piece, b []byte) bool {
	for _, p := range pieces {
		if len(b) == 0 {
			return true
		}
		n := min(p.n, uint64(len(b)))
		mem, addr, ok := q.c.m.reach(q.pd, p.key, p.addr, n, localWrite)
		if !ok || mem.write(addr, b[:n]) != nil {
			return false
		}
		b = b[n:]
	}
	return len(b) == 0
}

package mlx5model

import (
	"encoding/binary"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// receives says whether a queue pair takes what others send.
func (q *qp) receives() bool { return q.state >= driver.StateRTR && q.state != driver.StateErr }

// take executes the message b of a peer.
func (q *qp) take(e *entry, b []byte) answer {
	op := e.Opcode()
	if op == mlx5prm.OpWrite {
		return q.refusal(q.written(e, b))
	}
	r := q.nextReceive()
	if r == nil {
		return answer{wait: notReady(q.attr.MinRNRTimer)}
	}
	c := mlx5prm.CQE{}
	c.ByteCnt.Set(uint32(len(b)))
	if e.FmCeSe&mlx5prm.CtrlSolicited != 0 {
		c.OpOwn = mlx5prm.SolicitedEvent
	}
	c.ImmInvalPKey = e.Imm
	opcode := uint8(mlx5prm.CQERespSend)
	var inline []byte
	switch op {
	case mlx5prm.OpWriteImm:
		if s := q.written(e, b); s != 0 {
			return q.refusal(s)
		}
		opcode = mlx5prm.CQERespWrImm
	default:
		switch op {
		case mlx5prm.OpSendImm:
			opcode = mlx5prm.CQERespSendImm
		case mlx5prm.OpSendInval:
			opcode = mlx5prm.CQERespSendInv
		}
		switch {
		case uint64(len(b)) > r.length:
			return q.unfit(r, mlx5prm.SyndromeLocalLengthErr, mlx5prm.SyndromeRemoteInvalReqErr)
		case q.scatterReceived && q.recv.inline(len(b)):
			inline = b
		case !q.scatter(r.data, b):
			return q.unfit(r, mlx5prm.SyndromeLocalProtErr, mlx5prm.SyndromeRemoteOpErr)
		}
		if op == mlx5prm.OpSendInval && !q.invalidated(e.Imm.Get()) {
			q.unfit(r, mlx5prm.SyndromeRemoteInvalReqErr, 0)
			return answer{lost: true} // nobody is told (IBTA 9.9.6.3, class J)
		}
	}
	q.received(r, &c, opcode, inline)
	q.took()
	return answer{}
}

// unfit ends a receive that cannot take a message, and the queue pair with it. here and
// there are what the two ends are told; the requester of a connection that is not reliable
// is told nothing.
func (q *qp) unfit(r *receive, here, there uint8) answer {
	q.receiveFailed(r, here)
	q.fail()
	return answer{refused: there}
}

// refusal answers a request, and ends a reliable connection if it is refused.
func (q *qp) refusal(syndrome uint8) answer {
	if syndrome != 0 && q.kind == driver.RC {
		q.c.event(q.async, refusalEvent(syndrome), q.user)
		q.fail()
	}
	return answer{refused: syndrome}
}

// refusalEvent is the event by which the responder's program learns of a refusal that ends
// none of its receives (IBTA 11.6.3.2).
func refusalEvent(syndrome uint8) uint32 {
	switch syndrome {
	case mlx5prm.SyndromeRemoteAccessErr:
		return eventQPAccessErr
	case mlx5prm.SyndromeRemoteInvalReqErr:
		return eventQPReqErr
	}
	return eventQPFatal
}

// written executes a write, and is the syndrome of a refusal.
func (q *qp) written(e *entry, b []byte) uint8 {
	mem, addr, syndrome := q.asked(e, uint64(len(b)), remoteWrite)
	if syndrome != 0 || len(b) == 0 {
		return syndrome
	}
	if mem.write(addr, b) != nil {
		return mlx5prm.SyndromeRemoteOpErr
	}
	return 0
}

// asked is the memory that a peer asks for, or the syndrome of a refusal. No bytes need
// no key.
func (q *qp) asked(e *entry, n uint64, access uint32) (storage, uint64, uint8) {
	if q.attr.QPAccessFlags&access == 0 {
		return nil, 0, mlx5prm.SyndromeRemoteInvalReqErr
	}
	if n == 0 {
		return nil, 0, 0
	}
	mem, addr, ok := q.remote(e.remote.RKey.Get(), e.remote.RAddr.Get(), n, access)
	if !ok {
		return nil, 0, mlx5prm.SyndromeRemoteAccessErr
	}
	return mem, addr, 0
}

// give executes a read or an atomic, whose result is b.
func (q *qp) give(e *entry) (b []byte, a answer) {
	var access uint32 = remoteRead
	n := e.length
	if atomicOp(e.Opcode()) {
		access, n = remoteAtomic, atomicSize
	}
	switch {
	case q.attr.MaxDestRdAtomic == 0, access == remoteAtomic && e.remote.RAddr.Get()%atomicSize != 0:
		return nil, q.refusal(mlx5prm.SyndromeRemoteInvalReqErr)
	}
	mem, addr, syndrome := q.asked(e, n, access)
	if syndrome != 0 {
		return nil, q.refusal(syndrome)
	}
	m := q.c.m
	if uint64(cap(m.buffer)) < n {
		m.buffer = make([]byte, n)
	}
	b = m.buffer[:n]
	if n == 0 {
		return b, answer{}
	}
	if mem.read(addr, b) != nil {
		return nil, q.refusal(mlx5prm.SyndromeRemoteOpErr)
	}
	if access == remoteAtomic {
		v := binary.NativeEndian.Uint64(b)
		switch {
		case e.Opcode() == mlx5prm.OpAtomicFA:
			v += e.atomic.SwapAdd.Get()
		case v == e.atomic.Compare.Get():
			v = e.atomic.SwapAdd.Get()
		}
		if mem.write(addr, u64(v)) != nil {
			return nil, q.refusal(mlx5prm.SyndromeRemoteOpErr)
		}
	}
	return b, answer{}
}

const atomicSize = 8

// notReady is how long a requester waits by a code (IBTA, table of RNR NAK timers):
// powers of two of 10 µs, and three halves of them.
func notReady(code uint8) time.Duration {
	const unit = 10 * time.Microsecond
	switch {
	case code == 0:
		return unit << 16
	case code == 1:
		return unit
	case code%2 == 0:
		return unit << (code / 2)
	}
	return 3 * unit << ((code - 3) / 2)
}

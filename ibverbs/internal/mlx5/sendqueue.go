package mlx5

import (
	"math/bits"
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	"github.com/purerdma/purerdma/internal/mmio"
)

const (
	// sendOverheadRC is the bytes of an entry before its gather list, of RC and UC:
	// head, and what binds a window (libmlx5 reserves as much).
	sendOverheadRC = 16 + 48 + 64 + 64
	// sendOverheadUD is the same of UD: head and address.
	sendOverheadUD = 16 + 48
	// maxDS is the longest entry in units of mlx5prm.DSUnit: the field has 6 bits.
	maxDS = 1<<6 - 1
)

// Operations that the driver has for a type of QP.
const (
	opsUD = 1<<driver.OpSend | 1<<driver.OpSendWithImm
	opsUC = opsUD | 1<<driver.OpWrite | 1<<driver.OpWriteWithImm | 1<<driver.OpBindMW | 1<<driver.OpLocalInv
	opsRC = opsUC | 1<<driver.OpRead | 1<<driver.OpCmpSwap | 1<<driver.OpFetchAdd | 1<<driver.OpSendWithInv
)

const knownFlags = driver.Fence | driver.Signaled | driver.Solicited

// kinds is what the send queues of the types of QPs have and need.
var kinds = map[driver.QPType]sendKind{
	driver.RC: {opsRC, sendOverheadRC, driver.StateErr},
	driver.UC: {opsUC, sendOverheadRC, driver.StateSQE},
	driver.UD: {opsUD, sendOverheadUD, driver.StateSQE},
}

type sendKind struct {
	ops      uint16
	overhead int
	fails    driver.QPState // what a request that fails leaves the QP in
}

// opsMost is a power of two, with which an index needs no other check.
const opsMost = 16

// ops is the device's opcode of an operation, and what its completion is of.
var ops = [opsMost]struct {
	code uint8
	wc   driver.WCOpcode
}{
	driver.OpWrite:        {mlx5prm.OpWrite, driver.WCWrite},
	driver.OpWriteWithImm: {mlx5prm.OpWriteImm, driver.WCWrite},
	driver.OpSend:         {mlx5prm.OpSend, driver.WCSend},
	driver.OpSendWithImm:  {mlx5prm.OpSendImm, driver.WCSend},
	driver.OpRead:         {mlx5prm.OpRead, driver.WCRead},
	driver.OpCmpSwap:      {mlx5prm.OpAtomicCS, driver.WCCmpSwap},
	driver.OpFetchAdd:     {mlx5prm.OpAtomicFA, driver.WCFetchAdd},
	driver.OpSendWithInv:  {mlx5prm.OpSendInval, driver.WCSend},
	driver.OpBindMW:       {mlx5prm.OpUMR, driver.WCBindMW},
	driver.OpLocalInv:     {mlx5prm.OpUMR, driver.WCLocalInv},
}

// sent is what is remembered of a request, by the basic block that it begins at.
type sent struct {
	id   uint64
	head uint32 // requests posted, this one included
	op   driver.WCOpcode
}

// sendQueue is the send queue of a QP.
type sendQueue struct {
	view
	requests []sent // the length is a power of two
	cur      uint32 // basic blocks posted
	head     uint32 // requests posted
	tail     atomic.Uint32
	seen     uint32 // of tail
	limit    uint32
	sge      int
	inline   int
	qpn      uint32
	ops      uint16
	qp       *QP
	datagram *PD    // of a QP of type UD, nil for others
	fence    uint8  // of the next request
	always   uint8  // flags of every request
	lastAt   uint32 // offset of the last entry
	lastSize uint32 // its bytes
	record   *uint32
	bell     *doorbell
}

// sendShape is the basic blocks of a queue for c, and the inline data that its
// entries then take.
func sendShape(c driver.QPCap, overhead int) (blocks, inline int) {
	if c.SendWR == 0 {
		return 0, 0
	}
	size := overhead + c.SendSGE*mlx5prm.DSUnit
	if c.Inline > 0 {
		size = max(size, overhead+roundUp(4+c.Inline, mlx5prm.DSUnit))
	}
	size = roundUp(size, mlx5prm.SendBB)
	blocks = 1 << bits.Len(uint(c.SendWR*size-1)) / mlx5prm.SendBB
	return blocks, min(size, maxDS*mlx5prm.DSUnit) - overhead - 4
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// write puts wrs into the queue without telling the device and returns how many it
// took.
func (q *sendQueue) write(wrs []driver.SendWR) (int, error) {
	for i := range wrs {
		if q.head-q.seen >= q.limit {
			if q.seen = q.tail.Load(); q.head-q.seen >= q.limit {
				return i, driver.ErrQueueFull
			}
		}
		if err := q.put(&wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// publish hands n entries to the device: entries, record, register, each before the
// next. A single one that is more than its head is copied into the register, if it fits,
// as libmlx5 does unless MLX5_POST_SEND_PREFER_BF is 0.
func (q *sendQueue) publish(n int) {
	count, size := mlx5prm.Word(q.cur&mlx5prm.CounterMask), q.lastSize
	if n != 1 || size <= mlx5prm.DSUnit || size > q.bell.room {
		q.bell.ring(q.record, count, q.ctrl(q.lastAt))
		return
	}
	q.bell.flame(q.record, count, &q.view, q.lastAt, size)
}

// put writes the next entry. Posting is measured by the list of writes of one piece, so
// what those do not need is looked for last or together.
func (q *sendQueue) put(wr *driver.SendWR) error {
	switch {
	case wr.Flags&^knownFlags != 0:
		return errFlags
	case q.ops>>wr.Op&1 == 0:
		return driver.ErrBadOpcode
	case len(wr.SGL) > q.sge:
		return driver.ErrTooManySGE
	}
	if wr.Inline != nil {
		switch {
		case len(wr.SGL) > 0:
			return errInlineAndSGL
		case len(wr.Inline) > q.inline:
			return driver.ErrInlineTooBig
		}
	}
	start := q.cur * mlx5prm.SendBB
	c := q.ctrl(start)
	off := start + mlx5prm.DSUnit
	if q.datagram != nil {
		if err := q.address(off, &wr.UD); err != nil {
			return err
		}
		off += avSize
	}
	imm, isAtomic := uint32(0), false
	if wr.Op == driver.OpWrite {
		off = q.remote(off, &wr.Remote)
	} else {
		isAtomic = wr.Op == driver.OpCmpSwap || wr.Op == driver.OpFetchAdd
		var err error
		if off, imm, err = q.putOperation(off, wr); err != nil {
			return err
		}
	}
	if len(wr.Inline) > 0 {
		if isAtomic || wr.Op == driver.OpRead {
			return errInlineOp
		}
		off = q.copyInline(off, wr.Inline)
	} else {
		var length uint64
		for i := range wr.SGL {
			s := &wr.SGL[i]
			if s.Length == 0 {
				continue
			}
			length += uint64(s.Length)
			q.data(off).Set(s.Addr, s.Length, s.LKey)
			off += mlx5prm.DSUnit
		}
		if length > maxMessage {
			return driver.ErrTooLong
		}
		if isAtomic && length != 8 {
			return errAtomicLength
		}
	}
	op := &ops[wr.Op%opsMost]
	flags := q.always
	if wr.Flags&driver.Signaled != 0 {
		flags |= mlx5prm.CtrlCQUpdate
	}
	if wr.Flags&driver.Solicited != 0 {
		flags |= mlx5prm.CtrlSolicited
	}
	if wr.Flags&driver.Fence != 0 {
		flags |= mlx5prm.CtrlFence
	} else {
		flags |= q.fence
	}
	// What follows a change of a key waits for it.
	if op.code == mlx5prm.OpUMR {
		q.fence = mlx5prm.CtrlInitiatorSmallFence
	} else if q.fence != 0 {
		q.fence = 0
	}
	ds := (off - start) / mlx5prm.DSUnit
	c.SetHead(uint16(q.cur), op.code, q.qpn, int(ds))
	c.SetFlags(flags, imm)
	q.head++
	q.requests[q.cur&uint32(len(q.requests)-1)] = sent{id: wr.ID, head: q.head, op: op.wc}
	q.cur += (ds + 3) / 4
	q.lastAt, q.lastSize = start, off-start
	return nil
}

// putOperation writes what an operation other than OpWrite has between head and data. It
// tells where the data go, and the immediate of the head.
func (q *sendQueue) putOperation(off uint32, wr *driver.SendWR) (data, imm uint32, err error) {
	switch wr.Op {
	case driver.OpSendWithImm, driver.OpSendWithInv:
		return off, wr.Imm, nil
	case driver.OpBindMW, driver.OpLocalInv:
		if len(wr.SGL) > 0 || len(wr.Inline) > 0 {
			return 0, 0, errNoData
		}
		if wr.Op == driver.OpLocalInv {
			q.qp.invalidate(wr.Imm)
			q.putInvalidate(off)
			return off + invalidateSize, wr.Imm, nil
		}
		imm, err = q.qp.bind(off, wr.Bind)
		return off + bindSize, imm, err
	case driver.OpRead:
		return q.remote(off, &wr.Remote), 0, nil
	case driver.OpWriteWithImm:
		return q.remote(off, &wr.Remote), wr.Imm, nil
	case driver.OpCmpSwap, driver.OpFetchAdd:
		off = q.remote(off, &wr.Remote)
		a := q.atomic(off)
		if wr.Op == driver.OpCmpSwap {
			a.SwapAdd.Set(wr.Swap)
			a.Compare.Set(wr.CompareAdd)
		} else {
			a.SwapAdd.Set(wr.CompareAdd)
			a.Compare.Set(0)
		}
		return off + mlx5prm.DSUnit, 0, nil
	}
	return off, 0, nil
}

const avSize = 48

// address puts in where a datagram goes. The device itself takes the QP's Q_Key for
// one with the highest bit set (IBTA 10.2.5).
func (q *sendQueue) address(off uint32, to *driver.Destination) error {
	h, ok := to.AH.(*AH)
	switch {
	case !ok:
		return errNoAH
	case h.pd != q.datagram:
		return errOtherAH
	case h.closed.Load():
		return errClosedAH
	}
	v := q.av(off)
	*v = h.av
	v.QKey.Set(to.QKey)
	v.DQPDCT.Set(to.QPN | mlx5prm.ExtendedUDAV)
	return nil
}

func (q *sendQueue) remote(off uint32, to *driver.Remote) uint32 {
	q.raddr(off).Set(to.Addr, to.RKey)
	return off + mlx5prm.DSUnit
}

// copyInline puts data into the entry, which may go on at the start of the ring.
func (q *sendQueue) copyInline(off uint32, data []byte) uint32 {
	q.view.inline(off).ByteCount.Set(uint32(len(data)) | mlx5prm.InlineSeg)
	at := off + 4
	for rest := data; len(rest) > 0; {
		n := copy(q.bytes(at, len(rest)), rest)
		at, rest = at+uint32(n), rest[n:]
	}
	return off + uint32(roundUp(4+len(data), mlx5prm.DSUnit))
}

// complete frees the requests up to the one whose entry begins at the basic block
// that a completion names, and says what that was.
func (q *sendQueue) complete(wc *driver.WC, counter uint16) driver.WCOpcode {
	if len(q.requests) == 0 {
		return 0
	}
	r := &q.requests[uint32(counter)&uint32(len(q.requests)-1)]
	wc.ID = r.id
	q.tail.Store(r.head)
	return r.op
}

// restart follows the device through RESET.
func (q *sendQueue) restart() {
	q.cur, q.head, q.seen, q.fence = 0, 0, 0, 0
	q.tail.Store(0)
	mmio.Store32(q.record, 0)
}

package rxe

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// maxMessage is the longest message of the IBTA.
const maxMessage = 1 << 31

// flagInline is IB_SEND_INLINE, which SendWR.Inline stands for.
const flagInline = 1 << 3

// Operations that the device has for a type of QP (rxe_opcode.c). UC can bind a
// memory window, but not take it back.
const (
	opsUD = 1<<driver.OpSend | 1<<driver.OpSendWithImm
	opsUC = opsUD | 1<<driver.OpWrite | 1<<driver.OpWriteWithImm | 1<<driver.OpBindMW
	opsRC = opsUC | 1<<driver.OpRead | 1<<driver.OpCmpSwap | 1<<driver.OpFetchAdd | 1<<driver.OpLocalInv | 1<<driver.OpSendWithInv
)

const knownFlags = driver.Fence | driver.Signaled | driver.Solicited

var (
	errFlags        = fmt.Errorf("unknown send flag: %w", syscall.EINVAL)
	errInlineAndSGL = fmt.Errorf("request with both inline data and gather entries: %w", syscall.EINVAL)
	errInlineOp     = fmt.Errorf("inline data in a request that sends none: %w", syscall.EINVAL)
	errNoData       = fmt.Errorf("data in a request that has none: %w", syscall.EINVAL)
	errAtomicLength = fmt.Errorf("an atomic needs 8 bytes of memory for its result: %w", syscall.EINVAL)
)

// sendQueue is the send queue of a QP.
type sendQueue struct {
	ring
	qp     *QP
	ud     *datagrams // nil unless the QP is of type UD
	prod   uint32     // the next element to write; published after each list
	free   int        // elements known to be free
	ssn    uint32     // the next request's number in the stream, from 0 after RESET
	ops    uint16     // a bit for each operation that there is
	limit  int        // requests that may be in the queue at once
	sge    int        // gather entries of a request
	inline int        // bytes
}

// write puts wrs into the queue without telling the kernel and returns how many
// it took.
func (q *sendQueue) write(wrs []driver.SendWR) (int, error) {
	for i := range wrs {
		if q.free == 0 && !q.reclaim() {
			return i, driver.ErrQueueFull
		}
		if err := q.put(&wrs[i]); err != nil {
			return i, err
		}
		q.prod = q.next(q.prod)
		q.free--
		q.ssn++
	}
	return len(wrs), nil
}

// publish lets the kernel see what was written. It looks only when the doorbell
// rings, or when it works on the queue anyway.
func (q *sendQueue) publish() { q.produce(q.prod) }

// retract takes back the last n elements, which the kernel will not run.
func (q *sendQueue) retract(n int) {
	q.prod = (q.prod - uint32(n)) & q.mask
	q.free += n
	q.ssn -= uint32(n)
	q.publish()
}

func (q *sendQueue) reclaim() bool {
	q.free = q.limit - q.used(q.prod, q.consumed())
	return q.free > 0
}

// restart follows the kernel through RESET: the indices stay where they are and
// the queue is empty.
func (q *sendQueue) restart() {
	q.prod, q.ssn = q.consumed(), 0
	q.publish()
	q.reclaim()
}

// put writes the next element whole: the kernel changes elements while it works
// on them, so what an earlier one left there must not stay.
func (q *sendQueue) put(wr *driver.SendWR) error {
	w := q.sendWQE(q.prod)
	*w = uapi.RxeSendWQE{}
	w.WR.WRID = wr.ID
	w.WR.Opcode = uint32(wr.Op)
	w.WR.SendFlags = uint32(wr.Flags)
	w.SSN = q.ssn
	if wr.Flags&^knownFlags != 0 {
		return errFlags
	}
	if q.ops>>wr.Op&1 == 0 {
		return driver.ErrBadOpcode
	}
	switch wr.Op {
	case driver.OpWriteWithImm:
		binary.BigEndian.PutUint32(w.WR.Ex[:], wr.Imm)
		fallthrough
	case driver.OpWrite, driver.OpRead:
		r := rdma(w)
		r.RemoteAddr = wr.Remote.Addr
		r.RKey = wr.Remote.RKey
		w.IOVA = wr.Remote.Addr
	case driver.OpSendWithImm:
		binary.BigEndian.PutUint32(w.WR.Ex[:], wr.Imm)
	case driver.OpSend:
	case driver.OpCmpSwap, driver.OpFetchAdd:
		a := atomicOp(w)
		a.RemoteAddr = wr.Remote.Addr
		a.CompareAdd = wr.CompareAdd
		a.Swap = wr.Swap
		a.RKey = wr.Remote.RKey
		w.IOVA = wr.Remote.Addr
	case driver.OpSendWithInv:
		invalidate(w, wr.Imm)
	case driver.OpBindMW, driver.OpLocalInv:
		return q.local(w, wr)
	}
	if q.ud != nil {
		if err := q.qp.address(w, &wr.UD); err != nil {
			return err
		}
	}
	var length uint64
	if n := len(wr.SGL); n > 0 {
		if n > q.sge {
			return driver.ErrTooManySGE
		}
		if wr.Inline != nil {
			return errInlineAndSGL
		}
		to := sendSGL(w, n)
		for i := range wr.SGL {
			s := &wr.SGL[i]
			to[i] = *s
			length += uint64(s.Length)
		}
		if length > maxMessage {
			return driver.ErrTooLong
		}
		w.DMA.NumSGE = uint32(n)
	} else if n := len(wr.Inline); n > 0 {
		if n > q.inline {
			return driver.ErrInlineTooBig
		}
		if wr.Op == driver.OpRead || wr.Op == driver.OpCmpSwap || wr.Op == driver.OpFetchAdd {
			return errInlineOp
		}
		copy(inlineData(w, n), wr.Inline)
		length = uint64(n)
		w.WR.SendFlags |= flagInline
	}
	if length != 8 && (wr.Op == driver.OpCmpSwap || wr.Op == driver.OpFetchAdd) {
		return errAtomicLength
	}
	if q.ud != nil && length > uint64(q.ud.mtu.Load()) {
		return errDatagram
	}
	w.DMA.Length = uint32(length)
	w.DMA.Resid = uint32(length)
	return nil
}

// local is put for what the device does by itself.
func (q *sendQueue) local(w *uapi.RxeSendWQE, wr *driver.SendWR) error {
	if len(wr.SGL) > 0 || len(wr.Inline) > 0 {
		return errNoData
	}
	if wr.Op == driver.OpBindMW {
		return q.qp.bindMW(w, wr.Bind)
	}
	q.qp.localInv(w, wr.Imm)
	return nil
}

// invalidate names a key to invalidate.
func invalidate(w *uapi.RxeSendWQE, key uint32) { binary.NativeEndian.PutUint32(w.WR.Ex[:], key) }

package softroce

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

const knownFlags = driver.Fence | driver.Signaled | driver.Solicited

// PostSend sends at once what the window allows, in the caller's goroutine, which
// spares the short messages of a ping-pong a switch.
func (q *qp) PostSend(wrs []driver.SendWR) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n < len(wrs) && err == nil {
		if err = q.checkSend(&wrs[n]); err == nil {
			q.queueSend(&wrs[n])
			n++
		}
	}
	switch {
	case n == 0:
	case q.attr.State == driver.StateRTS:
		q.transmit()
	case q.attr.State == driver.StateErr:
		q.flush()
	case q.attr.State == driver.StateSQE:
		q.flushSendQueue()
	}
	return n, err
}

func (q *qp) checkSend(wr *driver.SendWR) error {
	if q.attr.State < driver.StateRTS {
		return driver.ErrBadState
	}
	if q.typ != driver.RC && !offers(q.typ, wr.Op) {
		return driver.ErrBadOpcode
	}
	switch wr.Op {
	case driver.OpWrite, driver.OpWriteWithImm, driver.OpSend, driver.OpSendWithImm, driver.OpSendWithInv:
	case driver.OpRead, driver.OpCmpSwap, driver.OpFetchAdd:
		if wr.Inline != nil {
			return syscall.EINVAL
		}
	case driver.OpBindMW, driver.OpLocalInv:
		if wr.SGL != nil || wr.Inline != nil {
			return syscall.EINVAL
		}
		if wr.Op == driver.OpBindMW {
			if err := q.checkBind(wr.Bind); err != nil {
				return err
			}
		}
	default:
		return driver.ErrBadOpcode
	}
	switch {
	case len(wr.SGL) > q.cap.SendSGE:
		return driver.ErrTooManySGE
	case wr.Inline != nil && wr.SGL != nil || wr.Flags&^knownFlags != 0:
		return syscall.EINVAL
	case len(wr.Inline) > q.cap.Inline:
		return driver.ErrInlineTooBig
	case total(wr.SGL) > maxMessage:
		return driver.ErrTooLong
	case q.typ == driver.UD && !q.mayUse(wr.UD.AH):
		return errAH
	case q.typ == driver.UD && wr.UD.QPN > wire.PSNMask:
		return syscall.EINVAL
	case q.sq.full():
		return driver.ErrQueueFull
	}
	return nil
}

// queueSend copies wr into the queue and gives it its packet numbers.
func (q *qp) queueSend(wr *driver.SendWR) {
	w := q.sq.slot()
	if w.hasRest {
		w.hasRest, w.requestRest = false, requestRest{}
	}
	w.id, w.op, w.flags, w.imm, w.remote = wr.ID, wr.Op, wr.Flags, wr.Imm, wr.Remote
	w.inline, w.failed, w.executed, w.packets = wr.Inline != nil, driver.Success, false, 1
	w.data, w.sgl = append(w.data[:0], wr.Inline...), append(w.sgl[:0], wr.SGL...)
	w.length = uint32(len(w.data)) + uint32(total(wr.SGL))
	switch {
	case q.typ == driver.UD:
		w.hasRest = true
		w.ah, w.qpn, w.qkey = wr.UD.AH.(*ah), wr.UD.QPN, q.keyFor(wr.UD.QKey)
	case isLocal(wr.Op):
		w.packets = 0
		if b := wr.Bind; wr.Op == driver.OpBindMW {
			w.hasRest = true
			w.remote = b.Remote()
			w.bind = binding{mw: b.MW.(*mw), mr: b.MR.(*mr), length: b.Length, access: b.Access}
		}
	case !isAtomic(wr.Op):
		w.packets = packetsOf(w.length, q.mtu)
	default:
		w.hasRest = true
		w.compareAdd, w.swap = wr.CompareAdd, wr.Swap
		if w.length != 8 {
			w.failed = driver.LocLenErr
		}
	}
	w.psn = q.req.psn
	q.req.psn = w.psn.Add(w.packets)
	q.sq.posted++
}

// packetsOf is how many packets carry n bytes: one at least.
func packetsOf(n uint32, mtu int) uint32 { return max(1, (n+uint32(mtu)-1)/uint32(mtu)) }

func isAtomic(op driver.Opcode) bool { return op == driver.OpCmpSwap || op == driver.OpFetchAdd }

// wantsResponse says that a request ends by a response of its own, not by an ACK.
func wantsResponse(op driver.Opcode) bool { return op == driver.OpRead || isAtomic(op) }

// total is the bytes of a list.
func total(sgl []driver.SGE) uint64 {
	var n uint64
	for i := range sgl {
		n += uint64(sgl[i].Length)
	}
	return n
}

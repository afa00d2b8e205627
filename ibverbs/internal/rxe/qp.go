package rxe

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
)

// bell is the doorbell of a send queue: the kernel works on what was posted.
type bell interface{ Ring() error }

// QP is a queue pair. It implements driver.QP.
type QP struct {
	driver.BaseQP
	sq    sendQueue
	bell  bell
	state atomic.Uint32 // driver.QPState, as far as it is known
	rq    recvQueue

	dev            *Context
	pd             *PD
	srq            *SRQ // nil for a receive queue of its own
	ud             *datagrams
	db             *uverbs.Doorbell
	h              uverbs.QPHandle
	num            uint32
	cap            driver.QPCap
	sendCQ, recvCQ *CQ
}

// maxInline is the most inline data of a request (RXE_MAX_INLINE_DATA), which
// the kernel tells nowhere.
const maxInline = 512

// CreateQP implements driver.PD. With an SRQ, Cap of receives counts for nothing.
func (p *PD) CreateQP(c driver.QPConfig) (driver.QP, error) {
	ops, ok := map[driver.QPType]uint16{driver.RC: opsRC, driver.UC: opsUC, driver.UD: opsUD}[c.Type]
	if !ok {
		return nil, hint(syscall.EINVAL, "there is no queue pair of type %v", c.Type)
	}
	send, ok1 := c.SendCQ.(*CQ)
	recv, ok2 := c.RecvCQ.(*CQ)
	if !ok1 || !ok2 || send.dev != p.dev || recv.dev != p.dev {
		return nil, errOtherCQ
	}
	config := uverbs.QPConfig{PD: p.h, SendCQ: send.h, RecvCQ: recv.h, Type: c.Type, SignalAll: c.SignalAll, Cookie: c.Cookie}
	var srq *SRQ
	if c.SRQ != nil {
		if srq, ok = c.SRQ.(*SRQ); !ok || srq.pd != p {
			return nil, errOtherSRQ
		}
		config.SRQ = &srq.h
		c.Cap.RecvWR, c.Cap.RecvSGE = 0, 0
	}
	config.Cap = c.Cap
	var resp [32]byte // struct rxe_create_qp_resp
	made, err := p.dev.Dev.CreateQP(config, uverbs.UHW{Out: resp[:]})
	if err != nil {
		if err == syscall.EINVAL {
			a := &p.dev.attr
			err = overLimit(err,
				limit{"the number of send requests", c.Cap.SendWR, a.MaxQPWR},
				limit{"the number of receives", c.Cap.RecvWR, a.MaxQPWR},
				limit{"the number of gather entries", c.Cap.SendSGE, a.MaxSGE},
				limit{"the number of scatter entries", c.Cap.RecvSGE, a.MaxSGE},
				limit{"the size of inline data", c.Cap.Inline, maxInline})
		}
		return nil, err
	}
	q := &QP{dev: p.dev, pd: p, srq: srq, h: made.Handle, num: made.Num, cap: made.Cap, sendCQ: send, recvCQ: recv}
	if c.Type == driver.UD {
		q.ud = &datagrams{}
	}
	q.sq = sendQueue{qp: q, ud: q.ud, ops: ops}
	if err := q.start(resp[:16], resp[16:]); err != nil {
		return nil, errors.Join(err, p.dev.Dev.DestroyQP(q.h), q.free())
	}
	p.dev.mu.Lock()
	p.dev.qps[q.num] = q
	p.dev.mu.Unlock()
	return q, nil
}

// start maps the queues. What the kernel says that it made is the limit of a
// queue, though its ring may have room for more: who made a CQ for that many
// completions must not overrun it by posting until the queue is full.
func (q *QP) start(rq, sq []byte) (err error) {
	c := &q.cap
	if q.srq == nil {
		q.rq = recvQueue{limit: c.RecvWR, sge: c.RecvSGE}
		if q.rq.ring, err = q.dev.mapRing(rq, recvWQESize+c.RecvSGE*sgeSize, c.RecvWR); err != nil {
			return err
		}
	}
	q.sq.limit, q.sq.sge, q.sq.inline = c.SendWR, c.SendSGE, c.Inline
	if q.sq.ring, err = q.dev.mapRing(sq, sendWQESize+max(c.SendSGE*sgeSize, c.Inline), c.SendWR); err != nil {
		return err
	}
	q.restart()
	q.db, err = q.dev.Dev.NewDoorbell(q.h)
	q.bell = q.db
	return err
}

// restart empties the queues.
func (q *QP) restart() {
	q.sq.restart()
	if q.srq == nil {
		q.rq.restart()
	}
}

// PostSend implements driver.QP. If the doorbell fails, the queue pair goes to
// ERR and n of wrs complete as flushed; only if even that fails are they taken
// back.
func (q *QP) PostSend(wrs []driver.SendWR) (n int, err error) {
	if driver.QPState(q.state.Load()) < driver.StateRTS {
		return 0, driver.ErrBadState
	}
	n, err = q.sq.write(wrs)
	if n == 0 {
		return 0, err
	}
	q.sq.publish()
	if failed := q.bell.Ring(); failed != nil {
		return q.notRung(n, failed)
	}
	return n, err
}

func (q *QP) notRung(n int, err error) (int, error) {
	if q.flush() != nil {
		q.sq.retract(n)
		q.freeWindows()
		return 0, err
	}
	q.state.Store(uint32(driver.StateErr))
	return n, hint(err, "the doorbell failed; the queue pair was moved to ERR, where its requests complete as flushed")
}

// PostRecv implements driver.QP. It makes no system call unless the queue pair
// is in ERR.
func (q *QP) PostRecv(wrs []driver.RecvWR) (n int, err error) {
	if q.srq != nil {
		return 0, errHasSRQ
	}
	if driver.QPState(q.state.Load()) < driver.StateInit {
		return 0, driver.ErrBadState
	}
	n, err = q.rq.write(wrs)
	if n == 0 {
		return 0, err
	}
	q.rq.publish()
	if driver.QPState(q.state.Load()) == driver.StateErr {
		if failed := q.flush(); failed != nil {
			return n, failed
		}
	}
	return n, err
}

// flush moves the queue pair to ERR, in which the kernel completes what is in
// its queues. It can be done again and again.
func (q *QP) flush() error {
	return q.dev.Dev.ModifyQP(q.h, &driver.QPAttr{State: driver.StateErr}, driver.QPStateMask)
}

// failed notes that the kernel moved the queue pair to ERR, and flushes what was
// posted since. The store comes before the flush, as in PostRecv the publishing
// comes before the load.
func (q *QP) failed() {
	if driver.QPState(q.state.Swap(uint32(driver.StateErr))) != driver.StateErr {
		_ = q.flush() // it fails only with the device, which says so elsewhere
	}
}

// Num implements driver.QP.
func (q *QP) Num() uint32 { return q.num }

// Cap implements driver.QP.
func (q *QP) Cap() driver.QPCap { return q.cap }

// Modify implements driver.QP.
func (q *QP) Modify(a *driver.QPAttr, mask driver.QPMask) error {
	if err := q.checkAttr(a, mask); err != nil {
		return err
	}
	if q.ud != nil {
		if err := q.prepare(a, mask); err != nil {
			return err
		}
	}
	before := q.state.Load()
	if err := q.dev.Dev.ModifyQP(q.h, a, mask); err != nil {
		if mask&driver.QPAV != 0 {
			err = q.dev.explainAV(err, &a.AH)
		}
		return err
	}
	if mask&driver.QPStateMask == 0 {
		return nil
	}
	switch a.State {
	case driver.StateReset:
		q.state.Store(uint32(driver.StateReset))
		q.freeWindows()
		q.restart()
	case driver.StateErr:
		q.state.Store(uint32(driver.StateErr))
	default:
		q.state.CompareAndSwap(before, uint32(a.State)) // a failure noted meanwhile stays
		if driver.QPState(before) == driver.StateSQD {
			return q.resume()
		}
	}
	return nil
}

// resume has the kernel work on what was posted in SQD: leaving that state does
// not make it look. The doorbell is one of its own, as PostSend may be ringing.
func (q *QP) resume() error {
	db, err := q.dev.Dev.NewDoorbell(q.h)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Ring()
}

// checkAttr refuses what the kernel would take and then not do.
func (q *QP) checkAttr(a *driver.QPAttr, mask driver.QPMask) error {
	const max24 = 1<<24 - 1
	for _, f := range [...]struct {
		bit driver.QPMask
		limit
	}{
		{driver.QPRQPSN, limit{"the receive PSN", int(a.RQPSN), max24}},
		{driver.QPSQPSN, limit{"the send PSN", int(a.SQPSN), max24}},
		{driver.QPDestQPN, limit{"the peer's QP number", int(a.DestQPN), max24}},
		{driver.QPTimeout, limit{"the timeout code", int(a.Timeout), 31}},
		{driver.QPRetryCnt, limit{"the retry count", int(a.RetryCnt), 7}},
		{driver.QPRNRRetry, limit{"the RNR retry count", int(a.RNRRetry), 7}},
		{driver.QPMinRNRTimer, limit{"the RNR timer code", int(a.MinRNRTimer), 31}},
		{driver.QPMaxQPRdAtomic, limit{"the number of reads and atomics to start", int(a.MaxRdAtomic), q.dev.attr.MaxQPInitRdAtom}},
		{driver.QPMaxDestRdAtomic, limit{"the number of reads and atomics to take", int(a.MaxDestRdAtomic), q.dev.attr.MaxQPRdAtomic}},
	} {
		if mask&f.bit != 0 && f.asked > f.max {
			return overLimit(syscall.EINVAL, f.limit)
		}
	}
	if mask&driver.QPAV != 0 {
		if err := q.dev.checkAV(&a.AH); err != nil {
			return err
		}
	}
	if mask&driver.QPPathMTU != 0 {
		return q.checkMTU(a, mask)
	}
	return nil
}

// checkMTU holds the path MTU against the port's.
func (q *QP) checkMTU(a *driver.QPAttr, mask driver.QPMask) error {
	if !a.PathMTU.Valid() {
		return hint(syscall.EINVAL, "the path MTU is none of the five of the IBTA")
	}
	port := 1
	if mask&driver.QPAV != 0 {
		port = a.AH.Port
	}
	p, err := q.dev.Dev.QueryPort(port)
	if err != nil {
		return fmt.Errorf("active MTU of port %d: %w", port, err)
	}
	if a.PathMTU > p.ActiveMTU {
		return hint(errPathMTU, "the path MTU is %v, port %d has %v, which follows the MTU of its net device: use the smaller of both ends", a.PathMTU, port, p.ActiveMTU)
	}
	return nil
}

// Query implements driver.QP. If the kernel has moved the queue pair to ERR, what
// was posted since is flushed.
func (q *QP) Query() (driver.QPAttr, error) {
	const all = driver.QPDestQPN<<1 - 1
	a, err := q.dev.Dev.QueryQP(q.h, all)
	if err != nil {
		return a, err
	}
	a.Cap = q.cap
	if a.State == driver.StateErr {
		q.failed()
	}
	return a, nil
}

// Purge implements driver.QP.
func (q *QP) Purge() {
	q.sendCQ.q.drop(q.num)
	if q.recvCQ != q.sendCQ {
		q.recvCQ.q.drop(q.num)
	}
}

// Close implements driver.QP.
func (q *QP) Close() error {
	q.freeWindows()
	detached := q.detachAll()
	err := q.dev.Dev.DestroyQP(q.h)
	if !destroyed(err) {
		return err
	}
	q.dev.mu.Lock()
	delete(q.dev.qps, q.num)
	q.dev.mu.Unlock()
	return errors.Join(detached, err, q.free())
}

// free gives back what belongs to the process.
func (q *QP) free() error {
	if q.db != nil {
		q.db.Close()
	}
	return errors.Join(q.sq.release(), q.rq.release())
}

package memdriver

import (
	"slices"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// qp is a queue pair. Its queues are rings whose positions count from its last
// reset and do not wrap: freed ≤ done ≤ posted.
type qp struct {
	driver.BaseQP
	pd             *pd
	sendCQ, recvCQ *cq
	num            uint32
	cookie         uint64
	signalAll      bool
	sending        turn
	receiving      turn
	control        turn

	attr        driver.QPAttr
	sq          []sendEntry
	rq          []recvEntry
	established bool // the first message has come

	sqPosted, sqDone, sqFreed uint64
	rqPosted, rqDone, rqFreed uint64

	// stall says why the first request that is not done cannot run.
	stall    stall
	deadline time.Time
	timer    *time.Timer
}

// sendEntry is a copy of a SendWR, in memory of the queue.
type sendEntry struct {
	order        uint64 // of posting, over all queues of the fabric
	id           uint64
	op           driver.Opcode
	flags        driver.SendFlags
	imm          uint32
	remote       driver.Remote
	compare, add uint64 // swap is in add
	inline       bool
	data         []byte
	sgl          []driver.SGE
	delayed      bool // its Config.Delay is over
}

type recvEntry struct {
	id  uint64
	sgl []driver.SGE
}

func (p *pd) CreateQP(c driver.QPConfig) (driver.QP, error) {
	dev := p.ctx.dev
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	if err := dev.control(OpCreateQP); err != nil {
		return nil, err
	}
	switch {
	case c.SRQ != nil:
		return nil, &driver.NotSupportedError{Feature: driver.FeatureSRQ, By: driver.LacksDriver}
	case c.Type == driver.UC:
		return nil, &driver.NotSupportedError{Feature: driver.FeatureUC, By: driver.LacksDriver}
	case c.Type == driver.UD:
		return nil, &driver.NotSupportedError{Feature: driver.FeatureUD, By: driver.LacksDriver}
	}
	sendCQ, ok1 := c.SendCQ.(*cq)
	recvCQ, ok2 := c.RecvCQ.(*cq)
	switch {
	case c.Type != driver.RC,
		!ok1 || !ok2 || sendCQ.ctx != p.ctx || recvCQ.ctx != p.ctx,
		outside(c.Cap.SendWR, dev.attr.MaxQPWR) || outside(c.Cap.RecvWR, dev.attr.MaxQPWR),
		outside(c.Cap.SendSGE, dev.attr.MaxSGE) || outside(c.Cap.RecvSGE, dev.attr.MaxSGE),
		outside(c.Cap.Inline, dev.maxInline):
		return nil, syscall.EINVAL
	case len(dev.qps) >= dev.attr.MaxQP:
		return nil, syscall.ENOMEM
	}
	dev.lastQPN++
	q := &qp{
		pd: p, sendCQ: sendCQ, recvCQ: recvCQ, num: dev.lastQPN & 0xffffff, cookie: c.Cookie, signalAll: c.SignalAll,
		attr: driver.QPAttr{Cap: c.Cap}, sq: make([]sendEntry, c.Cap.SendWR), rq: make([]recvEntry, c.Cap.RecvWR),
	}
	for i := range q.sq {
		q.sq[i].data = make([]byte, 0, c.Cap.Inline)
		q.sq[i].sgl = make([]driver.SGE, 0, c.Cap.SendSGE)
	}
	for i := range q.rq {
		q.rq[i].sgl = make([]driver.SGE, 0, c.Cap.RecvSGE)
	}
	dev.qps[q.num] = q
	sendCQ.qps = append(sendCQ.qps, q)
	recvCQ.qps = append(recvCQ.qps, q)
	p.users++
	return q, nil
}

func outside(n, limit int) bool { return n < 0 || n > limit }

func (q *qp) dev() *Device { return q.pd.ctx.dev }

func (q *qp) Num() uint32 { return q.num }

func (q *qp) Cap() driver.QPCap { return q.attr.Cap }

func (q *qp) Query() (driver.QPAttr, error) {
	q.control.take("Query")
	defer q.control.give()
	q.dev().d.mu.Lock()
	defer q.dev().d.mu.Unlock()
	if err := q.dev().control(OpQueryQP); err != nil {
		return driver.QPAttr{}, err
	}
	a := q.attr
	a.CurState = a.State
	return a, nil
}

func (q *qp) Modify(a *driver.QPAttr, mask driver.QPMask) error {
	q.control.take("Modify")
	defer q.control.give()
	toReset := mask&driver.QPStateMask != 0 && a.State == driver.StateReset
	if toReset {
		q.alone("Modify to Reset")
		defer q.notAlone()
	}
	dev := q.dev()
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	if err := dev.control(OpModifyQP); err != nil {
		return err
	}
	if err := q.checkModify(a, mask); err != nil {
		return err
	}
	q.set(a, mask)
	if mask&driver.QPStateMask == 0 {
		return nil
	}
	switch q.attr.State {
	case driver.StateReset:
		q.clear()
	case driver.StateErr:
		q.flush()
	case driver.StateSQD:
		q.unstall()
		q.attr.EnSQDNotify = mask&driver.QPEnSQDAsyncNotify != 0 && a.EnSQDNotify
		if q.attr.EnSQDNotify {
			q.raise(driver.EventSQDrained)
		}
	case driver.StateRTS:
		q.run()
	}
	dev.d.kick()
	return nil
}

// clear is what a reset forgets.
func (q *qp) clear() {
	q.unstall()
	q.sendCQ.drop(q)
	q.recvCQ.drop(q)
	q.dev().faults.dropTails(q)
	q.sqPosted, q.sqDone, q.sqFreed = 0, 0, 0
	q.rqPosted, q.rqDone, q.rqFreed = 0, 0, 0
	q.established = false
	q.attr = driver.QPAttr{Cap: q.attr.Cap}
}

func (q *qp) Close() error {
	dev := q.dev()
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	if err := dev.faults.next(OpClose); err != nil {
		return err
	}
	q.control.close("QP.Close")
	q.sending.close("QP.Close")
	q.receiving.close("QP.Close")
	q.clear()
	delete(dev.qps, q.num)
	q.sendCQ.leave(q)
	q.recvCQ.leave(q)
	q.pd.users--
	dev.d.kick()
	return nil
}

// alone takes the turns that package ibverbs holds the locks of around a
// Modify to Reset.
func (q *qp) alone(call string) {
	q.sending.take(call)
	q.receiving.take(call)
}

func (q *qp) notAlone() {
	q.sending.give()
	q.receiving.give()
}

// Purge has nothing to do: Close and Modify empty the CQs under the lock of the
// fabric.
func (q *qp) Purge() {
	q.pollsAlone("QP.Purge")
	q.pollsNotAlone()
}

func (q *qp) pollsAlone(call string) {
	q.sendCQ.polling.take(call)
	if q.recvCQ != q.sendCQ {
		q.recvCQ.polling.take(call)
	}
}

func (q *qp) pollsNotAlone() {
	q.sendCQ.polling.give()
	if q.recvCQ != q.sendCQ {
		q.recvCQ.polling.give()
	}
}

// fail puts the QP into the error state, as the device does by itself.
func (q *qp) fail() {
	if q.attr.State == driver.StateErr || q.attr.State == driver.StateReset {
		return
	}
	q.attr.State = driver.StateErr
	q.flush()
}

// flush completes all that is not done, in the order of posting.
func (q *qp) flush() {
	q.unstall()
	for q.sqDone < q.sqPosted {
		q.completeSend(driver.WRFlushErr, 0, 0)
	}
	for q.rqDone < q.rqPosted {
		q.completeRecv(driver.WC{Status: driver.WRFlushErr}, false)
	}
}

// completeSend ends the first request that is not done.
func (q *qp) completeSend(s driver.Status, vendor, byteLen uint32) {
	e := &q.sq[q.sqDone%uint64(len(q.sq))]
	q.sqDone++
	if s == driver.Success && e.flags&driver.Signaled == 0 && !q.signalAll {
		return
	}
	wc := driver.WC{ID: e.id, Status: s, VendorErr: vendor, QPN: q.num}
	if s == driver.Success {
		wc.Op, wc.ByteLen = completionOf(e.op), byteLen
	}
	q.sendCQ.put(cqe{wc: wc, qp: q, free: q.sqDone}, false)
}

// completeRecv ends the first receive that is not done; wc says how.
func (q *qp) completeRecv(wc driver.WC, solicited bool) {
	wc.ID, wc.QPN = q.rq[q.rqDone%uint64(len(q.rq))].id, q.num
	q.rqDone++
	q.recvCQ.put(cqe{wc: wc, qp: q, free: q.rqDone, recv: true}, solicited)
}

func completionOf(op driver.Opcode) driver.WCOpcode {
	switch op {
	case driver.OpWrite, driver.OpWriteWithImm:
		return driver.WCWrite
	case driver.OpRead:
		return driver.WCRead
	case driver.OpCmpSwap:
		return driver.WCCmpSwap
	case driver.OpFetchAdd:
		return driver.WCFetchAdd
	}
	return driver.WCSend
}

// raise delivers an event about the QP to its context.
func (q *qp) raise(t driver.EventType) {
	q.pd.ctx.events.Put(driver.Event{Type: t, Cookie: q.cookie})
}

// remove takes q out of a list.
func remove(list []*qp, q *qp) []*qp {
	return slices.DeleteFunc(list, func(o *qp) bool { return o == q })
}

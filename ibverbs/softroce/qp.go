package softroce

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// qp is a queue pair. Its lock guards all but the receive queue. Whoever holds it
// sends packets, completes requests and takes locks of CQs, and never waits for a
// peer or for another queue pair.
type qp struct {
	driver.BaseQP
	pd             *pd
	e              *engine
	sendCQ, recvCQ *cq
	num            uint32
	cookie         uint64
	cap            driver.QPCap
	signalAll      bool
	typ            driver.QPType
	transport      wire.Transport
	rq             *recvQueue // nil with an SRQ
	srq            *srq
	inError        atomic.Bool // for PostRecv, which does without the lock

	mu          sync.Mutex
	closed      bool
	attr        driver.QPAttr
	route           // to the peer, of a connected queue pair
	mtu         int // of the path, in bytes; of the port, for datagrams
	flow        *flow
	sq          sendQueue
	req         requester
	resp        responder
	windows     *mw  // that are bound to it
	lastWQETold bool // the event of the SRQ

	dirty  bool // it is on that list of the receiver
	owing  bool // and on that one
	onPump bool // it is on the pump's list, under the pump's lock
}

func (p *pd) CreateQP(c driver.QPConfig) (driver.QP, error) {
	sendCQ, ok1 := c.SendCQ.(*cq)
	recvCQ, ok2 := c.RecvCQ.(*cq)
	var shared *srq
	_, known := transports[c.Type]
	ok3 := true
	if c.SRQ != nil {
		c.Cap.RecvWR, c.Cap.RecvSGE = 0, 0
		shared, ok3 = c.SRQ.(*srq)
		ok3 = ok3 && shared.pd.ctx == p.ctx
	}
	switch {
	case !known,
		!ok1 || !ok2 || !ok3 || sendCQ.ctx != p.ctx || recvCQ.ctx != p.ctx,
		outside(c.Cap.SendWR, maxQPWR) || outside(c.Cap.RecvWR, maxQPWR),
		outside(c.Cap.SendSGE, maxSGE) || outside(c.Cap.RecvSGE, maxSGE),
		outside(c.Cap.Inline, maxInline):
		return nil, syscall.EINVAL
	case p.e.qps.len() >= maxQP:
		return nil, syscall.ENOMEM
	}
	q := &qp{
		pd: p, e: p.e, sendCQ: sendCQ, recvCQ: recvCQ, cookie: c.Cookie, cap: c.Cap, signalAll: c.SignalAll, typ: c.Type, transport: transports[c.Type],
		sq: newSendQueue(c.Cap), srq: shared, mtu: driver.MTU256.Bytes(),
	}
	q.cap.SendWR = ringSize(c.Cap.SendWR)
	if shared == nil {
		q.cap.RecvWR = ringSize(c.Cap.RecvWR)
		q.rq = newRecvQueue(q.cap.RecvWR, q.cap.RecvSGE)
	}
	if c.Type == driver.UD {
		if err := showClass(p.e.link); err != nil {
			return nil, err
		}
	}
	_, err := p.e.qps.add(q, p.e.random, wire.PSNMask, func(n uint32) bool {
		q.num = n
		return n > 1 && n < wire.PSNMask // 0, 1 and the last are special to the IBTA
	})
	if err != nil {
		return nil, err
	}
	sendCQ.users.Add(1)
	recvCQ.users.Add(1)
	if shared != nil {
		shared.users.Add(1)
	}
	p.users.Add(1)
	return q, nil
}

func outside(n, limit int) bool { return n < 0 || n > limit }

func (q *qp) Num() uint32 { return q.num }

func (q *qp) Cap() driver.QPCap { return q.cap }

func (q *qp) Query() (driver.QPAttr, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.attr
	a.CurState, a.Cap = a.State, q.cap
	a.RQPSN, a.SQPSN = uint32(q.resp.psn), uint32(q.req.psn)
	a.SQDraining = a.State == driver.StateSQD && q.req.una != q.req.sent
	return a, nil
}

func (q *qp) PostRecv(wrs []driver.RecvWR) (n int, err error) {
	if q.srq != nil {
		return 0, syscall.EINVAL
	}
	n, err = q.rq.post(wrs)
	if n > 0 && q.inError.Load() {
		q.mu.Lock()
		q.flush()
		q.mu.Unlock()
	}
	return n, err
}

func (q *qp) Close() error {
	q.mu.Lock()
	q.leave()
	q.closed = true
	q.clear()
	q.mu.Unlock()
	q.e.qps.remove(q.num)
	q.sendCQ.users.Add(-1)
	q.recvCQ.users.Add(-1)
	if q.srq != nil {
		q.srq.users.Add(-1)
	}
	q.pd.users.Add(-1)
	return nil
}

// clear is what a reset forgets.
func (q *qp) clear() {
	q.stopRequester()
	q.stopResponder()
	q.dropWindows()
	q.sq.reset()
	if q.rq != nil {
		q.rq.reset()
	}
	q.sendCQ.drop(q)
	q.recvCQ.drop(q)
	q.attr = driver.QPAttr{}
	q.flow, q.lastWQETold = nil, false
}

// fail puts the queue pair into the error state, as the device does by itself.
func (q *qp) fail() {
	if q.attr.State == driver.StateErr || q.attr.State == driver.StateReset {
		return
	}
	q.setState(driver.StateErr)
	q.flush()
}

// flush completes all that is not done, in the order of posting. Receives of a
// shared queue stay there.
func (q *qp) flush() {
	q.stopRequester()
	for q.sq.done < q.sq.posted {
		q.completeSend(driver.WRFlushErr, 0)
	}
	q.sq.next = q.sq.done
	q.flushResponder()
	if q.srq != nil {
		q.lastWQE()
		return
	}
	for q.takeReceive() {
		q.completeRecv(driver.WC{Status: driver.WRFlushErr}, false)
	}
}

// completeSend ends the oldest request.
func (q *qp) completeSend(s driver.Status, byteLen uint32) {
	w := q.sq.at(q.sq.done)
	q.sq.done++
	if s == driver.Success && w.flags&driver.Signaled == 0 && !q.signalAll {
		return
	}
	wc := driver.WC{ID: w.id, Status: s, QPN: q.num}
	if s == driver.Success {
		wc.Op, wc.ByteLen = completionOf(w.op), byteLen
	}
	if !q.sendCQ.put(cqe{wc: wc, qp: q, freed: &q.sq.freed, upTo: q.sq.done}, false) {
		q.fail()
	}
}

// completeRecv ends the receive that was taken; wc says how.
func (q *qp) completeRecv(wc driver.WC, solicited bool) {
	r := &q.resp
	wc.ID, wc.QPN = r.recv.id, q.num
	r.hasRecv, r.replies.prompt = false, true
	e := cqe{wc: wc, qp: q}
	if q.rq != nil {
		e.freed, e.upTo = &q.rq.freed, r.recvUpTo
	}
	if !q.recvCQ.put(e, solicited) {
		q.fail()
	}
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
	case driver.OpBindMW:
		return driver.WCBindMW
	case driver.OpLocalInv:
		return driver.WCLocalInv
	}
	return driver.WCSend
}

// raise delivers an event about the queue pair to its context.
func (q *qp) raise(t driver.EventType) {
	q.pd.ctx.events.Put(driver.Event{Type: t, Cookie: q.cookie})
}

package mlx5model

import (
	"math/bits"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/softdev"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// qp is a queue pair.
type qp struct {
	c          *context
	num        uint32
	key        uint32 // what completions name it by
	user       uint64
	async      eventFile
	kind       driver.QPType
	pd         *pd
	send, recv *cq
	srq        *srq
	uar        *uar
	cap        uapi.QPCap
	// Short messages go into their completions, here and there.
	scatterSent, scatterReceived bool
	signalAll                    bool
	alone                        bool // of its own messages to groups none comes back
	db                           uint64
	rq, sq                       uint64 // where the queues lie
	rqN, rqShift                 uint32
	sqN                          uint32 // basic blocks
	rqCI, sqCI                   uint16 // entries, and blocks, that are done

	state driver.QPState
	attr  uapi.ModifyQP // all that was set

	since time.Time // when the first entry was tried first; zero if it was not
	after time.Time // when it is tried again
	tries int       // how often the peer was not ready

	groups []group
}

const qpFlagAllowScatter = 1 << 8 // MLX5_QP_FLAG_ALLOW_SCATTER_CQE

func (c *call) createQP() error {
	b, err := c.in(uapi.AttrUHWIn)
	if err != nil {
		return err
	}
	capacity, err := c.in(uapi.AttrCreateQPCap)
	if err != nil {
		return err
	}
	req := structOf[uapi.MLX5CreateQP](b)
	q := &qp{c: c.context, user: c.number(uapi.AttrCreateQPUserHandle), kind: driver.QPType(c.number(uapi.AttrCreateQPType)), db: req.DBAddr,
		cap: structOf[uapi.QPCap](capacity), uar: c.uars[req.BFRegIndex],
		signalAll: c.number(uapi.AttrCreateQPFlags)&uapi.QPCreateSQSigAll != 0, alone: c.number(uapi.AttrCreateQPFlags)&blockLoopback != 0,
		rq: req.BufAddr, rqN: req.RQWQECount, rqShift: req.RQWQEShift, sqN: req.SQWQECount}
	if q.async, err = c.asyncFile(uapi.AttrCreateQPEventFD); err != nil {
		return err
	}
	if q.pd, err = object[*pd](c.context, c.number(uapi.AttrCreateQPPDHandle)); err != nil {
		return err
	}
	if q.send, err = object[*cq](c.context, c.number(uapi.AttrCreateQPSendCQHandle)); err != nil {
		return err
	}
	if q.recv, err = object[*cq](c.context, c.number(uapi.AttrCreateQPRecvCQHandle)); err != nil {
		return err
	}
	if c.attrs[uapi.AttrCreateQPSRQHandle] != nil {
		if q.srq, err = object[*srq](c.context, c.number(uapi.AttrCreateQPSRQHandle)); err != nil {
			return err
		}
		q.rqN, q.cap.MaxRecvWR, q.cap.MaxRecvSGE = 0, 0, 0
	}
	if err := c.checkQP(q, &req); err != nil {
		return err
	}
	if req.Flags&uapi.MLX5QPFlagScatterCQE != 0 {
		q.scatterReceived = q.kind != driver.UD
		q.scatterSent = q.kind == driver.RC && (q.signalAll || req.Flags&qpFlagAllowScatter != 0)
	}
	q.sq = q.rq + uint64(q.rqN)<<q.rqShift
	if !c.mem.allows(q.rq, uint64(q.rqN)<<q.rqShift+uint64(q.sqN)*mlx5prm.SendBB, true) || !c.mem.allows(q.db, mlx5prm.RecordSize, true) {
		return syscall.EFAULT
	}
	q.num = c.m.number()
	if q.key = q.num; c.version == 1 {
		q.key = req.UIdx
	}
	q.pd.used++
	q.send.used++
	q.recv.used++
	q.uar.used++
	if q.srq != nil {
		q.srq.used++
	}
	c.m.qps[q.num] = q
	resp := uapi.MLX5CreateQPResp{BFRegIndex: req.BFRegIndex, ECEOptions: offered(req.ECEOptions)}
	if err := c.outs(map[uint16][]byte{
		uapi.AttrCreateQPRespCap: bytesOf(&q.cap), uapi.AttrCreateQPRespQPNum: u32(q.num), uapi.AttrUHWOut: bytesOf(&resp),
	}); err != nil {
		return err
	}
	return c.made(uapi.AttrCreateQPHandle, c.add(q))
}

func (c *call) checkQP(q *qp, req *uapi.MLX5CreateQP) error {
	known := uint32(uapi.MLX5QPFlagScatterCQE | uapi.MLX5QPFlagUARPageIndex | qpFlagAllowScatter)
	flags := c.number(uapi.AttrCreateQPFlags)
	switch {
	case q.kind != driver.RC && q.kind != driver.UC && q.kind != driver.UD:
		return syscall.EOPNOTSUPP
	case req.Flags&^known != 0, flags&^uint64(uapi.QPCreateSQSigAll|blockLoopback) != 0:
		c.m.logf("a queue pair with flags %#x of the driver and %#x", req.Flags, flags)
		return syscall.EOPNOTSUPP
	case req.Flags&uapi.MLX5QPFlagUARPageIndex == 0, q.uar == nil:
		c.m.faultf("a queue pair in a page of doorbells %d that is not the program's", req.BFRegIndex)
		return syscall.EINVAL
	case q.sqN > maxQPWR, bits.OnesCount32(q.sqN) > 1, bits.OnesCount32(q.rqN) > 1, q.rqN > maxQPWR, q.rqShift > 9:
		return syscall.EINVAL
	case q.cap.MaxSendSGE > maxSGE+2, q.cap.MaxSendWR > maxQPWR, q.cap.MaxRecvWR > maxQPWR:
		return syscall.EINVAL
	case q.rqN != 0 && q.rqShift < 4:
		return syscall.EINVAL
	}
	return nil
}

func (c *call) destroyQP() error {
	h := c.number(uapi.AttrDestroyQPHandle)
	q, err := object[*qp](c.context, h)
	switch {
	case err != nil:
		return err
	case len(q.groups) > 0:
		return syscall.EBUSY
	}
	q.gone()
	delete(c.objects, uint32(h))
	return c.out(uapi.AttrDestroyQPResp, u32(c.forget(q.async, q.user)))
}

// gone takes a queue pair from what it was made with.
func (q *qp) gone() {
	q.pd.used--
	q.send.used--
	q.recv.used--
	q.uar.used--
	if q.srq != nil {
		q.srq.used--
	}
	delete(q.c.m.qps, q.num)
	delete(q.c.m.watched, q)
}

// modifyQP answers MODIFY_QP. The request of its extended form begins alike.
func (c *call) modifyQP(request []byte) ([]byte, error) {
	r := structOf[uapi.ModifyQP](request)
	q, err := object[*qp](c.context, uint64(r.QPHandle))
	if err != nil {
		return nil, err
	}
	mask := driver.QPMask(r.AttrMask)
	a := driver.QPAttr{State: driver.QPState(r.QPState), CurState: driver.QPState(r.CurQPState)}
	if err := softdev.CheckTransition(q.kind, q.state, &a, mask); err != nil {
		c.m.logf("queue pair %#x in %v: %v to %v with %v", q.num, q.state, err, a.State, mask)
		return nil, err
	}
	if err := q.check(&r, mask); err != nil {
		c.m.logf("queue pair %#x: a value of %v is refused: %v", q.num, mask, err)
		return nil, err
	}
	q.set(&r, mask)
	if mask&driver.QPStateMask == 0 {
		return nil, nil
	}
	from := q.state
	q.state = a.State
	switch {
	case a.State == driver.StateReset:
		q.rqCI, q.sqCI, q.since, q.after, q.tries, q.attr = 0, 0, time.Time{}, time.Time{}, 0, uapi.ModifyQP{}
		delete(q.c.m.watched, q)
	case a.State == driver.StateErr && from != driver.StateErr && from != driver.StateReset:
		q.fail()
	default:
		q.run(time.Now())
	}
	return nil, nil
}

// check looks at the values that a change sets.
func (q *qp) check(r *uapi.ModifyQP, mask driver.QPMask) error {
	has := func(m driver.QPMask) bool { return mask&m != 0 }
	switch {
	case has(driver.QPPort) && r.PortNum != 1,
		has(driver.QPPKeyIndex) && r.PKeyIndex >= 128,
		has(driver.QPPathMTU) && (r.PathMTU == 0 || r.PathMTU > mtu4096),
		has(driver.QPMaxQPRdAtomic) && r.MaxRdAtomic > maxRdAtomic,
		has(driver.QPMaxDestRdAtomic) && r.MaxDestRdAtomic > maxRdAtomic,
		has(driver.QPMinRNRTimer) && r.MinRNRTimer > 31,
		has(driver.QPRNRRetry) && r.RNRRetry > 7,
		has(driver.QPRetryCnt) && r.RetryCnt > 7,
		has(driver.QPAV) && r.Dest.IsGlobal != 0 && int(r.Dest.SGIDIndex) >= len(q.c.m.config.gids()),
		has(driver.QPAV) && r.Dest.IsGlobal == 0 && q.c.m.config.Ethernet:
		return syscall.EINVAL
	}
	return nil
}

func (q *qp) set(r *uapi.ModifyQP, mask driver.QPMask) {
	a := &q.attr
	for m, set := range map[driver.QPMask]func(){
		driver.QPAccessFlags:     func() { a.QPAccessFlags = r.QPAccessFlags },
		driver.QPPKeyIndex:       func() { a.PKeyIndex = r.PKeyIndex },
		driver.QPPort:            func() { a.PortNum = r.PortNum },
		driver.QPQKey:            func() { a.QKey = r.QKey },
		driver.QPAV:              func() { a.Dest = r.Dest },
		driver.QPPathMTU:         func() { a.PathMTU = r.PathMTU },
		driver.QPTimeout:         func() { a.Timeout = r.Timeout },
		driver.QPRetryCnt:        func() { a.RetryCnt = r.RetryCnt },
		driver.QPRNRRetry:        func() { a.RNRRetry = r.RNRRetry },
		driver.QPRQPSN:           func() { a.RQPSN = r.RQPSN & 0xffffff },
		driver.QPMaxQPRdAtomic:   func() { a.MaxRdAtomic = r.MaxRdAtomic },
		driver.QPMinRNRTimer:     func() { a.MinRNRTimer = r.MinRNRTimer },
		driver.QPSQPSN:           func() { a.SQPSN = r.SQPSN & 0xffffff },
		driver.QPMaxDestRdAtomic: func() { a.MaxDestRdAtomic = r.MaxDestRdAtomic },
		driver.QPDestQPN:         func() { a.DestQPNum = r.DestQPNum & 0xffffff },
	} {
		if mask&m != 0 {
			set()
		}
	}
}

// queryQP tells of capacities those of the receive queue only, as its entries have them:
// the send queue is the program's own affair.
func (c *call) queryQP(request []byte) ([]byte, error) {
	q, err := object[*qp](c.context, uint64(structOf[uapi.QueryQP](request).QPHandle))
	if err != nil {
		return nil, err
	}
	a := &q.attr
	r := uapi.QueryQPResp{
		Dest: a.Dest, QKey: a.QKey, RQPSN: a.RQPSN, SQPSN: a.SQPSN, DestQPNum: a.DestQPNum, QPAccessFlags: a.QPAccessFlags,
		PKeyIndex: a.PKeyIndex, QPState: uint8(q.state), CurQPState: uint8(q.state), PathMTU: a.PathMTU, MaxRdAtomic: a.MaxRdAtomic,
		MaxDestRdAtomic: a.MaxDestRdAtomic, MinRNRTimer: a.MinRNRTimer, PortNum: a.PortNum, Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry,
	}
	if q.rqN != 0 {
		r.MaxRecvWR, r.MaxRecvSGE = q.rqN, 1<<q.rqShift/mlx5prm.DSUnit
	}
	if q.signalAll {
		r.SQSigAll = 1
	}
	return bytesOf(&r), nil
}

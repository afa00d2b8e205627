package mlx5

import (
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	"github.com/purerdma/purerdma/internal/offheap"
)

// QP is a queue pair. It implements driver.QP.
type QP struct {
	driver.BaseQP
	sq      sendQueue
	rq      recvQueue
	state   atomic.Uint32  // driver.QPState, as far as it is known
	sqFails driver.QPState // the state after a send request in error

	dev                *Context
	pd                 *PD
	h                  uverbs.QPHandle
	num, key           uint32 // key is what completions name it by
	cap                driver.QPCap
	mem                offheap.Span
	port               int // that it was given last
	cookie             uint64
	eceAsked, eceInUse uint32
	sendCQ, recvCQ     *CQ
	srq                *SRQ        // nil for a receive queue of its own
	binds              atomic.Bool // windows were bound
	gone               atomic.Bool // destroyed, and found by polls until Purge
}

// CreateQP implements driver.PD.
func (p *PD) CreateQP(c driver.QPConfig) (driver.QP, error) {
	kind, ok := kinds[c.Type]
	if !ok {
		return nil, hint(syscall.EINVAL, "there is no queue pair of type %v", c.Type)
	}
	send, ok1 := c.SendCQ.(*CQ)
	recv, ok2 := c.RecvCQ.(*CQ)
	if !ok1 || !ok2 || send.dev != p.dev || recv.dev != p.dev {
		return nil, errOtherCQ
	}
	var srq *SRQ
	if c.SRQ != nil {
		if srq, ok = c.SRQ.(*SRQ); !ok || srq.dev != p.dev {
			return nil, errOtherSRQ
		}
		c.Cap.RecvWR, c.Cap.RecvSGE = 0, 0
	}
	if err := p.dev.takes(&c.Cap, kind.overhead); err != nil {
		return nil, err
	}
	q := &QP{dev: p.dev, pd: p, port: 1, cookie: c.Cookie, sendCQ: send, recvCQ: recv, srq: srq, cap: c.Cap, sqFails: kind.fails}
	q.sq.ops, q.sq.qp = kind.ops, q
	if c.Type == driver.UD {
		q.sq.datagram = p
	}
	if c.SignalAll {
		q.sq.always = mlx5prm.CtrlCQUpdate
	}
	if err := q.create(p, &c, kind.overhead); err != nil {
		return nil, err
	}
	return q, nil
}

// takes holds what is asked for against the device.
func (c *Context) takes(n *driver.QPCap, overhead int) error {
	most := min(c.maxSQDesc, maxDS*mlx5prm.DSUnit) - overhead
	if err := errors.Join(
		within("the number of send requests", n.SendWR, 0, c.attr.MaxQPWR),
		within("the number of receives", n.RecvWR, 0, c.maxRecv),
		within("the number of gather entries", n.SendSGE, 0, min(c.attr.MaxSGE, most/mlx5prm.DSUnit)),
		within("the number of scatter entries", n.RecvSGE, 0, min(c.attr.MaxSGE, c.maxRQDesc/mlx5prm.DSUnit)),
		within("the size of inline data", n.Inline, 0, most-mlx5prm.DSUnit)); err != nil {
		return err
	}
	if blocks, _ := sendShape(*n, overhead); blocks > c.maxBB {
		return hint(syscall.EINVAL, "the send queue takes %d blocks of 64 bytes, the device has %d: ask for fewer requests or gather entries", blocks, c.maxBB)
	}
	return nil
}

// create makes the queues and the kernel's object. The receive queue comes first in
// the memory, behind the queues the doorbell record, and then what only polls look at:
// it is filled by a post and read by a poll, between which the device alone makes the
// order, so that the race detector must not see it.
func (q *QP) create(p *PD, c *driver.QPConfig, overhead int) (err error) {
	blocks, inline := sendShape(c.Cap, overhead)
	count, shift := recvShape(c.Cap.RecvWR, c.Cap.RecvSGE)
	recvBytes, sendBytes := count<<shift, blocks*mlx5prm.SendBB
	records := recvBytes + sendBytes
	tables := records + recordRoom
	if q.mem, err = offheap.Map(tables+blocks*sentSize+count*12, offheap.Options{}); err != nil {
		return err
	}
	if q.sq.bell, err = q.dev.takeDoorbell(); err != nil {
		return errors.Join(err, q.mem.Release())
	}
	q.rq.view, q.rq.shift, q.rq.ids, q.rq.record = viewOf(q.mem, 0, recvBytes), shift, idTable(q.mem, tables+blocks*sentSize, count), word(q.mem, records)
	q.rq.held = flagTable(q.mem, tables+blocks*sentSize+count*8, count)
	q.rq.sge, q.rq.limit = c.Cap.RecvSGE, uint32(c.Cap.RecvWR)
	q.sq.view, q.sq.requests, q.sq.record = viewOf(q.mem, recvBytes, sendBytes), sentTable(q.mem, tables, blocks), word(q.mem, records+4)
	q.cap.Inline = max(inline, 0)
	q.sq.sge, q.sq.inline, q.sq.limit = c.Cap.SendSGE, q.cap.Inline, uint32(c.Cap.SendWR)

	q.key = defaultUIdx
	if q.dev.uidx {
		var free bool
		if q.key, free = q.dev.qps.add(q); !free {
			return errors.Join(hint(syscall.ENOMEM, "no user index is left: close queue pairs"), q.free())
		}
	}
	req := uapi.MLX5CreateQP{BufAddr: q.mem.Addr(), DBAddr: q.mem.Addr() + uint64(records), SQWQECount: uint32(blocks),
		RQWQECount: uint32(count), RQWQEShift: shift, Flags: uapi.MLX5QPFlagUARPageIndex, UIdx: q.key, BFRegIndex: q.sq.bell.page}
	if q.dev.ece {
		req.ECEOptions = eceVersion1
	}
	var resp uapi.MLX5CreateQPResp
	config := uverbs.QPConfig{PD: p.h, SendCQ: q.sendCQ.h, RecvCQ: q.recvCQ.h, Type: c.Type, Cap: q.cap, SignalAll: c.SignalAll, Cookie: c.Cookie}
	if q.srq != nil {
		config.SRQ = &q.srq.h
	}
	made, err := q.dev.Dev.CreateQP(config, uverbs.UHW{In: bytesOf(&req), Out: bytesOf(&resp)})
	if err != nil {
		return errors.Join(err, q.free())
	}
	q.h, q.num, q.sq.qpn, q.eceInUse = made.Handle, made.Num, made.Num, resp.ECEOptions
	q.dev.mu.Lock()
	q.dev.live[q] = struct{}{}
	q.dev.mu.Unlock()
	if q.dev.uidx {
		q.dev.qps.complete(q.key, q)
		return nil
	}
	q.key = q.num
	q.dev.qps.put(q.key, q)
	return nil
}

// PostSend implements driver.QP. It makes no system call.
func (q *QP) PostSend(wrs []driver.SendWR) (n int, err error) {
	if driver.QPState(q.state.Load()) < driver.StateRTS {
		return 0, driver.ErrBadState
	}
	n, err = q.sq.write(wrs)
	if n > 0 {
		q.sq.publish(n)
	}
	return n, err
}

// PostsToMemory implements driver.MemoryPoster.
func (q *QP) PostsToMemory() {}

// PostRecv implements driver.QP. It makes no system call.
func (q *QP) PostRecv(wrs []driver.RecvWR) (n int, err error) {
	if q.srq != nil {
		return 0, errHasSRQ
	}
	if driver.QPState(q.state.Load()) < driver.StateInit {
		return 0, driver.ErrBadState
	}
	n, err = q.rq.write(wrs)
	if n > 0 {
		q.rq.publish()
	}
	return n, err
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
	before := q.state.Load()
	if err := q.change(a, mask); err != nil {
		return q.explain(err, a, mask)
	}
	if mask&driver.QPPort != 0 {
		q.port = a.Port
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
	}
	return nil
}

// Multicast implements driver.QP. The device holds what is attached.
func (q *QP) Multicast(g driver.GID, lid uint16, attach bool) error {
	switch {
	case q.sq.datagram == nil:
		return hint(syscall.EINVAL, "only UD queue pairs receive from multicast groups")
	case !g.Addr().IsMulticast():
		return hint(syscall.EINVAL, "%v is no multicast address", g.Addr())
	case attach:
		return q.dev.Dev.AttachMulticast(q.h, g, lid)
	}
	return q.dev.Dev.DetachMulticast(q.h, g, lid)
}

// Query implements driver.QP.
func (q *QP) Query() (driver.QPAttr, error) {
	const all = driver.QPDestQPN<<1 - 1
	a, err := q.dev.Dev.QueryQP(q.h, all)
	if err != nil {
		return a, err
	}
	a.Cap = q.cap
	if a.State == driver.StateErr {
		q.state.Store(uint32(driver.StateErr))
	}
	return a, nil
}

// giveBack frees the receive of the SRQ that a completion nobody will see took.
func (q *QP) giveBack(e *mlx5prm.CQE) {
	if q.srq == nil {
		return
	}
	switch e.Opcode() {
	case mlx5prm.CQERespErr, mlx5prm.CQERespSend, mlx5prm.CQERespSendImm, mlx5prm.CQERespSendInv, mlx5prm.CQERespWrImm:
		var wc driver.WC
		q.srq.q.complete(&wc, e.WQECounter.Get())
	}
}

// Purge implements driver.QP. No poll of its CQs runs meanwhile: what polls of a
// destroyed QP may have looked at is unmapped now, and not before. A poll between a
// reset and this may have counted completions of before.
func (q *QP) Purge() {
	mine := func(e *mlx5prm.CQE) bool {
		if of := e.QPN(); !q.dev.uidx && of != q.num || q.dev.uidx && e.SRQNUIdx.Get()&0xffffff != q.key {
			return false
		}
		q.giveBack(e)
		return true
	}
	q.sendCQ.drop(mine)
	if q.recvCQ != q.sendCQ {
		q.recvCQ.drop(mine)
	}
	switch {
	case q.dev.bury(q):
		q.dev.qps.drop(q.key, q)
		_ = q.mem.Release()
	case driver.QPState(q.state.Load()) == driver.StateReset:
		q.restart()
	}
}

// restart empties the queues.
func (q *QP) restart() {
	q.sq.restart()
	q.rq.restart()
}

// Close implements driver.QP. A poll that has found the QP already still looks at its
// memory, and one that finds it later has receives of an SRQ to give back: so both stay
// until Purge.
func (q *QP) Close() error {
	err := q.dev.Dev.DestroyQP(q.h)
	if !destroyed(err) {
		return err
	}
	q.freeWindows()
	q.gone.Store(true)
	q.dev.giveDoorbell(q.sq.bell)
	q.dev.mu.Lock()
	delete(q.dev.live, q)
	q.dev.dead[q] = struct{}{}
	q.dev.mu.Unlock()
	return err
}

// free gives back what belongs to the process, of a QP that never was.
func (q *QP) free() error {
	if q.key != defaultUIdx {
		q.dev.qps.drop(q.key, q)
	}
	q.dev.giveDoorbell(q.sq.bell)
	return q.mem.Release()
}

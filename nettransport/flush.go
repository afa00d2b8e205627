package nettransport

import (
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
)

// flushTarget is how many bytes of memory a flush reads into; it reads one.
const flushTarget = 4

// makeFlush makes a queue pair on each rail that is connected to itself.
func (c *RecvComm) makeFlush() error {
	var err error
	if c.target, err = mr.Alloc(flushTarget); err != nil {
		return err
	}
	c.buffers = append(c.buffers, c.target)
	if err := c.ring(c.target, ibverbs.LocalWrite, &c.tlkeys); err != nil {
		return err
	}
	for i := range c.rails {
		r := &c.rails[i]
		if r.flush, err = qp.NewLoopback(r.pd, r.cq, MaxRequests, c.qpOptions(r.port)...); err != nil {
			return err
		}
		r.port.dev.route(&c.Comm, r.flush.QP)
	}
	return nil
}

// Flush makes sure that what has arrived in buffers is visible to whoever reads them not through the processor: a GPU. bs are
// the buffers of a receive that has ended, N being what has come. It reads one byte of the last that is not empty over each
// device, behind the data. ok is false if that is not needed (Config.Flush is off, or nothing has come) or MaxRequests are in
// flight.
func (c *RecvComm) Flush(bs ...Buffer) (r Request, ok bool, err error) {
	if c.err != nil {
		return Request{}, false, c.err
	}
	if len(bs) > MaxRecvs {
		return Request{}, false, c.argError("flush", fmt.Errorf("%d buffers, where %d can be: %w", len(bs), MaxRecvs, syscall.EINVAL), "")
	}
	last := -1
	for i := range bs {
		if err := bs[i].check(&c.Comm, "flush"); err != nil {
			return Request{}, false, err
		}
		if bs[i].N > 0 {
			last = i
		}
	}
	if !c.flushes || last < 0 {
		return Request{}, false, nil
	}
	q := c.requests.take(flushing, 1)
	if q == nil {
		return Request{}, false, nil
	}
	b := &bs[last]
	q.mrs[0], q.sizes[0], q.posted = b.MR, 0, true
	b.MR.users++
	for i := range c.rails {
		q.events[i]++
		q.pending++
		if _, err := c.rails[i].flush.PostSend(ibverbs.SendWR{ID: uint64(q.slot), Op: ibverbs.OpRead, Flags: ibverbs.Signaled,
			SGL:    []ibverbs.SGE{{Addr: c.target.Addr(), Length: 1, LKey: c.tlkeys[i]}},
			Remote: ibverbs.Remote{Addr: b.MR.addr + uint64(b.Off), RKey: b.MR.rkeys[i]}}); err != nil {
			return Request{}, false, c.fail(c.postError(&lane{qp: c.rails[i].flush, rail: i}, err))
		}
	}
	return c.requests.handle(q), true, nil
}

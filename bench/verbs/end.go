package main

import (
	"context"
	"errors"
	"time"

	"github.com/purerdma/purerdma/bench/control"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
)

// looksPerYield is how many looks that find nothing go by between two yields.
const looksPerYield = 256

// end is one end of a measurement: a queue pair and a buffer, the first half to send from and the second for the peer.
type end struct {
	job  job
	dev  *ibverbs.Context
	pd   *ibverbs.PD
	cq   *ibverbs.CQ
	buf  *mr.Buffer
	mem  *ibverbs.MR
	qp   *qp.QP
	half int
	peer place
}

// newEnd opens the device. find is where it is looked for.
func newEnd(j job, device string, find ...ibverbs.Option) (*end, error) {
	const page = 4096
	e := &end{job: j, half: (j.Size + page - 1) / page * page}
	if err := e.open(device, find); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *end) open(device string, find []ibverbs.Option) (err error) {
	if e.dev, err = ibverbs.Open(device, find...); err != nil {
		return err
	}
	if e.pd, err = e.dev.AllocPD(); err != nil {
		return err
	}
	if e.cq, err = e.dev.CreateCQ(e.job.Depth + 1); err != nil {
		return err
	}
	if e.buf, err = mr.Alloc(2 * e.half); err != nil {
		return err
	}
	if e.mem, err = e.pd.RegMR(e.buf, ibverbs.LocalWrite|ibverbs.RemoteWrite); err != nil {
		return err
	}
	e.qp, err = qp.New(e.pd, e.cq, e.cq, qp.WithGIDIndex(e.job.GIDIndex), qp.WithDepth(e.job.Depth, 1), qp.WithInline(inlineFor(e.job)),
		qp.WithTimeout(uint8(e.job.Timeout), 7))
	return err
}

func inlineFor(j job) int {
	if j.Test == latency && j.Size <= inline {
		return inline
	}
	return 0
}

// Close frees all of it.
func (e *end) Close() error {
	var errs []error
	if e.dev != nil {
		errs = append(errs, e.dev.Close())
	}
	if e.buf != nil {
		errs = append(errs, e.buf.Close())
	}
	return errors.Join(errs...)
}

// handshake is how long the two ends may take to find each other: a change to RTR may sit in the kernel.
const handshake = 30 * time.Second

// connect tells the peer where this end is, learns where the peer is and connects.
func (e *end) connect(ctx context.Context, ctl *control.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	to := e.mem.Remote(e.half)
	if err := ctl.Send(sayPlace, place{QP: e.qp.Info(), Addr: to.Addr, RKey: to.RKey, Len: e.half}); err != nil {
		return err
	}
	if err := ctl.Recv(ctx, sayPlace, &e.peer); err != nil {
		return err
	}
	if err := e.peer.check(e.job); err != nil {
		return err
	}
	if err := e.qp.ConnectContext(ctx, e.peer.QP); err != nil {
		return err
	}
	if err := ctl.Send(sayConnected, nil); err != nil {
		return err
	}
	return ctl.Recv(ctx, sayConnected, nil)
}

func (e *end) remote() ibverbs.Remote { return ibverbs.Remote{Addr: e.peer.Addr, RKey: e.peer.RKey} }

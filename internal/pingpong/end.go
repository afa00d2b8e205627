package pingpong

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/cause"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/mr"
)

// end is our end of a session.
type end struct {
	Session
	dev  *ibverbs.Context
	at   hwtest.Place
	seed *rand.Rand

	pd     *ibverbs.PD
	cq     *ibverbs.CQ
	srq    *ibverbs.SRQ
	ah     *ibverbs.AH
	buf    *mr.Buffer
	mem    *ibverbs.MR
	qps    []*connection
	posted int // receives that have not completed
}

// connection is one of the queue pairs.
type connection struct {
	qp      *ibverbs.QP
	psn     uint32
	peer    address
	pending int // what of the last message has not completed: sendID, recvID or both
}

// What a completion is of.
const (
	recvID = 1
	sendID = 2
)

// qkey is that of ibv_ud_pingpong, grh what stands before each of its messages.
const (
	qkey = 0x11111111
	grh  = 40
)

// room is the bytes that a receive needs.
func (e *end) room() int {
	if e.Kind == UD {
		return grh + e.Size
	}
	return e.Size
}

func (e *end) open() (err error) {
	if e.pd, err = e.dev.AllocPD(); err != nil {
		return err
	}
	var opts []ibverbs.CQOption
	if e.Events {
		opts = append(opts, ibverbs.WithEvents())
	}
	if e.cq, err = e.dev.CreateCQ(e.Depth+e.QPs, opts...); err != nil {
		return err
	}
	if e.buf, err = mr.Alloc(e.room()); err != nil {
		return err
	}
	if e.mem, err = e.pd.RegMR(e.buf, ibverbs.LocalWrite); err != nil {
		return err
	}
	if e.Kind == SRQ {
		if e.srq, err = e.pd.CreateSRQ(ibverbs.SRQConfig{WR: e.Depth, SGE: 1}); err != nil {
			return err
		}
	}
	for range e.QPs {
		if err = e.openQP(); err != nil {
			return err
		}
	}
	return e.post(e.Depth)
}

func (e *end) openQP() error {
	types := map[Kind]ibverbs.QPType{RC: ibverbs.RC, UC: ibverbs.UC, UD: ibverbs.UD, SRQ: ibverbs.RC}
	config := ibverbs.QPConfig{Type: types[e.Kind], SendCQ: e.cq, RecvCQ: e.cq, SRQ: e.srq,
		Cap: ibverbs.QPCap{SendWR: 1, RecvWR: e.Depth, SendSGE: 1, RecvSGE: 1}}
	qp, err := e.pd.CreateQP(config)
	if err != nil {
		return err
	}
	e.qps = append(e.qps, &connection{qp: qp, psn: uint32(e.seed.IntN(1 << 24)), pending: recvID})
	init := ibverbs.QPAttr{State: ibverbs.StateInit, Port: e.at.Port, QKey: qkey}
	mask := ibverbs.QPStateMask | ibverbs.QPPKeyIndex | ibverbs.QPPort
	if e.Kind == UD {
		mask |= ibverbs.QPQKey
	} else {
		mask |= ibverbs.QPAccessFlags
	}
	return qp.Modify(&init, mask)
}

// close closes what there is of it.
func (e *end) close() error {
	var errs []error
	closing := func(c interface{ Close() error }, there bool) {
		if there {
			errs = append(errs, c.Close())
		}
	}
	for _, c := range e.qps {
		closing(c.qp, true)
	}
	closing(e.ah, e.ah != nil)
	closing(e.srq, e.srq != nil)
	closing(e.mem, e.mem != nil)
	closing(e.buf, e.buf != nil)
	closing(e.cq, e.cq != nil)
	closing(e.pd, e.pd != nil)
	return errors.Join(errs...)
}

// post posts n receives.
func (e *end) post(n int) error {
	post := e.qps[0].qp.PostRecv
	if e.srq != nil {
		post = e.srq.PostRecv
	}
	for range n {
		if _, err := post(ibverbs.RecvWR{ID: recvID, SGL: []ibverbs.SGE{e.mem.SGE(0, e.room())}}); err != nil {
			return err
		}
	}
	e.posted += n
	return nil
}

// connect brings a queue pair to RTS, with the timers of the programs.
func (e *end) connect(c *connection) (err error) {
	way := ibverbs.AHAttr{DGID: c.peer.gid, IsGlobal: true, SGIDIndex: e.at.GID.Index, Port: e.at.Port, HopLimit: 1}
	rtr := ibverbs.QPAttr{State: ibverbs.StateRTR, AH: way, PathMTU: e.MTU, DestQPN: c.peer.qpn, RQPSN: c.peer.psn, MaxDestRdAtomic: 1, MinRNRTimer: 12}
	rts := ibverbs.QPAttr{State: ibverbs.StateRTS, SQPSN: c.psn, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1}
	toRTR, toRTS := ibverbs.QPStateMask, ibverbs.QPStateMask|ibverbs.QPSQPSN
	if e.Kind != UD {
		toRTR |= ibverbs.QPAV | ibverbs.QPPathMTU | ibverbs.QPDestQPN | ibverbs.QPRQPSN
	}
	if e.Kind == RC || e.Kind == SRQ {
		toRTR |= ibverbs.QPMaxDestRdAtomic | ibverbs.QPMinRNRTimer
		toRTS |= ibverbs.QPTimeout | ibverbs.QPRetryCnt | ibverbs.QPRNRRetry | ibverbs.QPMaxQPRdAtomic
	}
	if err := c.qp.Modify(&rtr, toRTR); err != nil {
		return err
	}
	if err := c.qp.Modify(&rts, toRTS); err != nil {
		return err
	}
	if e.Kind == UD {
		e.ah, err = e.pd.CreateAH(way)
	}
	return err
}

func (e *end) send(c *connection) error {
	wr := ibverbs.SendWR{ID: sendID, Op: ibverbs.OpSend, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{e.mem.SGE(e.room()-e.Size, e.Size)}}
	if e.Kind == UD {
		wr.UD = e.ah.To(c.peer.qpn, qkey)
	}
	c.pending = sendID | recvID
	_, err := c.qp.PostSend(wr)
	return err
}

// play sends one message for each that arrives, until both directions had their
// rounds. The connections of an SRQ share the rounds.
func (e *end) play(ctx context.Context, weBegin bool) error {
	if weBegin {
		for _, c := range e.qps {
			if err := e.send(c); err != nil {
				return err
			}
		}
	}
	for sent, received := 0, 0; sent < e.Rounds || received < e.Rounds; {
		var wcs [16]ibverbs.WC
		n, err := e.wait(ctx, wcs[:])
		if err != nil {
			return fmt.Errorf("after %d sent and %d received: %w", sent, received, err)
		}
		for i := range wcs[:n] {
			c, err := e.completed(&wcs[i])
			if err != nil {
				return fmt.Errorf("after %d sent and %d received: %w", sent, received, err)
			}
			if wcs[i].ID == sendID {
				sent++
			} else {
				received++
			}
			if c.pending == 0 && sent < e.Rounds {
				if err := e.send(c); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// completed takes a completion into account.
func (e *end) completed(wc *ibverbs.WC) (*connection, error) {
	if err := e.cq.Err(wc); err != nil {
		return nil, err
	}
	c := e.connectionOf(wc.QPN)
	if c == nil {
		return nil, fmt.Errorf("completion of QP %#x, which is none of ours", wc.QPN)
	}
	c.pending &^= int(wc.ID)
	if wc.ID == sendID {
		return c, nil
	}
	if int(wc.ByteLen) != e.room() {
		return nil, fmt.Errorf("message has %d bytes, want %d", wc.ByteLen, e.room())
	}
	if e.posted--; e.posted <= e.QPs {
		return c, e.post(e.Depth - e.posted)
	}
	return c, nil
}

func (e *end) connectionOf(qpn uint32) *connection {
	for _, c := range e.qps {
		if c.qp.Num() == qpn {
			return c
		}
	}
	return nil
}

func (e *end) wait(ctx context.Context, wcs []ibverbs.WC) (int, error) {
	if e.Events {
		return e.cq.Wait(ctx, wcs)
	}
	for {
		if n, err := e.cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		if ctx.Err() != nil {
			return 0, cause.Of(ctx)
		}
		runtime.Gosched()
	}
}

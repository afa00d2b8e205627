//go:build hw && linux

package interop

import (
	"math/rand/v2"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
)

const psnMask = 1<<24 - 1

// connection is a queue pair of each end, connected.
type connection struct {
	row
	t        *testing.T
	g        *rand.Rand
	from, to *end
	qp, peer *ibverbs.QP // of from and to
	ah       *ibverbs.AH // from from to to, of UD
}

// qkey is that of all UD queue pairs.
const qkey = 0x1ee7

// connect makes a connection for a row whose requests have so many packets. Their
// numbers pass 0xffffff.
func (f *fixture) connect(t *testing.T, g *rand.Rand, r row, packets int) *connection {
	t.Helper()
	return f.connectTo(t, g, r, packets, nil)
}

// connectTo is connect to a queue pair of an SRQ, if that is not nil.
func (f *fixture) connectTo(t *testing.T, g *rand.Rand, r row, packets int, srq *ibverbs.SRQ) *connection {
	t.Helper()
	c := &connection{row: r, t: t, g: g}
	c.from, c.to = f.ends(r)
	c.qp, c.peer = c.from.newQP(t, r, nil), c.to.newQP(t, r, srq)
	psn := (1<<24 - uint32(g.IntN(max(1, packets)))) & psnMask
	back := uint32(g.IntN(1 << 24))
	c.toRTS(c.from, c.qp, c.to, c.peer, psn, back)
	c.toRTS(c.to, c.peer, c.from, c.qp, back, psn)
	if r.transport == ibverbs.UD {
		var err error
		c.ah, err = c.from.pd.CreateAH(c.from.way(c.to))
		must(t, err)
		t.Cleanup(func() { must(t, c.ah.Close()) })
	}
	return c
}

// way is how e reaches a peer.
func (e *end) way(to *end) ibverbs.AHAttr {
	return ibverbs.AHAttr{DGID: to.place.GID.GID, IsGlobal: true, SGIDIndex: e.place.GID.Index, Port: 1, HopLimit: 64}
}

// newQP is a queue pair in Init, of an SRQ if that is not nil.
func (e *end) newQP(t *testing.T, r row, srq *ibverbs.SRQ) *ibverbs.QP {
	t.Helper()
	qp, err := e.pd.CreateQP(ibverbs.QPConfig{Type: r.transport, SendCQ: e.cq, RecvCQ: e.cq, SRQ: srq,
		Cap: ibverbs.QPCap{SendWR: depth, RecvWR: depth + markers, SendSGE: 1, RecvSGE: 1}})
	must(t, err)
	t.Cleanup(func() {
		must(t, qp.Close())
		e.left = nil
	})
	rights := ibverbs.LocalWrite | ibverbs.RemoteWrite | ibverbs.RemoteRead | ibverbs.RemoteAtomic
	if r.transport == ibverbs.UC {
		rights = ibverbs.LocalWrite | ibverbs.RemoteWrite
	}
	mask := ibverbs.QPStateMask | ibverbs.QPPKeyIndex | ibverbs.QPPort
	if r.transport == ibverbs.UD {
		mask |= ibverbs.QPQKey
	} else {
		mask |= ibverbs.QPAccessFlags
	}
	must(t, qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit, Port: 1, Access: rights, QKey: qkey}, mask))
	return qp
}

// toRTS connects qp of e. Of packets that are lost the kernel's end learns twice a
// round by its timer only, so that is short where packets get lost; and its retry
// count of 7 has no end, so that nothing but patience ends a row there.
func (c *connection) toRTS(e *end, qp *ibverbs.QP, to *end, peer *ibverbs.QP, psn, back uint32) {
	c.t.Helper()
	rtr := ibverbs.QPAttr{State: ibverbs.StateRTR, PathMTU: c.mtu, DestQPN: peer.Num(), RQPSN: back, MaxDestRdAtomic: 16, MinRNRTimer: 12, AH: e.way(to)}
	rts := ibverbs.QPAttr{State: ibverbs.StateRTS, SQPSN: psn, Timeout: 17, RetryCnt: 6, RNRRetry: 7, MaxRdAtomic: 16}
	if c.loss {
		rts.Timeout, rts.RetryCnt = 14, 7
		if e.kernel {
			rts.Timeout = 12
		}
	}
	toRTR, toRTS := ibverbs.QPStateMask, ibverbs.QPStateMask|ibverbs.QPSQPSN
	if c.transport != ibverbs.UD {
		toRTR |= ibverbs.QPAV | ibverbs.QPPathMTU | ibverbs.QPDestQPN | ibverbs.QPRQPSN
	}
	if c.transport == ibverbs.RC {
		toRTR |= ibverbs.QPMaxDestRdAtomic | ibverbs.QPMinRNRTimer
		toRTS |= ibverbs.QPTimeout | ibverbs.QPRetryCnt | ibverbs.QPRNRRetry | ibverbs.QPMaxQPRdAtomic
	}
	must(c.t, qp.Modify(&rtr, toRTR))
	must(c.t, qp.Modify(&rts, toRTS))
}

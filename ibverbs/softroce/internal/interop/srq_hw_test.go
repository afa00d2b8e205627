//go:build hw && linux

package interop

import (
	"bytes"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/hwtest"
)

// sharers is how many connections share a receive queue.
const sharers = 4

// sharedReceives has several connections take their receives from one SRQ.
func (f *fixture) sharedReceives(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, softSends := range []bool{false, true} {
			for _, op := range []ibverbs.Opcode{ibverbs.OpSendWithImm, ibverbs.OpWriteWithImm} {
				r := row{transport: ibverbs.RC, op: op, class: sizeAboveMTU, mtu: ibverbs.MTU1024, v6: v6, softSends: softSends}
				t.Run(r.String(), func(t *testing.T) { f.share(t, r) })
			}
		}
	}
}

// share sends depth messages, the connections in turn. The immediate data says
// which it is.
func (f *fixture) share(t *testing.T, r row) {
	g := hwtest.Rand(t)
	_, to := f.ends(r)
	srq, err := to.pd.CreateSRQ(ibverbs.SRQConfig{WR: depth, SGE: 1})
	must(t, err)
	t.Cleanup(func() { must(t, srq.Close()) })
	var cs []*connection
	byQP := map[uint32]int{}
	for i := range sharers {
		c := f.connectTo(t, g, r, depth/sharers*r.packets(), srq)
		cs, byQP[c.peer.Num()] = append(cs, c), i
	}
	x := newTransfer(cs[0], depth)
	for i := range depth {
		_, err := srq.PostRecv(ibverbs.RecvWR{ID: uint64(i), SGL: []ibverbs.SGE{to.mem.SGE(r.slot(i), r.size())}})
		must(t, err)
	}
	x.values = make([]uint64, 1)
	for i := range depth {
		wr := x.request(i)
		wr.Imm = uint32(i)
		_, err := cs[i%sharers].qp.PostSend(wr)
		must(t, err)
	}
	x.from.take(t, depth)
	next := [sharers]int{}
	for _, wc := range to.take(t, depth) {
		of, known := byQP[wc.QPN]
		i := sharers*next[of] + of
		if !known || wc.Flags != ibverbs.WCWithImm || wc.Imm != uint32(i) || int(wc.ByteLen) != r.size() {
			t.Fatalf("completion of the receiver is %+v, want message %d", wc, i)
		}
		next[of]++
		at := r.slot(int(wc.ID))
		if r.op == ibverbs.OpWriteWithImm {
			at = r.slot(i)
		}
		if !bytes.Equal(x.dst[at:at+r.size()], x.src[r.slot(i):][:r.size()]) {
			t.Errorf("message %d is wrong", i)
		}
	}
	x.from.idle(t)
	to.idle(t)
}

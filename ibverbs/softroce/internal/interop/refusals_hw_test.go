//go:build hw && linux

package interop

import (
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/hwtest"
)

// refusals is what a responder does not do, or not yet, and how the requester's
// request ends then.
func (f *fixture) refusals(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, softSends := range []bool{false, true} {
			r := row{transport: ibverbs.RC, class: sizeAboveMTU, mtu: ibverbs.MTU1024, v6: v6, softSends: softSends}
			for _, c := range []struct {
				name string
				op   ibverbs.Opcode
				ask  func(x *transfer, wr *ibverbs.SendWR)
				then func(x *transfer)
				want ibverbs.Status
			}{
				{"receive that comes late", ibverbs.OpSend, nil, (*transfer).receiveLate, ibverbs.Success},
				{"immediate data whose receive comes late", ibverbs.OpWriteWithImm, nil, (*transfer).receiveLate, ibverbs.Success},
				{"receive that is too small", ibverbs.OpSend, func(x *transfer, _ *ibverbs.SendWR) { x.receiveBytes(x.size() - 1) }, nil, ibverbs.RemInvReqErr},
				{"write with a wrong key", ibverbs.OpWrite, wrongKey, nil, ibverbs.RemAccessErr},
				{"read with a wrong key", ibverbs.OpRead, wrongKey, nil, ibverbs.RemAccessErr},
				{"write that ends outside", ibverbs.OpWrite, outside, nil, ibverbs.RemAccessErr},
				{"read that ends outside", ibverbs.OpRead, outside, nil, ibverbs.RemAccessErr},
				{"atomic operation on a word that is not aligned", ibverbs.OpFetchAdd, misaligned, nil, ibverbs.RemInvReqErr},
			} {
				r.op = c.op
				if r.class = sizeAboveMTU; isAtomic(c.op) {
					r.class = sizeWord
				}
				t.Run(r.route()+", "+c.name, func(t *testing.T) {
					x := newTransfer(f.connect(t, hwtest.Rand(t), r, r.packets()), 1)
					x.values = make([]uint64, 1)
					wr := x.request(0)
					if c.ask != nil {
						c.ask(x, &wr)
					}
					_, err := x.qp.PostSend(wr)
					must(t, err)
					if c.then != nil {
						c.then(x)
					}
					want := c.want
					if c.op == ibverbs.OpSend && want != ibverbs.Success && x.to.kernel {
						want = ibverbs.RemOpErr // Linux 6.1 checks no length of a SEND, and fails only when it copies
					}
					if wc := x.from.takeAny(t, 1)[0]; wc.Status != want {
						t.Fatalf("%v ended in %v, want %v", c.op, wc.Status, want)
					}
					if want == ibverbs.Success {
						x.awaitReceives()
						x.check()
					}
				})
			}
		}
	}
}

func wrongKey(_ *transfer, wr *ibverbs.SendWR) { wr.Remote.RKey ^= 0x5a5a00 }

func outside(x *transfer, wr *ibverbs.SendWR) { wr.Remote = x.to.mem.Remote(memory - x.size() + 1) }

func misaligned(_ *transfer, wr *ibverbs.SendWR) { wr.Remote.Addr -= 4 }

func (x *transfer) receiveBytes(n int) {
	x.t.Helper()
	_, err := x.peer.PostRecv(ibverbs.RecvWR{SGL: []ibverbs.SGE{x.to.mem.SGE(0, n)}})
	must(x.t, err)
}

// receiveLate lets the responder refuse some times before it posts the receive.
func (x *transfer) receiveLate() {
	time.Sleep(20 * time.Millisecond)
	x.receive()
}

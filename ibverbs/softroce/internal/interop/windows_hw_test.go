//go:build hw && linux

package interop

import (
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/hwtest"
)

// bindWindows has the responder bind a window for each SEND_WITH_INV. What is
// posted there sends nothing.
func (x *transfer) bindWindows() {
	x.t.Helper()
	if x.op != ibverbs.OpSendWithInv {
		return
	}
	for i := range x.n {
		x.imm[i] = x.bind(x.newWindow(), x.slot(i), max(1, x.size()), ibverbs.RemoteWrite).RKey
	}
}

// newWindow is a window of the responder.
func (c *connection) newWindow() *ibverbs.MW {
	c.t.Helper()
	w, err := c.to.pd.AllocMW()
	must(c.t, err)
	c.t.Cleanup(func() { must(c.t, w.Close()) })
	return w
}

// bind binds a window of the responder and waits for that.
func (c *connection) bind(w *ibverbs.MW, off, n int, rights ibverbs.Access) ibverbs.Remote {
	c.t.Helper()
	b := w.Bind(c.to.mem, off, n, rights)
	c.control(ibverbs.SendWR{Op: ibverbs.OpBindMW, Bind: &b})
	return b.Remote()
}

// control is a request of the responder that it has itself done.
func (c *connection) control(wr ibverbs.SendWR) {
	c.t.Helper()
	wr.Flags = ibverbs.Signaled
	_, err := c.peer.PostSend(wr)
	must(c.t, err)
	if wc := c.to.take(c.t, 1)[0]; wc.QPN != c.peer.Num() {
		c.t.Fatalf("completion of %v is %+v", wr.Op, wc)
	}
}

// windows is what a peer may do through a window, while it is bound and when it is
// not any more.
func (f *fixture) windows(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, softSends := range []bool{false, true} {
			r := row{transport: ibverbs.RC, op: ibverbs.OpWrite, class: sizeAboveMTU, mtu: ibverbs.MTU1024, v6: v6, softSends: softSends}
			for _, c := range []struct {
				name   string
				rights ibverbs.Access
				take   func(c *connection, w *ibverbs.MW)
				op     ibverbs.Opcode
				want   ibverbs.Status
			}{
				{"write", ibverbs.RemoteWrite, nil, ibverbs.OpWrite, ibverbs.Success},
				{"read", ibverbs.RemoteRead, nil, ibverbs.OpRead, ibverbs.Success},
				{"write without the right", ibverbs.RemoteRead, nil, ibverbs.OpWrite, ibverbs.RemAccessErr},
				{"read without the right", ibverbs.RemoteWrite, nil, ibverbs.OpRead, ibverbs.RemAccessErr},
				{"after LOCAL_INV", ibverbs.RemoteWrite, (*connection).localInv, ibverbs.OpWrite, ibverbs.RemAccessErr},
				{"after SEND_WITH_INV", ibverbs.RemoteWrite, (*connection).sendWithInv, ibverbs.OpWrite, ibverbs.RemAccessErr},
			} {
				t.Run(r.route()+", "+c.name, func(t *testing.T) { f.throughWindow(t, r, c.rights, c.take, c.op, c.want) })
			}
		}
	}
}

func (f *fixture) throughWindow(t *testing.T, r row, rights ibverbs.Access, take func(*connection, *ibverbs.MW), op ibverbs.Opcode, want ibverbs.Status) {
	r.op = op
	c := f.connect(t, hwtest.Rand(t), r, r.packets())
	x := newTransfer(c, 1)
	x.values = make([]uint64, 1)
	w := c.newWindow()
	remote := c.bind(w, 0, r.size(), rights)
	if take != nil {
		take(c, w)
	}
	wr := x.request(0)
	wr.Remote = remote
	_, err := c.qp.PostSend(wr)
	must(t, err)
	wc := c.from.takeAny(t, 1)[0]
	switch {
	case wc.Status != want:
		t.Fatalf("%v ended in %v, want %v", op, wc.Status, want)
	case want == ibverbs.Success:
		x.check()
	default:
		for i := range r.size() {
			if x.dst[i] != poison {
				t.Fatalf("%v was refused, and yet there is a change at byte %d", op, i)
			}
		}
	}
	if take == nil && want == ibverbs.Success {
		c.localInv(w)
	}
}

func (c *connection) localInv(w *ibverbs.MW) {
	c.t.Helper()
	c.control(ibverbs.SendWR{Op: ibverbs.OpLocalInv, Imm: w.RKey()})
}

func (c *connection) sendWithInv(w *ibverbs.MW) {
	c.t.Helper()
	_, err := c.peer.PostRecv(ibverbs.RecvWR{})
	must(c.t, err)
	_, err = c.qp.PostSend(ibverbs.SendWR{Op: ibverbs.OpSendWithInv, Flags: ibverbs.Signaled, Imm: w.RKey()})
	must(c.t, err)
	c.from.take(c.t, 1)
	if wc := c.to.take(c.t, 1)[0]; wc.Flags != ibverbs.WCWithInv || wc.Imm != w.RKey() {
		c.t.Fatalf("the receiver's completion is %+v, want one that names key %#x", wc, w.RKey())
	}
}

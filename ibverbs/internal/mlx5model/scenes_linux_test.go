package mlx5model

import (
	stdcontext "context"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// messages are what a connection can send that is not reliable.
var messages = []one{
	{op: driver.OpSend, receives: 1}, {op: driver.OpSendWithImm, flags: driver.Solicited, receives: 1}, {op: driver.OpSend, inline: make([]byte, 8), receives: 1},
	{op: driver.OpWrite}, {op: driver.OpWrite, inline: make([]byte, 8)}, {op: driver.OpWriteWithImm, receives: 1},
}

func (a *actor) connected() {
	a.each(messages...)
	a.each(one{op: driver.OpRead}, one{op: driver.OpFetchAdd}, one{op: driver.OpCmpSwap}, one{op: driver.OpSend, flags: driver.Fence, receives: 1})
	for n := 2; n <= 4; n++ {
		var wrs []driver.SendWR
		for i := range n {
			o := one{op: driver.OpWrite}
			if i == n-1 {
				o.flags = driver.Signaled
			}
			if i == 1 {
				o.inline = a.mem.Bytes()[:20]
			}
			wrs = append(wrs, a.request(o))
		}
		a.post(wrs...)
		a.await(1)
	}
	_, err := a.qp.Query()
	a.must(err)
}

func (a *actor) datagrams() {
	a.each(one{op: driver.OpSend, receives: 1}, one{op: driver.OpSendWithImm, flags: driver.Solicited, receives: 1},
		one{op: driver.OpSend, inline: a.mem.Bytes()[:8], receives: 1}, one{op: driver.OpSend, inline: a.mem.Bytes()[:30], receives: 1})
	wrs := []driver.SendWR{a.request(one{op: driver.OpSend, flags: driver.Signaled}), a.request(one{op: driver.OpSend, flags: driver.Signaled})}
	wrs[1].UD.AH = a.ah[1]
	a.receive(2, 1)
	a.post(wrs...)
	a.await(4)
}

// grouped is a message to a group, from who is in it.
func (a *actor) grouped(gid driver.GID) {
	to := driver.AHAttr{IsGlobal: true, Port: 1, DLID: groupLID, DGID: gid, FlowLabel: 0x54321, HopLimit: 3, TrafficClass: 7}
	if a.ethernet {
		to.SGIDIndex = 2
	}
	h, err := a.pd.CreateAH(to)
	a.must(err)
	a.must(a.qp.Multicast(gid, groupLID, true))
	a.receive(1)
	wr := a.request(one{op: driver.OpSend, flags: driver.Signaled})
	wr.UD.AH, wr.UD.QPN = h, toGroup
	a.post(wr)
	a.await(2)
	a.must(a.qp.Multicast(gid, groupLID, false))
	a.must(h.Close())
}

func (a *actor) inlined() {
	for i := range 600 {
		a.mem.Bytes()[i] = byte(i)
	}
	for range 2 {
		for _, n := range []int{0, 1, 12, 13, 28, 29, 44, 92, 93, 219, 220, 221, 284, 300} {
			a.each(one{op: driver.OpWrite, inline: a.mem.Bytes()[:n]})
		}
	}
	b := a.mem.Bytes()
	a.each(one{op: driver.OpWrite, inline: append(append([]byte(nil), b[:24]...), b[64:72]...)})
}

func (a *actor) gathered() {
	for range 3 {
		for n := 0; n <= 14; n += 7 {
			wr := a.request(one{op: driver.OpWrite, flags: driver.Signaled})
			wr.SGL = nil
			for i := range n {
				length := uint32(8)
				if i == 3 {
					length = 0
				}
				wr.SGL = append(wr.SGL, a.at(16*i, length))
			}
			a.post(wr)
			a.await(1)
		}
	}
}

// send sends n messages, some without data.
func (a *actor) send(n int) {
	a.t.Helper()
	for ; n > 0; n-- {
		wr := a.request(one{op: driver.OpSend, flags: driver.Signaled})
		wr.SGL = wr.SGL[:n%3]
		a.post(wr)
		a.await(2)
	}
}

func (a *actor) receives() {
	for range 4 {
		a.receive(1, 2, 3)
		a.send(3)
		a.receive(3, 1)
		a.send(2)
	}
	_, err := a.qp.PostRecv([]driver.RecvWR{{ID: 1, SGL: []driver.SGE{a.at(2048, 128), a.at(3000, 0), a.at(4096, 128)}}})
	a.must(err)
	a.send(1)
}

func (a *actor) shared() {
	_, err := a.srq.Query()
	a.must(err)
	for range 5 {
		a.receive(1, 2, 1)
		a.send(2)
		a.receive(2)
		a.send(2)
	}
	a.must(a.srq.SetLimit(2))
}

// message sends one that has a receive.
func (a *actor) message(flags driver.SendFlags) {
	a.t.Helper()
	a.receive(1)
	a.post(a.request(one{op: driver.OpSend, flags: flags | driver.Signaled}))
}

func (a *actor) arm(solicitedOnly bool) {
	a.t.Helper()
	a.must(a.cq.Arm(solicitedOnly))
}

func (a *actor) event() {
	a.t.Helper()
	ctx, cancel := stdcontext.WithTimeout(a.t.Context(), patience)
	defer cancel()
	_, err := a.channel.Wait(ctx)
	a.must(err)
}

func (a *actor) events() {
	for range 6 {
		a.arm(false)
		a.message(0)
		a.event()
		a.await(2)
		a.arm(true)
		a.message(0)
		a.await(2)
		a.message(driver.Solicited)
		a.event()
		a.await(2)
	}
	a.arm(true)
	a.arm(false)
}

func (a *actor) large() {
	for i := range 5 {
		a.arm(i&1 != 0)
		a.message(driver.Solicited)
		a.event()
		a.await(2)
	}
}

func (a *actor) resized() {
	for _, depth := range []int{31, 100, 15, 7, 7, 63} {
		a.message(0)
		a.message(0)
		a.await(1)
		a.must(a.cq.Resize(depth))
		a.await(3)
		a.arm(false)
		a.message(0)
		a.event()
		a.await(2)
	}
}

// nextKey is what ibv_inc_rkey makes of a key.
func nextKey(key uint32) uint32 { return key&^0xff | (key+1)&0xff }

func (a *actor) windows() {
	mw, err := a.pd.AllocMW()
	a.must(err)
	through := func(key uint32, flags driver.SendFlags) driver.SendWR {
		wr := a.request(one{op: driver.OpWrite, flags: flags})
		wr.Remote.RKey = key
		return wr
	}
	bind := func(key uint32, access driver.Access) driver.SendWR {
		return driver.SendWR{ID: 3, Op: driver.OpBindMW, Flags: driver.Signaled,
			Bind: &driver.BindMW{MW: mw, MR: a.mr, Addr: a.mem.Addr() + 1024, Length: 512, Access: access, RKey: key}}
	}
	key := nextKey(mw.RKey())
	a.post(bind(key, driver.RemoteWrite))
	a.await(1)
	a.post(through(key, driver.Signaled))
	a.await(1)
	a.post(driver.SendWR{ID: 4, Op: driver.OpLocalInv, Flags: driver.Signaled, Imm: key})
	a.await(1)
	key = nextKey(key)
	a.post(bind(key, remote), through(key, driver.Signaled))
	a.await(2)
	a.post(through(key, driver.Signaled))
	a.await(1)
	a.receive(1)
	wr := a.request(one{op: driver.OpSendWithInv, flags: driver.Signaled})
	wr.Imm = key
	a.post(wr)
	a.await(2)
	a.must(mw.Close())
}

// TestScenes plays the script by our driver as it is.
func TestScenes(t *testing.T) {
	for name, s := range scenes {
		t.Run(name, func(t *testing.T) {
			m := New(Config{Ethernet: s.ethernet, Fault: func(s string) { t.Error("model: " + s) }})
			s.act(t, NewLocal(m))
		})
	}
}

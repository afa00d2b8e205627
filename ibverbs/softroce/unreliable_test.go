package softroce

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// rigQKey is the Q_Key of all UD queue pairs of a rig.
const rigQKey = 0x1234567

func ucRig(c rigConfig) rigConfig { c.typ = driver.UC; return c }

func udRig(c rigConfig) rigConfig { c.typ = driver.UD; return c }

// handle is an address handle to the peer, closed with the rig.
func (e *end) handle() driver.AH {
	e.r.t.Helper()
	h, err := e.pd.CreateAH(driver.AHAttr{DGID: gidOf(e.peer().addr), Port: 1, IsGlobal: true, TrafficClass: e.r.cfg.tos})
	e.r.must(err)
	e.r.later(func() { e.r.must(h.Close()) })
	return h
}

// datagram is a signaled datagram of n bytes from off on to the peer.
func (e *end) datagram(h driver.AH, id uint64, off, n int) driver.SendWR {
	w := e.send(id, off, n)
	w.UD = driver.Destination{AH: h, QPN: e.peer().q.num, QKey: rigQKey}
	return w
}

// silent sees that b has sent nothing.
func (r *rig) silent() {
	r.t.Helper()
	if got := r.packets(func(p seenPacket) bool { return p.from == 'b' }); len(got) > 0 {
		r.t.Errorf("b answered: %+v", got)
	}
}

// R54: a request is complete when it was sent, whatever becomes of it.
func TestR54CompletesWhenSent(t *testing.T) {
	inBubble(t, ucRig(rigConfig{}), func(r *rig) {
		r.cut(r.a)
		r.a.post(r.a.send(1, 0, 1000), r.a.write(2, 0, 0))
		r.a.one(1, driver.Success)
		r.a.one(2, driver.Success)
		r.a.none(time.Minute)
		if n := len(r.packets(func(p seenPacket) bool { return p.from == 'a' })); n != 5 || r.a.state() != driver.StateRTS {
			t.Errorf("%d packets sent, want 5; state %v", n, r.a.state())
		}
		for _, p := range r.packets(func(seenPacket) bool { return true }) {
			if p.op.Transport() != wire.UC || p.ackReq {
				t.Errorf("sent %+v", p)
			}
		}
	})
}

// R54: the loss of any packet drops its message in silence, and no other.
func TestR54ALostPacketDropsItsMessage(t *testing.T) {
	for _, op := range []driver.Opcode{driver.OpSend, driver.OpSendWithImm, driver.OpWriteWithImm} {
		for lost := 1; lost <= 5; lost++ {
			t.Run(fmt.Sprintf("%d/%d", op, lost), func(t *testing.T) {
				inBubble(t, ucRig(rigConfig{psn: 0xfffffd}), func(r *rig) {
					r.a.fill(54)
					match := r.on('a', wire.Send)
					if op == driver.OpWriteWithImm {
						match = r.on('a', wire.Write)
					}
					r.sim.Hook(link.Nth(link.Drop, match, 5+lost)) // of the second message
					for id := range uint64(3) {
						r.b.recv(driver.RecvWR{ID: id, SGL: []driver.SGE{r.b.sge(int(id)*2048, 2048)}})
					}
					for i, id := range []uint64{10, 11, 12} {
						w := r.a.write(id, i*2048, 5*256)
						w.Op, w.Imm = op, uint32(id)
						r.a.post(w)
						r.a.one(id, driver.Success)
					}
					for i, of := range []int{0, 2} {
						wc := r.b.one(uint64(i), driver.Success)
						if wc.ByteLen != 5*256 || op != driver.OpSend && wc.Imm != uint32(10+of) {
							t.Errorf("receive %d: %+v", i, wc)
						}
						at := i // of a SEND, the receive's place
						if op == driver.OpWriteWithImm {
							at = of
						}
						if !bytes.Equal(r.b.bytes(at*2048, 5*256), r.a.bytes(of*2048, 5*256)) {
							t.Errorf("message %d is not whole", of)
						}
					}
					r.b.none(time.Second)
					r.silent()
					c := r.b.counters()
					if g, d := c.gaps.Load(), c.dropped.Load(); g != 1 || d != 1 {
						t.Errorf("%d gaps and %d dropped messages, want one of each", g, d)
					}
				})
			})
		}
	}
	t.Run("all of it", func(t *testing.T) {
		inBubble(t, ucRig(rigConfig{}), func(r *rig) {
			r.sim.Hook(link.Nth(link.Drop, r.on('a', wire.Send), 1, 2))
			r.b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{r.b.sge(0, 512)}})
			r.a.post(r.a.send(2, 0, 512), r.a.send(3, 0, 300))
			r.a.take(2)
			if wc := r.b.one(1, driver.Success); wc.ByteLen != 300 {
				t.Errorf("%+v", wc)
			}
			if g := r.b.counters().gaps.Load(); g != 1 {
				t.Errorf("%d gaps", g)
			}
		})
	})
}

// R54: what comes twice or late is delivered once or not at all.
func TestR54DuplicatesAndLatecomers(t *testing.T) {
	for _, fate := range []link.Fate{link.Twice, link.Swap} {
		inBubble(t, ucRig(rigConfig{sim: SimConfig{Split: true}}), func(r *rig) {
			r.a.fill(55)
			r.sim.Hook(link.Nth(fate, r.on('a', wire.Send), 2, 4))
			for id := range uint64(4) {
				r.b.recv(driver.RecvWR{ID: id, SGL: []driver.SGE{r.b.sge(int(id)*1024, 1024)}})
			}
			r.a.post(r.a.send(1, 0, 700), r.a.send(2, 1024, 100), r.a.send(3, 2048, 700))
			r.a.take(3)
			r.settle()
			got := r.b.poll()
			if fate == link.Twice && len(got) != 3 || fate == link.Swap && len(got) == 3 {
				t.Fatalf("fate %d: %d messages of 3 were delivered", fate, len(got))
			}
			last := -1
			for i, wc := range got {
				n := int(wc.ByteLen)
				of := -1
				for m, size := range []int{700, 100, 700} {
					if size == n && bytes.Equal(r.b.bytes(i*1024, n), r.a.bytes(m*1024, n)) {
						of = m
					}
				}
				if of <= last {
					t.Errorf("delivery %d is message %d, after %d", i, of, last)
				}
				last = of
			}
		})
	}
	t.Run("a peer that is far behind", func(t *testing.T) {
		inBubble(t, ucRig(rigConfig{psn: 1 << 20}), func(r *rig) {
			r.b.recv(driver.RecvWR{ID: 1}, driver.RecvWR{ID: 2})
			for _, psn := range []wire.PSN{1<<20 - 1, 1<<20 - oldUC, 1<<20 - oldUC - 1} {
				r.forge(wire.UCSendOnly, 0, psn, nil, nil)
			}
			r.b.one(1, driver.Success)
			r.b.none(time.Second)
			if n := r.b.counters().duplicates.Load(); n != 2 {
				t.Errorf("%d packets were taken for old, want 2", n)
			}
		})
	})
}

// R54: an error at the responder drops the message in silence; the receive at hand is
// for the next.
func TestR54ErrorsAreSilent(t *testing.T) {
	bad := []struct {
		name string
		send func(r *rig)
	}{
		{"no receive", func(r *rig) { r.a.post(r.a.send(1, 0, 600)) }},
		{"wrong key", func(r *rig) {
			w := r.a.write(1, 0, 600)
			w.Remote.RKey ^= 1
			r.a.post(w)
		}},
		{"outside", func(r *rig) {
			w := r.a.write(1, 0, 600)
			w.Remote.Addr += uint64(r.b.mem.Len()) - 599
			r.a.post(w)
		}},
		{"immediate without a receive", func(r *rig) {
			w := r.a.write(1, 0, 0)
			w.Op = driver.OpWriteWithImm
			r.a.post(w)
		}},
		{"middle alone", func(r *rig) { r.forge(wire.UCSendMiddle, 0, 0, make([]byte, 256), nil) }},
		{"last alone", func(r *rig) { r.forge(wire.UCSendLast, 0, 0, make([]byte, 9), nil) }},
		{"first of another size", func(r *rig) { r.forge(wire.UCSendFirst, 0, 0, make([]byte, 255), nil) }},
		{"longer than the path MTU", func(r *rig) { r.forge(wire.UCSendOnly, 0, 0, make([]byte, 257), nil) }},
		{"write longer than it says", func(r *rig) {
			r.forge(wire.UCWriteOnly, 0, 0, make([]byte, 9), func(p wire.Packet) { p.RETH().Put(r.b.mem.Addr(), r.b.key(), 8) })
		}},
	}
	for _, c := range bad {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, ucRig(rigConfig{}), func(r *rig) {
				before := bytes.Clone(r.b.mem.Bytes())
				c.send(r)
				r.settle()
				_ = r.a.poll()
				if !bytes.Equal(before, r.b.mem.Bytes()) {
					t.Error("memory changed")
				}
				r.silent()
				if n := r.b.counters().dropped.Load(); n != 1 || r.b.state() != driver.StateRTS || r.b.event().Type != 255 {
					t.Errorf("%d messages dropped, state %v", n, r.b.state())
				}
				r.b.recv(driver.RecvWR{ID: 2, SGL: []driver.SGE{r.b.sge(0, 600)}})
				r.a.fill(1)
				r.a.q.req.psn, r.a.q.req.sent = r.b.q.resp.psn, r.b.q.resp.psn // behind what was forged
				r.a.post(r.a.send(3, 0, 600))
				r.a.one(3, driver.Success)
				r.b.one(2, driver.Success)
				r.same(0, 600)
			})
		})
	}
	t.Run("too short a receive, which the next message takes", func(t *testing.T) {
		inBubble(t, ucRig(rigConfig{}), func(r *rig) {
			r.a.fill(2)
			r.b.recv(driver.RecvWR{ID: 2, SGL: []driver.SGE{r.b.sge(0, 599)}})
			r.a.post(r.a.send(1, 1024, 600), r.a.write(4, 2048, 600), r.a.send(3, 0, 599))
			r.a.take(3)
			if wc := r.b.one(2, driver.Success); wc.ByteLen != 599 {
				t.Errorf("%+v", wc)
			}
			r.same(0, 599)
			r.same(2048, 600)
			r.b.none(time.Second)
			r.b.recv(driver.RecvWR{ID: 5}, driver.RecvWR{ID: 6})
			w := r.a.write(8, 0, 0)
			w.Op = driver.OpWriteWithImm
			r.a.post(r.a.send(7, 0, 1), w)
			r.a.take(2)
			r.b.one(5, driver.Success)
		})
	})
	t.Run("a first inside a message begins another", func(t *testing.T) {
		inBubble(t, ucRig(rigConfig{}), func(r *rig) {
			r.b.recv(driver.RecvWR{ID: 2, SGL: []driver.SGE{r.b.sge(0, 600)}})
			r.forge(wire.UCSendFirst, 0, 0, make([]byte, 256), nil)
			r.forge(wire.UCSendFirst, 0, 1, bytes.Repeat([]byte{7}, 256), nil)
			r.forge(wire.UCSendLast, 0, 2, []byte{8}, nil)
			if wc := r.b.one(2, driver.Success); wc.ByteLen != 257 || r.b.bytes(0, 1)[0] != 7 {
				t.Errorf("%+v", wc)
			}
			if n := r.b.counters().dropped.Load(); n != 1 {
				t.Errorf("%d messages dropped", n)
			}
		})
	})
	t.Run("a receive whose memory is gone ends the queue pair", func(t *testing.T) {
		inBubble(t, ucRig(rigConfig{}), func(r *rig) {
			r.b.recv(driver.RecvWR{ID: 2, SGL: []driver.SGE{{Addr: r.b.mem.Addr(), Length: 8, LKey: r.b.key() ^ 1}}}, driver.RecvWR{ID: 3})
			r.a.post(r.a.send(1, 0, 8))
			r.b.one(2, driver.LocProtErr)
			r.b.one(3, driver.WRFlushErr)
			r.silent()
			if r.b.state() != driver.StateErr {
				t.Errorf("state %v", r.b.state())
			}
		})
	})
}

// A long message goes out in parts, the second by the pump, and is still one.
func TestLongUCMessages(t *testing.T) {
	inBubble(t, ucRig(rigConfig{memory: 1 << 20, mtu: driver.MTU4096}), func(r *rig) {
		r.a.fill(3)
		r.b.recv(driver.RecvWR{ID: 1})
		w := r.a.write(2, 0, 1<<20)
		w.Op = driver.OpWriteWithImm
		r.a.post(w)
		r.a.one(2, driver.Success)
		if wc := r.b.one(1, driver.Success); wc.ByteLen != 1<<20 {
			t.Errorf("%+v", wc)
		}
		r.same(0, 1<<20)
	})
}

func TestSQDHoldsUnreliableSends(t *testing.T) {
	for _, typ := range []driver.QPType{driver.UC, driver.UD} {
		inBubble(t, rigConfig{typ: typ}, func(r *rig) {
			r.a.fill(4)
			h := r.a.handle()
			r.b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{r.b.sge(0, 48)}})
			r.must(r.a.q.Modify(&driver.QPAttr{State: driver.StateSQD, EnSQDNotify: true}, driver.QPStateMask|driver.QPEnSQDAsyncNotify))
			r.a.wantEvent(driver.EventSQDrained)
			r.a.post(r.a.datagram(h, 2, 0, 8))
			r.a.q.pumped() // as when a long message was not through
			r.a.none(time.Second)
			r.must(r.a.q.Modify(&driver.QPAttr{State: driver.StateRTS}, driver.QPStateMask))
			r.a.one(2, driver.Success)
			r.b.one(1, driver.Success)
		})
	}
}

// Windows are bound and freed by an unreliable connection too.
func TestUCWindows(t *testing.T) {
	inBubble(t, ucRig(rigConfig{}), func(r *rig) {
		r.a.fill(8)
		w, err := r.b.pd.AllocMW()
		r.must(err)
		r.later(func() { r.must(w.Close()) })
		m, err := r.b.pd.RegMR(r.b.mem, r.b.mem.Addr(), everything|driver.MWBind)
		r.must(err)
		r.later(func() { r.must(m.Close()) })
		b := driver.BindMW{MW: w, MR: m, Addr: r.b.mem.Addr() + 64, Length: 600, Access: driver.RemoteWrite, RKey: w.RKey() + 1}
		r.b.post(driver.SendWR{ID: 1, Op: driver.OpBindMW, Flags: driver.Signaled, Bind: &b})
		if wc := r.b.one(1, driver.Success); wc.Op != driver.WCBindMW {
			t.Errorf("%+v", wc)
		}
		write := r.a.write(2, 64, 600)
		write.Remote = b.Remote()
		r.a.post(write)
		r.a.one(2, driver.Success)
		r.settle()
		r.same(64, 600)
		r.b.post(driver.SendWR{ID: 3, Op: driver.OpLocalInv, Flags: driver.Signaled, Imm: b.RKey})
		r.b.one(3, driver.Success)
		clear(r.b.bytes(64, 600))
		r.a.post(write)
		r.a.one(2, driver.Success)
		r.settle()
		if !bytes.Equal(r.b.bytes(64, 600), make([]byte, 600)) || r.b.counters().dropped.Load() != 1 {
			t.Error("a window that was freed was written")
		}
		r.b.post(driver.SendWR{ID: 4, Op: driver.OpLocalInv, Imm: b.RKey})
		r.b.one(4, driver.MWBindErr)
		if s := r.b.state(); s != driver.StateSQE {
			t.Errorf("state %v", s)
		}
	})
}

// A request that fails takes the send queue to SQE, and no further.
func TestSendQueueError(t *testing.T) {
	for _, typ := range []driver.QPType{driver.UC, driver.UD} {
		for _, c := range []struct {
			name   string
			only   driver.QPType
			status driver.Status
			spoil  func(r *rig, w *driver.SendWR)
		}{
			{"wrong key", 0, driver.LocProtErr, func(r *rig, w *driver.SendWR) { w.SGL[0].LKey ^= 1 }},
			{"longer than the port's MTU", driver.UD, driver.LocLenErr, func(r *rig, w *driver.SendWR) { w.SGL[0].Length = 4097 }},
		} {
			if c.only != 0 && c.only != typ {
				continue
			}
			t.Run(fmt.Sprint(typ, " ", c.name), func(t *testing.T) {
				inBubble(t, rigConfig{typ: typ}, func(r *rig) {
					r.a.fill(5)
					h, back := r.a.handle(), r.b.handle()
					for _, e := range []*end{r.a, r.b} {
						for id := range uint64(2) {
							e.recv(driver.RecvWR{ID: 20 + id, SGL: []driver.SGE{e.sge(1024, 48)}})
						}
					}
					bad := r.a.datagram(h, 2, 0, 8)
					c.spoil(r, &bad)
					r.a.post(r.a.datagram(h, 1, 0, 8), bad, r.a.datagram(h, 3, 0, 8))
					r.a.one(1, driver.Success)
					r.a.one(2, c.status)
					r.a.one(3, driver.WRFlushErr)
					if s := r.a.state(); s != driver.StateSQE {
						t.Fatalf("state %v", s)
					}
					quiet := r.a.datagram(h, 4, 0, 8)
					quiet.Flags = 0
					r.a.post(quiet)
					r.a.one(4, driver.WRFlushErr)
					r.b.one(20, driver.Success)
					r.b.post(r.b.datagram(back, 5, 0, 8)) // a receives on
					r.b.one(5, driver.Success)
					r.a.one(20, driver.Success)
					r.must(r.a.q.Modify(&driver.QPAttr{State: driver.StateRTS}, driver.QPStateMask))
					r.a.post(r.a.datagram(h, 6, 0, 8))
					r.a.one(6, driver.Success)
					r.b.one(21, driver.Success)
					if g := r.b.counters().gaps.Load(); g != 0 {
						t.Errorf("%d gaps where nothing was lost", g)
					}
				})
			})
		}
	}
}

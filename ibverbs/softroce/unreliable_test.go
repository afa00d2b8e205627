package softroce

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
	"github.com/purerdma/purerdma/internal/racetest"
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

// R55: in front of a datagram is the header it came with.
func TestR55GlobalRouteHeader(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		inBubble(t, udRig(rigConfig{v6: v6, tos: 0x6a}), func(r *rig) {
			r.a.fill(6)
			h := r.a.handle()
			const n = 101
			r.b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{r.b.sge(0, 2048)}})
			w := r.a.datagram(h, 2, 0, n)
			w.Op, w.Imm = driver.OpSendWithImm, 0xabcd0123
			r.a.post(w)
			r.a.one(2, driver.Success)
			wc := r.b.one(1, driver.Success)
			if want := (driver.WC{ID: 1, Op: driver.WCRecv, Flags: driver.WCGRH | driver.WCWithImm, ByteLen: grhSize + n, Imm: 0xabcd0123,
				QPN: r.b.q.num, SrcQP: r.a.q.num}); wc != want {
				t.Errorf("completion %+v, want %+v", wc, want)
			}
			if !bytes.Equal(r.b.bytes(grhSize, n), r.a.bytes(0, n)) {
				t.Error("data differ")
			}
			const udp = 8 + 12 + 8 + 4 + 104 + 4
			got, want := r.b.bytes(0, grhSize), make([]byte, grhSize)
			src, dst := r.a.addr.AsSlice(), r.b.addr.AsSlice()
			if v6 {
				copy(want, []byte{0x66, 0xa0, 0, 0, 0, udp, 17, 64})
				copy(want[8:], src)
				copy(want[24:], dst)
			} else {
				ip := want[20:]
				copy(ip, []byte{0x45, 0x6a, 0, 20 + udp, 0, 0, 0x40, 0, 64, 17})
				copy(ip[12:], src)
				copy(ip[16:], dst)
				sum := 0
				for i := 0; i < 20; i += 2 {
					sum += int(binary.BigEndian.Uint16(ip[i:]))
				}
				binary.BigEndian.PutUint16(ip[10:], ^uint16(sum%0xffff))
			}
			if !bytes.Equal(got, want) {
				t.Errorf("header % x\nwant   % x", got, want)
			}
		})
	}
}

// R55: the Identification in the IPv4 header is that of the wire also where the link
// does not show it.
func TestR55IdentificationOfRuns(t *testing.T) {
	inBubble(t, udRig(rigConfig{}), func(r *rig) {
		h := r.a.handle()
		var wrs []driver.SendWR
		for id := range 3 {
			r.b.recv(driver.RecvWR{ID: uint64(id), SGL: []driver.SGE{r.b.sge(id*64, 48)}})
			wrs = append(wrs, r.a.datagram(h, uint64(id), 0, 8))
		}
		r.a.post(wrs...)
		for id := range 3 {
			r.b.one(uint64(id), driver.Success)
			if got := binary.BigEndian.Uint16(r.b.bytes(id*64+24, 2)); got != uint16(id) {
				t.Errorf("datagram %d has Identification %d", id, got)
			}
		}
	})
}

// R55: Q_Keys.
func TestR55QKeys(t *testing.T) {
	inBubble(t, udRig(rigConfig{}), func(r *rig) {
		h := r.a.handle()
		r.b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{r.b.sge(0, 48)}})
		w := r.a.datagram(h, 2, 0, 8)
		w.UD.QKey++
		r.a.post(w)
		r.a.one(2, driver.Success)
		r.b.none(time.Second)
		if n := r.b.counter("rcvd_qkey_err"); n != 1 {
			t.Errorf("rcvd_qkey_err is %d", n)
		}
		w = r.a.datagram(h, 3, 0, 8)
		w.UD.QKey = 1 << 31 // its own
		r.a.post(w)
		r.b.one(1, driver.Success)
		r.silent()
	})
}

// R55: what has no place is dropped and counted, and the receive stays.
func TestR55NoPlace(t *testing.T) {
	inBubble(t, udRig(rigConfig{}), func(r *rig) {
		r.a.fill(7)
		h := r.a.handle()
		before := bytes.Clone(r.b.mem.Bytes())
		r.a.post(r.a.datagram(h, 1, 0, 8)) // no receive
		r.b.none(time.Second)
		r.b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{r.b.sge(0, 47)}})
		r.a.post(r.a.datagram(h, 2, 0, 8)) // too short a one
		r.b.none(time.Second)
		if n := r.b.counter("dropped_messages"); n != 2 || !bytes.Equal(before, r.b.mem.Bytes()) || r.b.state() != driver.StateRTS {
			t.Errorf("dropped_messages is %d, state %v", n, r.b.state())
		}
		r.a.post(r.a.datagram(h, 3, 0, 7))
		if wc := r.b.one(1, driver.Success); wc.ByteLen != 47 || !bytes.Equal(r.b.bytes(40, 7), r.a.bytes(0, 7)) {
			t.Errorf("%+v", wc)
		}
		r.a.take(3)
		r.silent()
	})
}

// R42 of UD: strangers are dropped, but for the address, which datagrams may come
// from anywhere.
func TestR55AnyoneMaySend(t *testing.T) {
	inBubble(t, udRig(rigConfig{}), func(r *rig) {
		stranger := &end{r: r, name: 'c', addr: netip.MustParseAddr("10.9.0.77"), q: r.a.q}
		r.b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{r.b.sge(0, 48)}})
		r.inject(stranger, r.b, wire.UCSendOnly, 0, 0, make([]byte, 8), nil)
		r.inject(stranger, r.b, wire.RCSendOnly, 0, 0, make([]byte, 8), nil)
		if n := r.b.counter("rcvd_malformed_err"); n != 2 {
			t.Errorf("%d packets of other transports", n)
		}
		r.inject(stranger, r.b, wire.UDSendOnly, 0, 99, make([]byte, 8), func(p wire.Packet) { p.DETH().Put(rigQKey, 0x77) })
		if wc := r.b.one(1, driver.Success); wc.SrcQP != 0x77 || !bytes.Equal(r.b.bytes(32, 4), []byte{10, 9, 0, 77}) {
			t.Errorf("%+v from % x", wc, r.b.bytes(20, 20))
		}
	})
}

// An address handle that is closed while requests name it ends them, not the process.
func TestHandleClosedWhileQueued(t *testing.T) {
	inBubble(t, udRig(rigConfig{}), func(r *rig) {
		h, err := r.a.pd.CreateAH(driver.AHAttr{DGID: gidOf(r.b.addr), Port: 1, IsGlobal: true})
		r.must(err)
		r.must(r.a.q.Modify(&driver.QPAttr{State: driver.StateSQD}, driver.QPStateMask))
		r.a.post(r.a.datagram(h, 1, 0, 8), r.a.datagram(h, 2, 0, 8))
		r.must(h.Close())
		if n, err := r.a.q.PostSend([]driver.SendWR{r.a.datagram(h, 3, 0, 8)}); n != 0 || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a closed handle: %d, %v", n, err)
		}
		r.must(r.a.q.Modify(&driver.QPAttr{State: driver.StateRTS}, driver.QPStateMask))
		r.a.one(1, driver.LocQPOpErr)
		r.a.one(2, driver.WRFlushErr)
		if s := r.a.state(); s != driver.StateSQE {
			t.Errorf("state %v", s)
		}
	})
}

func TestHandlesThatAreRefused(t *testing.T) {
	inBubble(t, udRig(rigConfig{}), func(r *rig) {
		other, err := r.a.ctx.AllocPD()
		r.must(err)
		foreign, err := other.CreateAH(driver.AHAttr{DGID: gidOf(r.b.addr), Port: 1, IsGlobal: true})
		r.must(err)
		for name, h := range map[string]driver.AH{"none": nil, "nil": (*ah)(nil), "another PD's": foreign, "another driver's": otherAH{}} {
			if n, err := r.a.q.PostSend([]driver.SendWR{r.a.datagram(h, 3, 0, 8)}); n != 0 || !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "UD.AH") {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		}
		if err := other.Close(); !errors.Is(err, driver.ErrBusy) {
			t.Errorf("PD closed under an address handle: %v", err)
		}
		r.must(foreign.Close())
		r.must(other.Close())
		w := r.a.datagram(r.a.handle(), 3, 0, 8)
		w.UD.QPN = 1 << 24
		if _, err := r.a.q.PostSend([]driver.SendWR{w}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("QPN of 25 bits: %v", err)
		}
		good := driver.AHAttr{DGID: gidOf(r.b.addr), Port: 1, IsGlobal: true}
		for field, change := range map[string]func(a *driver.AHAttr){
			"Port": func(a *driver.AHAttr) { a.Port = 2 }, "IsGlobal": func(a *driver.AHAttr) { a.IsGlobal = false },
			"SGIDIndex": func(a *driver.AHAttr) { a.SGIDIndex = 1 }, "SL": func(a *driver.AHAttr) { a.SL = 16 },
			"FlowLabel": func(a *driver.AHAttr) { a.FlowLabel = 1 << 20 }, "DGID": func(a *driver.AHAttr) { a.DGID = driver.GID{} },
			"DGID is fd00::1": func(a *driver.AHAttr) { a.DGID = gidOf(netip.MustParseAddr("fd00::1")) },
			"DGID is ::ffff:224.0.0.1": func(a *driver.AHAttr) {
				a.DGID = gidOf(netip.MustParseAddr("224.0.0.1"))
			},
		} {
			a := good
			change(&a)
			if _, err := r.a.pd.CreateAH(a); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "AHAttr."+field) {
				t.Errorf("%s: %v", field, err)
			}
		}
	})
}

type otherAH struct{}

func (otherAH) Close() error { return nil }

// step is a change of state with what it must and may have (IBTA volume 1, modify queue pair).
type step struct {
	to        driver.QPState
	must, may driver.QPMask
}

var (
	path   = driver.QPAV | driver.QPPathMTU | driver.QPDestQPN | driver.QPRQPSN
	rcRTS  = driver.QPCurState | driver.QPAccessFlags | driver.QPMinRNRTimer
	ucRTS  = driver.QPCurState | driver.QPAccessFlags
	udRTS  = driver.QPCurState | driver.QPQKey
	rights = driver.QPPort | driver.QPPKeyIndex | driver.QPAccessFlags
)

var stepsOfTypes = map[driver.QPType][]step{
	driver.RC: {
		{driver.StateInit, rights, 0},
		{driver.StateInit, 0, rights},
		{driver.StateRTR, path | driver.QPMaxDestRdAtomic | driver.QPMinRNRTimer, driver.QPAccessFlags | driver.QPPKeyIndex},
		{driver.StateRTS, driver.QPSQPSN | driver.QPTimeout | driver.QPRetryCnt | driver.QPRNRRetry | driver.QPMaxQPRdAtomic, rcRTS},
		{driver.StateRTS, 0, rcRTS},
		{driver.StateSQD, 0, driver.QPEnSQDAsyncNotify},
		{driver.StateRTS, 0, rcRTS},
	},
	driver.UC: {
		{driver.StateInit, rights, 0},
		{driver.StateInit, 0, rights},
		{driver.StateRTR, path, driver.QPAccessFlags | driver.QPPKeyIndex},
		{driver.StateRTS, driver.QPSQPSN, ucRTS},
		{driver.StateRTS, 0, ucRTS},
		{driver.StateSQD, 0, driver.QPEnSQDAsyncNotify},
		{driver.StateRTS, 0, ucRTS},
		{driver.StateSQE, 0, 0},
		{driver.StateRTS, 0, ucRTS},
	},
	driver.UD: {
		{driver.StateInit, driver.QPPort | driver.QPPKeyIndex | driver.QPQKey, 0},
		{driver.StateInit, 0, driver.QPPort | driver.QPPKeyIndex | driver.QPQKey},
		{driver.StateRTR, 0, driver.QPPKeyIndex | driver.QPQKey},
		{driver.StateRTS, driver.QPSQPSN, udRTS},
		{driver.StateRTS, 0, udRTS},
		{driver.StateSQD, 0, driver.QPEnSQDAsyncNotify},
		{driver.StateRTS, 0, udRTS},
		{driver.StateSQE, 0, 0},
		{driver.StateRTS, 0, udRTS},
	},
}

// Each attribute that a change of state must have and is left out, and each one that
// it may not have, is refused and changes nothing.
func TestTransitionsOfEachType(t *testing.T) {
	for typ, steps := range stepsOfTypes {
		t.Run(typ.String(), func(t *testing.T) {
			inBubble(t, rigConfig{typ: typ, apart: true}, func(r *rig) {
				q := r.a.q
				r.must(q.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask))
				from := driver.StateReset
				for _, s := range steps {
					a := driver.QPAttr{State: s.to, CurState: from, Port: 1, PathMTU: driver.MTU256, DestQPN: 2, Access: everything,
						AH: driver.AHAttr{DGID: gidOf(r.b.addr), Port: 1, IsGlobal: true}}
					if s.to == driver.StateSQE { // which the device enters by itself
						q.mu.Lock()
						q.setState(driver.StateSQE)
						q.mu.Unlock()
						from = s.to
						continue
					}
					for bit := range 26 {
						b := driver.QPMask(1) << bit
						mask := s.must ^ b // one less, or one more
						if b == driver.QPStateMask || s.may&b != 0 {
							continue
						}
						if err := q.Modify(&a, driver.QPStateMask|mask); !errors.Is(err, syscall.EINVAL) {
							t.Fatalf("%v to %v with mask %#x: %v", from, s.to, mask, err)
						}
						if now := r.a.state(); now != from {
							t.Fatalf("a refused change from %v to %v led to %v", from, s.to, now)
						}
					}
					r.must(q.Modify(&a, driver.QPStateMask|s.must|s.may))
					from = s.to
				}
				for _, to := range []driver.QPState{driver.StateSQE, driver.StateInit, driver.StateRTR} {
					if err := q.Modify(&driver.QPAttr{State: to}, driver.QPStateMask); !errors.Is(err, syscall.EINVAL) {
						t.Errorf("RTS to %v: %v", to, err)
					}
				}
			})
		})
	}
}

// From Reset a queue pair can be put into Err, where posts are flushed: it has no
// path yet.
func TestPostsInErrWithoutAPath(t *testing.T) {
	for _, typ := range []driver.QPType{driver.RC, driver.UC, driver.UD} {
		inBubble(t, rigConfig{typ: typ, apart: true}, func(r *rig) {
			h := r.a.handle()
			r.must(r.a.q.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask))
			r.must(r.a.q.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
			r.a.post(r.a.datagram(h, 1, 0, 1000))
			r.a.one(1, driver.WRFlushErr)
		})
	}
}

// R54 and R55 under loss, doubling, reordering and damage by a seed: what is
// delivered is a message that was sent, whole, on UC each at most once and in order;
// requests complete; when the network is well again all arrives.
func TestUnreliableFaults(t *testing.T) {
	for _, typ := range []driver.QPType{driver.UC, driver.UD} {
		for _, f := range []Faults{
			{Loss: 0.01}, {Loss: 0.1}, {Loss: 0.3}, {Duplicate: 0.2}, {Reorder: 0.1}, {Corrupt: 0.1},
			{Loss: 0.05, Duplicate: 0.1, Reorder: 0.05, Corrupt: 0.02, Delay: 10 * time.Microsecond},
		} {
			t.Run(fmt.Sprintf("%v %+v", typ, f), func(t *testing.T) {
				t.Parallel()
				lost, damaged := 0, uint64(0)
				for seed := range uint64(4 * *matrixSeeds) {
					l, d := unreliableTraffic(t, typ, seed, f)
					if t.Failed() {
						t.Fatalf("seed %d", seed)
					}
					lost, damaged = lost+l, damaged+d
				}
				// One seed may lose or damage nothing.
				if f.Loss >= 0.1 && lost == 0 || f.Corrupt >= 0.1 && damaged == 0 {
					t.Errorf("%d messages lost and %d packets damaged with all seeds", lost, damaged)
				}
			})
		}
	}
}

const unreliableMessages = 64

// unreliableTraffic sends messages that begin with their number, all from one
// random text. It tells how many messages were lost, and how many packets the
// receiver found damaged.
func unreliableTraffic(t *testing.T, typ driver.QPType, seed uint64, f Faults) (lost int, damaged uint64) {
	synctest.Test(t, func(t *testing.T) {
		g := rand.New(rand.NewPCG(seed, 55))
		const slot, written = 4096, 2 * unreliableMessages * 4096 // where writes go, behind the receives
		r := newRig(t, rigConfig{
			typ: typ, sim: SimConfig{Seed: seed, Faults: f, Split: g.IntN(2) == 0}, memory: 4 * unreliableMessages * slot, psn: g.Uint32() & 0xffffff,
			depth: 2 * unreliableMessages, v6: true, // where the check of packets is exact
		})
		defer r.close()
		r.a.fill(seed)
		h := r.a.handle()
		head := 0
		if typ == driver.UD {
			head = grhSize
		}
		size, ops := map[int]int{}, []driver.Opcode{driver.OpSend, driver.OpSendWithImm, driver.OpWriteWithImm}
		for i := range 2 * unreliableMessages {
			r.b.recv(driver.RecvWR{ID: uint64(i), SGL: []driver.SGE{r.b.sge(i*slot, slot)}})
		}
		send := func(i int) {
			size[i] = []int{4, 255, 256, 257, 1000, 4 + g.IntN(slot-head-4)}[g.IntN(6)]
			w := r.a.datagram(h, uint64(i), i*slot, size[i])
			w.Op, w.Imm, w.Remote = ops[g.IntN(len(ops)-head/grhSize)], uint32(i), r.b.remote(written+i*slot)
			binary.LittleEndian.PutUint32(r.a.bytes(i*slot, 4), uint32(i))
			r.a.post(w)
			r.a.one(uint64(i), driver.Success)
		}
		delivered, last := 0, -1
		take := func(healthy bool, from int) {
			time.Sleep(time.Second)
			for _, wc := range r.b.poll() {
				at := int(wc.ID) * slot
				if wc.Status != driver.Success {
					t.Fatalf("completion %+v", wc)
				}
				if wc.Op == driver.WCRecvWriteWithImm {
					at = written + int(wc.Imm)*slot
				}
				n := int(wc.ByteLen) - head
				i := int(binary.LittleEndian.Uint32(r.b.bytes(at+head, 4)))
				want, sent := size[i]
				switch {
				case !sent || n != want || !bytes.Equal(r.b.bytes(at+head, n), r.a.bytes(i*slot, n)) || wc.Flags&driver.WCWithImm != 0 && wc.Imm != uint32(i):
					t.Fatalf("delivery %+v holds %d bytes that are not message %d of %d", wc, n, i, want)
				case typ == driver.UC && i <= last:
					t.Fatalf("message %d was delivered after %d", i, last)
				case healthy && i != from+delivered:
					t.Fatalf("message %d was delivered where %d was due", i, from+delivered)
				}
				last = i
				delivered++
			}
		}
		for i := range unreliableMessages {
			send(i)
		}
		take(false, 0)
		if lossy := f.Loss > 0 || f.Corrupt > 0; !lossy && f.Reorder == 0 && delivered < unreliableMessages {
			t.Errorf("%d of %d were delivered", delivered, unreliableMessages)
		}
		lost = unreliableMessages - delivered
		delivered = 0
		r.sim.SetFaults(Faults{})
		for i := range unreliableMessages / 2 {
			send(unreliableMessages + i)
		}
		take(true, unreliableMessages)
		c := r.b.counters()
		switch {
		case delivered != unreliableMessages/2:
			t.Errorf("%d of %d were delivered by a healthy network", delivered, unreliableMessages/2)
		case typ == driver.UC && lost > 0 && c.gaps.Load() == 0:
			t.Errorf("losses were not counted: %+v", c.list(link.Stats{}))
		}
		damaged = c.badICRC.Load() + c.malformed.Load()
		r.silent()
	})
	return lost, damaged
}

// A round of sending, receiving and polling allocates nothing.
func TestUnreliableAllocations(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, typ := range []driver.QPType{driver.UC, driver.UD} {
		inBubble(t, rigConfig{typ: typ, mtu: driver.MTU1024, unseen: true}, func(r *rig) {
			h := r.a.handle()
			sends := []driver.SendWR{r.a.datagram(h, 1, 0, 4000), r.a.datagram(h, 2, 0, 10)}
			sends[1].SGL, sends[1].Inline = nil, make([]byte, 10)
			recvs := []driver.RecvWR{{ID: 3, SGL: []driver.SGE{r.b.sge(0, 4096)}}, {ID: 4, SGL: []driver.SGE{r.b.sge(0, 50), r.b.sge(64, 50)}}}
			var wcs [4]driver.WC
			round := func() {
				if n, err := r.b.q.PostRecv(recvs); n != 2 || err != nil {
					t.Fatal(n, err)
				}
				if n, err := r.a.q.PostSend(sends); n != 2 || err != nil {
					t.Fatal(n, err)
				}
				synctest.Wait()
				for _, e := range []*end{r.a, r.b} {
					if n, err := e.cq.Poll(wcs[:]); n != 2 || err != nil {
						t.Fatalf("%c: %d completions, %v", e.name, n, err)
					}
				}
			}
			round()
			if got := testing.AllocsPerRun(100, round); got != 0 {
				t.Errorf("%v: %v allocations a round", typ, got)
			}
		})
	}
}

// Datagrams of one list go each by its own handle.
func TestHandlesOfOneList(t *testing.T) {
	inBubble(t, udRig(rigConfig{}), func(r *rig) {
		var handles []driver.AH
		for i := range 2 {
			r.cfg.tos = uint8(4 + 4*i)
			handles = append(handles, r.a.handle())
		}
		var wrs []driver.SendWR
		for i := range 8 {
			r.b.recv(driver.RecvWR{ID: uint64(i), SGL: []driver.SGE{r.b.sge(i*64, 48)}})
			wrs = append(wrs, r.a.datagram(handles[i/2%2], uint64(i), 0, 8))
		}
		r.a.post(wrs...)
		for i := range 8 {
			r.b.one(uint64(i), driver.Success)
			if got, want := r.b.bytes(i*64+21, 1)[0], uint8(4+4*(i/2%2)); got != want {
				t.Errorf("datagram %d has type of service %d, want %d", i, got, want)
			}
		}
	})
}

// Packets that a stranger makes up, with a checksum that is right, crash nothing, and
// change no memory but that of the receives.
func FuzzUnreliablePackets(f *testing.F) {
	f.Add([]byte{0x20, 0, 0, 0, 0, 1, 2, 3})
	f.Add([]byte{0x2b, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 8, 1, 2, 3, 4})
	f.Add([]byte{0x64, 0, 0, 0, 0, 0x01, 0x23, 0x45, 0x67, 0, 0, 0, 7, 1, 2, 3})
	f.Fuzz(func(t *testing.T, script []byte) {
		for _, typ := range []driver.QPType{driver.UC, driver.UD} {
			inBubble(t, rigConfig{typ: typ, unseen: true}, func(r *rig) {
				const receives = 4096
				before := bytes.Clone(r.b.mem.Bytes())
				for id := range uint64(8) {
					r.b.recv(driver.RecvWR{ID: id, SGL: []driver.SGE{r.b.sge(int(id)*512, 512)}})
				}
				src := netip.AddrPortFrom(r.a.addr, wire.Port)
				way := wire.NewPath(src, netip.AddrPortFrom(r.b.addr, wire.Port))
				for rest := script; len(rest) >= 5; {
					op, n := wire.Opcode(rest[0]), int(rest[1])<<1
					b := make([]byte, wire.BTHSize, 1024)
					psn := r.b.q.resp.psn.Add(uint32(int8(rest[2])) & wire.PSNMask)
					wire.BTH(b).Put(op, wire.Flags(rest[3]), defaultPKey, r.b.q.num, psn)
					b[1] = rest[3]&0x80 | rest[4]<<4&0x30
					rest = rest[5:]
					b = append(b, rest[:min(n, len(rest))]...)
					rest = rest[min(n, len(rest)):]
					b = append(b, make([]byte, 4+-len(b)&3)...)
					way.Seal(b, 0)
					r.sim.Inject(src, r.b.addr, b)
				}
				r.settle()
				if !bytes.Equal(r.b.bytes(receives, len(before)-receives), before[receives:]) {
					t.Error("memory changed")
				}
				for _, wc := range r.b.poll() {
					if wc.Status != driver.Success || wc.ByteLen > 512 {
						t.Errorf("completion %+v", wc)
					}
				}
				if s := r.b.state(); s != driver.StateRTS {
					t.Errorf("state %v", s)
				}
			})
		}
	})
}

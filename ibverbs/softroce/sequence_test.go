package softroce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// The tests cite the rules by number that they hold the engine to.

func TestR01InOrderIsExecutedAndAcknowledged(t *testing.T) {
	inBubble(t, rigConfig{psn: 77}, func(r *rig) {
		r.a.fill(1)
		r.a.post(r.a.write(1, 0, 1000))
		r.a.one(1, driver.Success)
		r.same(0, 1000)
		acks := r.packets(func(p seenPacket) bool { return p.op == wire.RCAck })
		if len(acks) != 1 || acks[0].psn != 80 || !acks[0].syndrome.IsAck() {
			t.Errorf("ACKs %+v, want one of packet 80", acks)
		}
		if r.b.q.resp.psn != 81 {
			t.Errorf("next packet is %d, want 81", r.b.q.resp.psn)
		}
	})
}

func TestR02OneNAKPerGap(t *testing.T) {
	inBubble(t, rigConfig{psn: 100, sim: SimConfig{Split: true}}, func(r *rig) {
		r.a.fill(2)
		r.sim.Hook(link.Nth(link.Drop, r.on('a', wire.Write), 3))
		r.a.post(r.a.write(1, 0, 20*256))
		r.a.one(1, driver.Success)
		r.same(0, 20*256)
		naks := r.naks(wire.SynSequence)
		if len(naks) != 1 || naks[0].psn != 102 {
			t.Errorf("sequence NAKs %+v, want one of packet 102", naks)
		}
		if n := r.b.counters().gaps.Load(); n < 2 {
			t.Errorf("%d packets came after the gap, the test needs some", n)
		}
		if n := r.a.counters().timeouts.Load(); n != 0 {
			t.Errorf("%d time-outs", n)
		}
	})
}

func TestR03GoesBackToTheNAK(t *testing.T) {
	inBubble(t, rigConfig{psn: 100}, func(r *rig) {
		r.a.fill(3)
		r.sim.Hook(link.Nth(link.Drop, r.on('a', wire.Write), 5))
		r.a.post(r.a.write(1, 0, 10*256))
		r.a.one(1, driver.Success)
		r.same(0, 10*256)
		sent := r.sent(wire.Write)
		for i, p := range sent {
			want := wire.PSN(100 + i)
			if i >= 10 {
				want = wire.PSN(104 + i - 10)
			}
			if p.psn != want {
				t.Fatalf("packet %d sent is %d, want %d", i, p.psn, want)
			}
		}
		if len(sent) != 16 {
			t.Errorf("%d packets sent, want 10 and 6 again", len(sent))
		}
	})
}

func TestR04DuplicatesAreNotExecutedAgain(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		r.a.fill(4)
		r.b.recv(driver.RecvWR{ID: 5, SGL: []driver.SGE{r.b.sge(4096, 256)}}, driver.RecvWR{ID: 6})
		r.a.post(r.a.write(1, 0, 100))
		r.a.post(r.a.send(2, 0, 100))
		r.a.take(2)
		r.b.one(5, driver.Success)
		clear(r.b.bytes(0, 8192))
		for _, p := range r.packets(func(p seenPacket) bool { return p.from == 'a' }) {
			r.forget()
			r.sim.Inject(p.src, r.b.addr, p.data)
			r.settle()
			acks := r.packets(func(p seenPacket) bool { return p.from == 'b' && p.op == wire.RCAck })
			if len(acks) != 1 || acks[0].psn != 1 || !acks[0].syndrome.IsAck() {
				t.Errorf("a duplicate of %v is answered by %+v, want an ACK of packet 1", p.op, acks)
			}
		}
		r.b.none(time.Millisecond)
		if !bytes.Equal(r.b.bytes(0, 8192), make([]byte, 8192)) {
			t.Error("a duplicate was stored")
		}
	})
}

func TestR05DuplicateReadIsAnsweredAgain(t *testing.T) {
	for lost := 1; lost <= 5; lost++ {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			inBubble(t, rigConfig{psn: 50}, func(r *rig) {
				r.b.fill(5)
				r.sim.Hook(link.Nth(link.Drop, r.on('b', wire.ReadResponse), lost))
				r.a.post(r.a.read(1, 0, 5*256))
				r.a.one(1, driver.Success)
				r.same(0, 5*256)
				requests := r.sent(wire.ReadRequest)
				last := requests[len(requests)-1]
				if len(requests) != 2 || last.psn != wire.PSN(50+lost-1) || last.reth != [2]uint64{r.b.mem.Addr() + uint64(256*(lost-1)), uint64(256 * (6 - lost))} {
					t.Errorf("requests %+v, want the second to ask for what is missing", requests)
				}
			})
		})
	}
	t.Run("outside of what was read", func(t *testing.T) {
		inBubble(t, rigConfig{}, func(r *rig) {
			r.a.post(r.a.read(1, 0, 1024))
			r.a.one(1, driver.Success)
			for _, c := range []struct {
				psn     wire.PSN
				off     uint64
				n, rkey uint32
			}{{0, 1, 1024, 0}, {1, 0, 256, 0}, {0, 0, 1025, 0}, {2, 512, 513, 0}, {0, 0, 1024, 1}} {
				r.forget()
				r.forge(wire.RCReadRequest, wire.AckReq, c.psn, nil, func(p wire.Packet) {
					p.RETH().Put(r.b.mem.Addr()+c.off, r.b.key()^c.rkey, c.n)
				})
				if got := r.packets(func(p seenPacket) bool { return p.from == 'b' }); len(got) != 0 {
					t.Errorf("%+v is answered by %+v", c, got)
				}
			}
		})
	})
}

// A requester that lost an answer throws away what comes behind it. It is served
// from there on at once, and not when the answer is through that it had asked for
// first: that may take longer than its time-out.
func TestR05ReadIsAskedForAgainWhileItIsAnswered(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		const packets, other, lost = 2 * replyBurst, 3, 10
		r.b.q.mu.Lock()
		ask := func(psn wire.PSN, n uint32) {
			p := wire.Make(make([]byte, 64), wire.RCReadRequest, 0)
			p.BTH().Put(wire.RCReadRequest, wire.AckReq, defaultPKey, r.b.q.num, psn)
			p.RETH().Put(r.b.mem.Addr()+256*uint64(psn), r.b.key(), n)
			r.b.q.request(&packet{Packet: p, op: wire.RCReadRequest, psn: psn})
		}
		ask(0, packets*256)
		ask(packets, other*256)
		ask(lost, (packets-lost)*256)
		ask(packets, other*256)
		ask(packets, other*256) // it is still to be sent
		r.b.q.mu.Unlock()
		r.settle()
		sent := r.packets(func(p seenPacket) bool { return p.from == 'b' })
		for i, p := range sent {
			want := wire.PSN(i)
			if i >= replyBurst {
				want = wire.PSN(lost + i - replyBurst)
			}
			if p.psn != want {
				t.Fatalf("packet %d of the answers is %d, want %d", i, p.psn, want)
			}
		}
		if want := packets + other + replyBurst - lost; len(sent) != want {
			t.Errorf("%d packets were sent, want %d", len(sent), want)
		}
	})
}

func TestR06DuplicateAtomicIsReplayed(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		binary.NativeEndian.PutUint64(r.b.bytes(0, 8), 40)
		r.sim.Hook(link.Nth(link.Drop, r.on('b', wire.AtomicAck), 1))
		r.a.post(r.a.add(1, 0, 2))
		r.a.one(1, driver.Success)
		if old, now := binary.NativeEndian.Uint64(r.a.bytes(0, 8)), binary.NativeEndian.Uint64(r.b.bytes(0, 8)); old != 40 || now != 42 {
			t.Errorf("found %d and left %d, want 40 and 42", old, now)
		}
		if n := len(r.sent(wire.FetchAdd)); n != 2 {
			t.Errorf("sent %d times, want 2", n)
		}
		// One that is not known any more.
		r.forget()
		r.forge(wire.RCFetchAdd, wire.AckReq, wire.PSN(0).Add(wire.PSNMask-5), nil, func(p wire.Packet) {
			p.AtomicETH().Put(r.b.mem.Addr(), r.b.key(), 1, 0)
		})
		if got := r.packets(func(p seenPacket) bool { return p.from == 'b' }); len(got) != 0 || binary.NativeEndian.Uint64(r.b.bytes(0, 8)) != 42 {
			t.Errorf("an old atomic is answered by %+v", got)
		}
	})
}

func TestR08NumbersWrap(t *testing.T) {
	for _, lost := range []int{0, 15, 16, 17, 18} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			inBubble(t, rigConfig{psn: 0xfffff0}, func(r *rig) {
				r.a.fill(8)
				r.b.q.resp.msn = 0xffffff
				r.sim.Hook(link.Nth(link.Drop, r.on('a', wire.Write), lost))
				r.sim.Hook(link.Nth(link.Drop, r.on('b', wire.ReadResponse), lost))
				r.a.post(r.a.write(1, 0, 40*256))
				r.a.one(1, driver.Success)
				r.same(0, 40*256)
				if n := r.a.counters().timeouts.Load(); n != 0 {
					t.Errorf("%d time-outs", n)
				}
			})
			inBubble(t, rigConfig{psn: 0xfffff0}, func(r *rig) {
				r.b.fill(9)
				r.sim.Hook(link.Nth(link.Drop, r.on('b', wire.ReadResponse), lost))
				r.a.post(r.a.read(1, 0, 40*256))
				r.a.one(1, driver.Success)
				r.same(0, 40*256)
			})
		})
	}
}

func TestR09LostAckEndsInOneCompletion(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		r.sim.Hook(link.Nth(link.Drop, r.on('b', wire.Ack), 1))
		start := time.Now()
		r.a.post(r.a.write(1, 0, 8))
		r.a.one(1, driver.Success)
		if d := time.Since(start); d < wire.AckTime(14) || d > wire.AckTime(14)+time.Millisecond {
			t.Errorf("took %v, want one time-out of %v", d, wire.AckTime(14))
		}
		r.a.none(time.Second)
	})
}

// Whoever has seen the last message may close: the peer learns that it came.
func TestR09AckGoesOutBeforeTheQueuePairDoes(t *testing.T) {
	for _, c := range []struct {
		name  string
		leave func(q driver.QP) error
	}{
		{"close", func(q driver.QP) error { return q.Close() }},
		{"reset", func(q driver.QP) error { return q.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask) }},
		{"error", func(q driver.QP) error { return q.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, rigConfig{psn: 9}, func(r *rig) {
				r.b.recv(driver.RecvWR{ID: 5})
				q := r.b.q
				p := wire.Make(make([]byte, 64), wire.RCSendOnly, 0)
				p.BTH().Put(wire.RCSendOnly, wire.AckReq, defaultPKey, q.num, 9)
				q.mu.Lock()
				q.request(&packet{Packet: p, op: wire.RCSendOnly, psn: 9}) // and nothing is sent until the batch is through
				q.mu.Unlock()
				r.b.one(5, driver.Success)
				r.must(c.leave(q))
				r.settle()
				acks := r.packets(func(p seenPacket) bool { return p.op == wire.RCAck })
				if len(acks) != 1 || acks[0].psn != 9 || !acks[0].syndrome.IsAck() {
					t.Errorf("%+v were sent, want an ACK of packet 9", acks)
				}
				r.b.q = r.b.newQP(r.b.cq)
				if c.name != "close" {
					r.must(q.Close())
				}
			})
		})
	}
}

func TestR10CoalescedAcks(t *testing.T) {
	t.Run("one for many", func(t *testing.T) {
		inBubble(t, rigConfig{}, func(r *rig) {
			r.sim.Hook(link.Nth(link.Drop, r.on('b', wire.Ack), 1, 2))
			r.a.post(r.a.write(1, 0, 8))
			r.settle()
			r.a.post(r.a.write(2, 0, 8))
			r.settle()
			r.a.post(r.a.write(3, 0, 8))
			r.settle()
			for i, wc := range r.a.take(3) {
				if wc.ID != uint64(i+1) || wc.Status != driver.Success {
					t.Errorf("completion %d is %+v", i, wc)
				}
			}
			if n := r.a.counters().retries.Load(); n != 0 {
				t.Errorf("%d retries", n)
			}
		})
	})
	t.Run("a read acknowledges what was before", func(t *testing.T) {
		inBubble(t, rigConfig{}, func(r *rig) {
			r.b.fill(10)
			r.b.recv(driver.RecvWR{ID: 9})
			r.sim.Hook(link.Nth(link.Drop, r.on('b', wire.Ack), 1))
			r.a.post(r.a.send(1, 0, 0))
			r.settle()
			r.a.post(r.a.read(2, 0, 100))
			r.settle()
			r.a.take(2)
			r.same(0, 100)
			if n := r.a.counters().retries.Load(); n != 0 {
				t.Errorf("%d retries", n)
			}
		})
	})
	t.Run("none completes a read", func(t *testing.T) {
		inBubble(t, rigConfig{}, func(r *rig) {
			r.b.fill(11)
			r.sim.Hook(link.Nth(link.Drop, r.on('b', wire.ReadResponse), 1))
			start := time.Now()
			r.a.post(r.a.read(1, 0, 100))
			r.settle()
			r.a.post(r.a.write(2, 200, 8)) // its ACK says that the answer is missing
			for i, wc := range r.a.take(2) {
				if wc.ID != uint64(i+1) || wc.Status != driver.Success {
					t.Errorf("completion %d is %+v", i, wc)
				}
			}
			r.same(0, 100)
			if d := time.Since(start); d > wire.AckTime(14)/2 {
				t.Errorf("took %v: the read waited for the timer", d)
			}
		})
	})
}

func TestR11StaleAnswersAreIgnored(t *testing.T) {
	inBubble(t, rigConfig{psn: 1000, timeout: 255}, func(r *rig) {
		r.a.post(r.a.write(1, 0, 8))
		r.a.one(1, driver.Success)
		r.cut(r.b)
		r.a.post(r.a.write(2, 0, 8))
		r.settle()
		for _, psn := range []wire.PSN{999, 1000, 1002, 2000, 1001 + 1<<23} {
			for _, s := range []wire.Syndrome{wire.SynAck, wire.SynSequence, wire.SynAccess, wire.RNRNak(1)} {
				r.inject(r.b, r.a, wire.RCAck, 0, psn, nil, func(p wire.Packet) { p.AETH().Put(s, 0) })
			}
		}
		r.a.none(time.Millisecond)
		if n := len(r.sent(wire.Write)); n != 2 || r.a.state() != driver.StateRTS {
			t.Errorf("%d packets sent, state %v", n, r.a.state())
		}
		r.inject(r.b, r.a, wire.RCAck, 0, 1001, nil, func(p wire.Packet) { p.AETH().Put(wire.SynAck, 0) })
		r.a.one(2, driver.Success)
	})
}

func TestR12LocalAckTimeout(t *testing.T) {
	for _, code := range []uint8{1, 14, 20} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			inBubble(t, rigConfig{timeout: code, retryCnt: 1}, func(r *rig) {
				r.cut(r.a)
				r.a.post(r.a.write(1, 0, 8))
				r.a.one(1, driver.RetryExcErr)
				sent := r.sent(wire.Write)
				if len(sent) != 2 || sent[1].at-sent[0].at != wire.AckTime(code) {
					t.Errorf("sent %+v, want a second time after %v", sent, wire.AckTime(code))
				}
			})
		})
	}
	t.Run("none", func(t *testing.T) {
		inBubble(t, rigConfig{timeout: 255}, func(r *rig) {
			r.cut(r.a)
			r.a.post(r.a.write(1, 0, 8))
			r.a.none(time.Hour)
			if n := len(r.sent(wire.Write)); n != 1 {
				t.Errorf("sent %d times without a timer", n)
			}
		})
	})
}

// R14 as well: 7 is seven.
func TestR13RetryExhausted(t *testing.T) {
	for _, retries := range []uint8{255, 1, 3, 7} {
		t.Run(fmt.Sprint(retries), func(t *testing.T) {
			inBubble(t, rigConfig{retryCnt: retries}, func(r *rig) {
				r.cut(r.a)
				r.a.recv(driver.RecvWR{ID: 20})
				start := time.Now()
				r.a.post(r.a.write(1, 0, 8), r.a.write(2, 0, 8), r.a.read(3, 0, 8))
				wcs := r.a.take(4)
				want := []driver.WC{{ID: 1, Status: driver.RetryExcErr}, {ID: 2, Status: driver.WRFlushErr}, {ID: 3, Status: driver.WRFlushErr}, {ID: 20, Status: driver.WRFlushErr}}
				for i, wc := range wcs {
					if wc.ID != want[i].ID || wc.Status != want[i].Status {
						t.Errorf("completion %d is %+v, want %+v", i, wc, want[i])
					}
				}
				sends := int(retries) + 1
				if retries == 255 {
					sends = 1
				}
				first := r.packets(func(p seenPacket) bool { return p.psn == 0 })
				if d, limit := time.Since(start), time.Duration(sends)*wire.AckTime(14); d < limit || d > limit+time.Millisecond || len(first) != sends {
					t.Errorf("took %v and %d transmissions, want %v and %d", d, len(first), limit, sends)
				}
				if r.a.state() != driver.StateErr {
					t.Errorf("state %v", r.a.state())
				}
			})
		})
	}
}

func TestR15NAKsDuringARound(t *testing.T) {
	t.Run("equal ones count once", func(t *testing.T) {
		inBubble(t, rigConfig{psn: 10}, func(r *rig) {
			mend := r.cut(r.b)
			r.a.post(r.a.write(1, 0, 10*256))
			r.settle()
			for range 20 {
				r.inject(r.b, r.a, wire.RCAck, 0, 14, nil, func(p wire.Packet) { p.AETH().Put(wire.SynSequence, 0) })
			}
			if n := len(r.sent(wire.Write)); n != 16 {
				t.Errorf("%d packets sent, want 10 and 6 again", n)
			}
			mend()
			r.a.one(1, driver.Success)
		})
	})
	t.Run("two losses in a window need no timer", func(t *testing.T) {
		inBubble(t, rigConfig{}, func(r *rig) {
			r.a.fill(15)
			r.sim.Hook(link.Nth(link.Drop, r.on('a', wire.Write), 5, 25+40)) // the second while it is sent again
			r.a.post(r.a.write(1, 0, 40*256))
			r.a.one(1, driver.Success)
			r.same(0, 40*256)
			if n := r.a.counters().timeouts.Load(); n != 0 {
				t.Errorf("%d time-outs", n)
			}
		})
	})
}

// Losses cost some packets each, and not the whole window, which comes back when
// they end. All of the message is in flight when the first is noticed.
func TestR16WindowNarrowsAfterLoss(t *testing.T) {
	inBubble(t, rigConfig{memory: 1 << 20, sim: SimConfig{Split: true, RecvBuffer: 8 << 20, Faults: Faults{Delay: 500 * time.Microsecond}}}, func(r *rig) {
		r.a.fill(7)
		n := 0
		mend := r.sim.Hook(func(p *link.SimPacket) link.Fate {
			if r.on('a', wire.Write)(p) {
				if n++; n%100 == 0 {
					return link.Drop
				}
			}
			return link.Pass
		})
		r.a.post(r.a.write(1, 0, 1<<20))
		r.a.one(1, driver.Success)
		r.same(0, 1<<20)
		const packets = 4096
		if got := len(r.sent(wire.Write)); got > packets+packets*3/2 {
			t.Errorf("%d packets were sent for a message of %d", got, packets)
		}
		mend()
		limit := r.a.q.req.limit
		for i := uint64(2); r.a.q.req.limit != 0; i++ {
			if i == 100 {
				t.Fatalf("the limit was %d bytes and is %d after %d MiB without a loss", limit, r.a.q.req.limit, i-2)
			}
			r.a.post(r.a.write(i, 0, 1<<20))
			r.a.one(i, driver.Success)
		}
	})
}

func TestR16WindowStallsAndResumes(t *testing.T) {
	const n = 1 << 20
	inBubble(t, rigConfig{memory: n, timeout: 255, sim: SimConfig{RecvBuffer: 128 << 10}}, func(r *rig) {
		r.a.fill(16)
		mend := r.cut(r.b)
		r.a.post(r.a.write(1, 0, n))
		r.settle()
		sent := r.sent(wire.Write)
		if len(sent) >= 128<<10/256 || len(sent) < 16 {
			t.Errorf("%d packets of %d in flight", len(sent), n/256)
		}
		if !sent[len(sent)-1].ackReq {
			t.Error("the last packet of the window asks for no ACK")
		}
		mend()
		r.inject(r.b, r.a, wire.RCAck, 0, sent[len(sent)-1].psn, nil, func(p wire.Packet) { p.AETH().Put(wire.SynAck, 0) })
		r.a.one(1, driver.Success)
		r.same(0, n)
	})
	t.Run("reads are cut", func(t *testing.T) {
		inBubble(t, rigConfig{memory: n, mtu: driver.MTU4096, sim: SimConfig{RecvBuffer: 128 << 10}}, func(r *rig) {
			r.b.fill(17)
			r.a.post(r.a.read(1, 0, n))
			r.a.one(1, driver.Success)
			r.same(0, n)
			if got := len(r.sent(wire.ReadRequest)); got != n/readChunk {
				t.Errorf("%d requests, want %d", got, n/readChunk)
			}
		})
	})
}

package softroce

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// failsWith sees that request 1 of a ended in a status and request 2 behind it was
// flushed, and that both ends are in the error state.
func (r *rig) failsWith(s driver.Status) {
	r.t.Helper()
	r.a.one(1, s)
	r.a.one(2, driver.WRFlushErr)
	if r.a.state() != driver.StateErr || r.b.state() != driver.StateErr {
		r.t.Errorf("states %v and %v", r.a.state(), r.b.state())
	}
}

func TestR17ReceiverNotReady(t *testing.T) {
	for _, op := range []driver.Opcode{driver.OpSend, driver.OpWriteWithImm} {
		t.Run(fmt.Sprint(op), func(t *testing.T) {
			inBubble(t, rigConfig{psn: 7, sim: SimConfig{Split: true}}, func(r *rig) {
				r.a.fill(17)
				wr := r.a.write(2, 0, 3*256)
				wr.Op = op
				r.a.post(r.a.write(1, 4096, 8), wr, r.a.write(3, 8192, 20*256))
				r.a.one(1, driver.Success) // the RNR NAK acknowledges it
				r.settle()
				if got := r.naks(wire.RNRNak(12)); len(got) != 1 {
					t.Errorf("RNR NAKs %+v, want one", got)
				}
				if got := r.naks(wire.SynSequence); len(got) != 0 {
					t.Errorf("sequence NAKs %+v behind an RNR NAK", got)
				}
				time.Sleep(50 * time.Millisecond)
				r.b.recv(driver.RecvWR{ID: 9, SGL: []driver.SGE{r.b.sge(0, 1024)}})
				if wc := r.b.one(9, driver.Success); wc.ByteLen != 3*256 {
					t.Errorf("%+v", wc)
				}
				r.a.one(2, driver.Success)
				r.a.one(3, driver.Success)
				r.same(0, 3*256)
				r.same(8192, 20*256)
				if n := r.a.counters().timeouts.Load(); n != 0 {
					t.Errorf("%d time-outs", n)
				}
			})
		})
	}
	t.Run("a copy that comes late ends the wait", func(t *testing.T) {
		inBubble(t, rigConfig{rnrRetry: 7, mtu: driver.MTU256}, func(r *rig) {
			r.b.q.attr.MinRNRTimer = 0 // 655 ms
			r.a.fill(1)
			r.a.post(r.a.send(1, 0, 512), r.a.send(2, 512, 8))
			r.settle()
			r.b.recv(driver.RecvWR{ID: 3, SGL: []driver.SGE{r.b.sge(0, 512)}}, driver.RecvWR{ID: 4, SGL: []driver.SGE{r.b.sge(512, 8)}})
			began := time.Now()
			r.forge(wire.RCSendFirst, wire.AckReq, 0, r.a.bytes(0, 256), nil)
			r.a.one(1, driver.Success)
			r.a.one(2, driver.Success)
			r.b.one(3, driver.Success)
			r.b.one(4, driver.Success)
			r.same(0, 520)
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("it took %v", took)
			}
		})
	})
	t.Run("nothing else starts during the wait", func(t *testing.T) {
		inBubble(t, rigConfig{rnrRetry: 1}, func(r *rig) {
			r.a.post(r.a.send(1, 0, 8))
			r.settle()
			n := len(r.sent(wire.Send))
			r.inject(r.b, r.a, wire.RCAck, 0, 0, nil, func(p wire.Packet) { p.AETH().Put(wire.SynSequence, 0) })
			r.inject(r.b, r.a, wire.RCAck, 0, 0, nil, func(p wire.Packet) { p.AETH().Put(wire.RNRNak(12), 0) })
			if got := len(r.sent(wire.Send)); got != n || r.a.state() != driver.StateRTS {
				t.Errorf("%d packets sent during the wait, state %v", got-n, r.a.state())
			}
			r.b.recv(driver.RecvWR{ID: 2, SGL: []driver.SGE{r.b.sge(0, 8)}})
			r.a.one(1, driver.Success)
		})
	})
}

func TestR18TimerCodes(t *testing.T) {
	for code, want := range map[uint8]time.Duration{0: 655360 * time.Microsecond, 1: 10 * time.Microsecond, 12: 640 * time.Microsecond, 14: 1280 * time.Microsecond, 31: 491520 * time.Microsecond} {
		inBubble(t, rigConfig{rnrRetry: 1}, func(r *rig) {
			r.b.q.attr.MinRNRTimer = code
			r.a.post(r.a.send(1, 0, 8))
			r.a.one(1, driver.RNRRetryExcErr)
			sent := r.sent(wire.Send)
			if len(sent) != 2 || sent[1].at-sent[0].at != want {
				t.Errorf("code %d: sent again after %v, want %v", code, sent[1].at-sent[0].at, want)
			}
		})
	}
}

func TestR19RNRRetries(t *testing.T) {
	for _, n := range []uint8{255, 1, 3, 6} {
		inBubble(t, rigConfig{rnrRetry: n}, func(r *rig) {
			r.a.post(r.a.send(1, 0, 8), r.a.send(2, 0, 8))
			r.a.one(1, driver.RNRRetryExcErr)
			r.a.one(2, driver.WRFlushErr)
			want := int(n) + 1
			if n == 255 {
				want = 1
			}
			if got := len(r.packets(func(p seenPacket) bool { return p.op == wire.RCSendOnly && p.psn == 0 })); got != want {
				t.Errorf("RNR retry %d: sent %d times, want %d", n, got, want)
			}
		})
	}
	t.Run("7 is for ever", func(t *testing.T) {
		inBubble(t, rigConfig{}, func(r *rig) {
			r.a.post(r.a.send(1, 0, 8))
			r.a.none(5 * time.Second)
			r.b.recv(driver.RecvWR{ID: 2, SGL: []driver.SGE{r.b.sge(0, 8)}})
			r.a.one(1, driver.Success)
		})
	})
}

func TestR20WriteWithImmediateWaitsForItsReceive(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		r.a.fill(20)
		wr := r.a.write(1, 0, 3*256)
		wr.Op, wr.Imm = driver.OpWriteWithImm, 0xdead
		r.a.post(wr)
		r.b.none(20 * time.Millisecond)
		if !bytes.Equal(r.b.bytes(0, 512), r.a.bytes(0, 512)) {
			t.Error("the packets before the last were not stored")
		}
		r.b.recv(driver.RecvWR{ID: 3})
		if wc := r.b.one(3, driver.Success); wc.ByteLen != 768 || wc.Imm != 0xdead || wc.Op != driver.WCRecvWriteWithImm {
			t.Errorf("%+v", wc)
		}
		r.a.one(1, driver.Success)
		r.same(0, 768)
	})
}

func TestR21OpcodeOutOfSequence(t *testing.T) {
	reth := func(r *rig, n uint32) func(wire.Packet) {
		return func(p wire.Packet) {
			if p.Opcode().HasRETH() {
				p.RETH().Put(r.b.mem.Addr(), r.b.key(), n)
			}
		}
	}
	for _, c := range []struct {
		before, op wire.Opcode
	}{
		{0xff, wire.RCSendMiddle}, {0xff, wire.RCSendLast}, {0xff, wire.RCWriteMiddle}, {0xff, wire.RCWriteLast}, {0xff, wire.RCWriteLastImm},
		{wire.RCSendFirst, wire.RCSendFirst}, {wire.RCSendFirst, wire.RCSendOnly}, {wire.RCSendFirst, wire.RCWriteMiddle},
		{wire.RCSendFirst, wire.RCWriteOnly}, {wire.RCSendFirst, wire.RCReadRequest}, {wire.RCSendFirst, wire.RCFetchAdd},
		{wire.RCWriteFirst, wire.RCSendLast}, {wire.RCWriteFirst, wire.RCWriteFirst}, {wire.RCWriteFirst, wire.RCSendOnly},
	} {
		t.Run(fmt.Sprintf("%v/%v", c.before, c.op), func(t *testing.T) {
			inBubble(t, rigConfig{}, func(r *rig) {
				r.b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{r.b.sge(0, 4096)}}, driver.RecvWR{ID: 2})
				psn := wire.PSN(0)
				if c.before.Valid() {
					r.forge(c.before, 0, psn, make([]byte, 256), reth(r, 512))
					psn++
				}
				n := 256
				if !c.op.HasData() {
					n = 0
				}
				r.forge(c.op, 0, psn, make([]byte, n), reth(r, 512))
				if got := r.naks(wire.SynInvalid); len(got) != 1 || got[0].psn != psn {
					t.Errorf("NAKs %+v, want one of packet %d", got, psn)
				}
				if r.b.state() != driver.StateErr {
					t.Errorf("state %v", r.b.state())
				}
				r.b.wantEvent(driver.EventQPReqErr)
				if wcs := r.b.take(2); wcs[0].ID != 1 || wcs[1].ID != 2 || wcs[0].Status != driver.WRFlushErr {
					t.Errorf("flushed %+v", wcs)
				}
			})
		})
	}
}

func TestR22OperationNotGranted(t *testing.T) {
	for _, c := range []struct {
		access driver.Access
		wr     func(r *rig) driver.SendWR
	}{
		{everything &^ driver.RemoteWrite, func(r *rig) driver.SendWR { return r.a.write(1, 0, 8) }},
		{everything &^ driver.RemoteRead, func(r *rig) driver.SendWR { return r.a.read(1, 0, 8) }},
		{everything &^ driver.RemoteAtomic, func(r *rig) driver.SendWR { return r.a.add(1, 0, 1) }},
	} {
		inBubble(t, rigConfig{access: c.access}, func(r *rig) {
			r.a.post(c.wr(r), r.a.send(2, 0, 0))
			r.failsWith(driver.RemInvReqErr)
			r.b.wantEvent(driver.EventQPReqErr)
		})
	}
}

func TestR23RemoteAccess(t *testing.T) {
	const size = 8192
	ops := map[string]func(r *rig) driver.SendWR{
		"write": func(r *rig) driver.SendWR { return r.a.write(1, 0, 600) },
		"read":  func(r *rig) driver.SendWR { return r.a.read(1, 0, 600) },
		"add": func(r *rig) driver.SendWR {
			w := r.a.add(1, 0, 1)
			w.Remote.Addr &^= 7
			return w
		},
	}
	for name, change := range map[string]func(r *rig, w *driver.SendWR){
		"key":        func(r *rig, w *driver.SendWR) { w.Remote.RKey ^= 1 << 13 },
		"before":     func(r *rig, w *driver.SendWR) { w.Remote.Addr -= 8 },
		"past":       func(r *rig, w *driver.SendWR) { w.Remote.Addr += size - uint64(w.SGL[0].Length)&^7 + 8 },
		"wraps":      func(r *rig, w *driver.SendWR) { w.Remote.Addr = ^uint64(0) - 7 },
		"another PD": func(r *rig, w *driver.SendWR) { w.Remote.RKey = r.b.foreignKey() },
		"closed":     func(r *rig, w *driver.SendWR) { r.must(r.b.mr.Close()); r.b.mr = nil },
		"no such right": func(r *rig, w *driver.SendWR) {
			w.Remote.RKey = r.b.weakKey()
		},
	} {
		for op, wr := range ops {
			t.Run(name+"/"+op, func(t *testing.T) {
				inBubble(t, rigConfig{memory: size}, func(r *rig) {
					r.a.fill(23)
					before := bytes.Clone(r.b.mem.Bytes())
					w := wr(r)
					change(r, &w)
					r.a.post(w, r.a.send(2, 0, 0))
					r.failsWith(driver.RemAccessErr)
					r.b.wantEvent(driver.EventQPAccessErr)
					if !bytes.Equal(before, r.b.mem.Bytes()) {
						t.Error("memory changed")
					}
				})
			})
		}
	}
}

// foreignKey is a key of another PD, weakKey one that grants nothing remote. Both
// are closed at the end of the test.
func (e *end) foreignKey() uint32 {
	pd, err := e.ctx.AllocPD()
	e.r.must(err)
	mr, err := pd.RegMR(e.mem, e.mem.Addr(), everything)
	e.r.must(err)
	e.r.later(func() { e.r.must(mr.Close()); e.r.must(pd.Close()) })
	k, _ := mr.Keys()
	return k
}

func (e *end) weakKey() uint32 {
	mr, err := e.pd.RegMR(e.mem, e.mem.Addr(), driver.LocalWrite)
	e.r.must(err)
	e.r.later(func() { e.r.must(mr.Close()) })
	k, _ := mr.Keys()
	return k
}

func TestR24MisalignedAtomic(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		w := r.a.add(1, 0, 1)
		w.Remote.Addr += 4
		r.a.post(w, r.a.send(2, 0, 0))
		r.failsWith(driver.RemInvReqErr)
	})
}

func TestR25ReadsInFlight(t *testing.T) {
	t.Run("none taken", func(t *testing.T) {
		inBubble(t, rigConfig{}, func(r *rig) {
			r.b.q.attr.MaxDestRdAtomic = 0
			r.a.post(r.a.read(1, 0, 8), r.a.send(2, 0, 0))
			r.failsWith(driver.RemInvReqErr)
		})
	})
	t.Run("none started", func(t *testing.T) {
		inBubble(t, rigConfig{rdAtomic: 255}, func(r *rig) {
			r.a.post(r.a.read(1, 0, 8))
			r.a.one(1, driver.LocQPOpErr)
		})
	})
	t.Run("limit", func(t *testing.T) {
		inBubble(t, rigConfig{rdAtomic: 4, timeout: 255}, func(r *rig) {
			r.b.fill(25)
			r.cut(r.b)
			for id := range uint64(9) {
				r.a.post(r.a.read(id, int(id)*8, 8))
			}
			r.settle()
			if n := len(r.sent(wire.ReadRequest)); n != 4 {
				t.Errorf("%d reads in flight, want 4", n)
			}
		})
	})
}

func TestR26ReceiveTooSmall(t *testing.T) {
	for _, n := range []int{101, 700} {
		inBubble(t, rigConfig{}, func(r *rig) {
			r.b.recv(driver.RecvWR{ID: 5, SGL: []driver.SGE{r.b.sge(0, 60), r.b.sge(60, n-61)}}, driver.RecvWR{ID: 6})
			r.a.post(r.a.send(1, 0, n), r.a.send(2, 0, 0))
			r.failsWith(driver.RemInvReqErr)
			r.b.one(5, driver.LocLenErr)
			r.b.one(6, driver.WRFlushErr)
			r.b.wantEvent(driver.EventQPReqErr)
		})
	}
}

func TestR27LocalProtection(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		bad := r.a.write(2, 0, 8)
		bad.SGL[0].LKey ^= 1
		r.a.post(r.a.write(1, 0, 8), bad, r.a.write(3, 0, 8))
		r.a.one(1, driver.Success)
		r.a.one(2, driver.LocProtErr)
		r.a.one(3, driver.WRFlushErr)
		if n := len(r.sent(wire.Write)); n != 1 {
			t.Errorf("%d packets sent, want none from the failure on", n)
		}
	})
}

func TestR28BadReceiveEntry(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		e := r.b.sge(0, 100)
		e.LKey ^= 1
		r.b.recv(driver.RecvWR{ID: 5, SGL: []driver.SGE{e}}, driver.RecvWR{ID: 6})
		r.a.post(r.a.send(1, 0, 100), r.a.send(2, 0, 0))
		r.failsWith(driver.RemOpErr)
		r.b.one(5, driver.LocProtErr)
		r.b.one(6, driver.WRFlushErr)
	})
}

func TestR29FlushInOrder(t *testing.T) {
	inBubble(t, rigConfig{timeout: 255}, func(r *rig) {
		r.cut(r.a)
		for id := range uint64(64) {
			w := r.a.write(id, 0, 8)
			if id%3 != 0 {
				w.Flags = 0
			}
			r.a.post(w)
		}
		for id := range uint64(64) {
			r.a.recv(driver.RecvWR{ID: 100 + id})
		}
		r.must(r.a.q.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
		for i, wc := range r.a.take(128) {
			want := uint64(i)
			if i >= 64 {
				want = uint64(100 + i - 64)
			}
			if wc != (driver.WC{ID: want, Status: driver.WRFlushErr, QPN: r.a.q.num}) {
				t.Fatalf("completion %d is %+v", i, wc)
			}
		}
	})
}

func TestR31PostInWrongState(t *testing.T) {
	inBubble(t, rigConfig{apart: true}, func(r *rig) {
		for _, s := range []driver.QPState{driver.StateInit, driver.StateRTR} {
			if s == driver.StateRTR {
				r.must(toRTR(r.a, r.a.q, r.b, r.b.q.num))
			}
			if n, err := r.a.q.PostSend([]driver.SendWR{r.a.write(1, 0, 8)}); n != 0 || err != driver.ErrBadState {
				t.Errorf("in %v: %d, %v", s, n, err)
			}
		}
		r.must(toRTS(r.a, r.a.q))
		r.a.none(time.Second)
	})
}

func TestR32CQOverflow(t *testing.T) {
	inBubble(t, rigConfig{cqDepth: 4}, func(r *rig) {
		for id := range uint64(8) {
			r.a.post(r.a.write(id, 0, 8))
		}
		r.settle()
		r.a.wantEvent(driver.EventCQErr)
		if r.a.state() != driver.StateErr {
			t.Errorf("state %v", r.a.state())
		}
		wcs := make([]driver.WC, 8)
		n, err := r.a.cq.Poll(wcs)
		if n != 4 || err != nil || wcs[0].ID != 0 || wcs[3].ID != 3 {
			t.Errorf("%d completions, %v: %+v", n, err, wcs[:n])
		}
		if n, err := r.a.cq.Poll(wcs); n != 0 || err != driver.ErrCQOverrun {
			t.Errorf("then %d, %v", n, err)
		}
	})
}

// Each status that a sender sees, with what the responder sees, is reached above;
// this is the one that only a bad peer makes.
func TestBadResponse(t *testing.T) {
	for _, c := range []struct {
		op wire.Opcode
		n  int
	}{{wire.RCReadResponseOnly, 7}, {wire.RCReadResponseOnly, 9}, {wire.RCReadResponseFirst, 8}, {wire.RCReadResponseMiddle, 8}, {wire.RCAtomicAck, 0}} {
		t.Run(fmt.Sprintf("%v/%d", c.op, c.n), func(t *testing.T) {
			inBubble(t, rigConfig{timeout: 255}, func(r *rig) {
				r.cut(r.a)
				r.a.post(r.a.read(1, 0, 8), r.a.send(2, 0, 0))
				r.settle()
				r.inject(r.b, r.a, c.op, 0, 0, make([]byte, c.n), nil)
				r.a.one(1, driver.BadRespErr)
				r.a.one(2, driver.WRFlushErr)
			})
		})
	}
}

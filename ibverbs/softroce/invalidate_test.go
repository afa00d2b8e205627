package softroce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

func TestR53OnTheWire(t *testing.T) {
	for _, n := range []int{0, 256, 700} {
		inBubble(t, rigConfig{}, func(r *rig) {
			at := r.b.window().now(0, 4096, windowAll)
			r.a.fill(53)
			r.b.recv(driver.RecvWR{ID: 2, SGL: []driver.SGE{r.b.sge(0, 1024)}})
			r.a.post(r.a.sendInv(1, 0, n, at.RKey))
			r.a.one(1, driver.Success)
			wc := r.b.one(2, driver.Success)
			if wc.Op != driver.WCRecv || wc.Flags != driver.WCWithInv || wc.Imm != at.RKey || wc.ByteLen != uint32(n) {
				t.Errorf("%+v, want key %#x", wc, at.RKey)
			}
			r.same(0, n)
			sent := r.sent(wire.Send)
			for i, p := range sent {
				if last := i == len(sent)-1; p.op.HasInv() != last {
					t.Errorf("packet %d of %d is %v", i, len(sent), p.op)
				}
			}
			// The key follows the BTH, most significant byte first.
			if got := binary.BigEndian.Uint32(sent[len(sent)-1].data[12:]); got != at.RKey {
				t.Errorf("key %#x on the wire, want %#x", got, at.RKey)
			}
		})
	}
}

// R53: a key that may not be invalidated ends the receive in error, and the QP with
// it, without a NAK. The message counts as sent; what the peer sends then is not
// answered.
func TestR53KeysThatMayNotBeInvalidated(t *testing.T) {
	for name, key := range map[string]func(r *rig) uint32{
		"MR":                   func(r *rig) uint32 { return r.b.key() },
		"MR of another domain": func(r *rig) uint32 { return r.b.register(r.b.otherPD(), everything).key },
		"zero":                 func(*rig) uint32 { return 0 },
		"unknown":              func(*rig) uint32 { return 0xfffffff0 },
		"window that is free":  func(r *rig) uint32 { return r.b.window().RKey() },
		"window that was bound": func(r *rig) uint32 {
			w := r.b.window()
			at := w.now(0, 8, windowAll)
			r.b.post(invalidate(1, at.RKey))
			r.b.one(1, driver.Success)
			return at.RKey
		},
		"key that was before": func(r *rig) uint32 { w := r.b.window(); w.now(0, 8, windowAll); return w.key - 1 },
		"window of another QP": func(r *rig) uint32 {
			_, qs := r.pairs(2)
			w := r.b.window()
			_, err := qs[1].PostSend([]driver.SendWR{w.bind(1, 0, 8, windowAll)})
			r.must(err)
			r.b.one(1, driver.Success)
			r.later(func() {
				if w.owner.Load() != nil && w.owner.Load() != qs[1] {
					r.t.Error("the window of another QP was taken")
				}
			})
			return w.key
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, rigConfig{retryCnt: 1}, func(r *rig) {
				k := key(r)
				r.b.recv(driver.RecvWR{ID: 50, SGL: []driver.SGE{r.b.sge(0, 1024)}}, driver.RecvWR{ID: 51})
				before := r.b.q.e.mws.len() + r.b.q.e.mrs.len()
				r.a.post(r.a.sendInv(1, 0, 700, k), r.a.write(2, 0, 8))
				r.a.one(1, driver.Success)
				r.b.one(50, driver.RemInvReqErr)
				r.b.one(51, driver.WRFlushErr)
				r.a.one(2, driver.RetryExcErr)
				if naks := r.packets(func(p seenPacket) bool { return p.from == 'b' && p.op == wire.RCAck && !p.syndrome.IsAck() }); len(naks) > 0 {
					t.Errorf("NAKs %+v", naks)
				}
				if r.b.state() != driver.StateErr {
					t.Errorf("state %v", r.b.state())
				}
				r.b.wantEvent(driver.EventQPAccessErr)
				if after := r.b.q.e.mws.len() + r.b.q.e.mrs.len(); after != before {
					t.Errorf("%d keys were open, %d are", before, after)
				}
			})
		})
	}
}

// R53 and R4: the same message again does nothing, even if the window is bound again
// with the same key by then.
func TestR53DuplicateInvalidatesNothing(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		w := r.b.window()
		at := w.now(0, 4096, windowAll)
		r.b.recv(driver.RecvWR{ID: 2}, driver.RecvWR{ID: 3})
		r.a.post(r.a.sendInv(1, 0, 0, at.RKey))
		r.a.one(1, driver.Success)
		r.b.one(2, driver.Success)
		again := r.sent(wire.Send)[0]
		for _, bound := range []bool{false, true} {
			if bound {
				w.low--
				if got := w.now(0, 4096, windowAll); got != at {
					t.Fatalf("bound with %+v, want %+v again", got, at)
				}
			}
			r.forget()
			r.sim.Inject(again.src, r.b.addr, again.data)
			r.settle()
			acks := r.packets(func(p seenPacket) bool { return p.from == 'b' && p.op == wire.RCAck })
			if len(acks) != 1 || !acks[0].syndrome.IsAck() {
				t.Errorf("answered by %+v, want an ACK", acks)
			}
			if got := w.owner.Load() != nil; got != bound {
				t.Errorf("bound %v, want %v", got, bound)
			}
			r.b.none(time.Millisecond)
		}
		wr := r.a.write(4, 0, 4096)
		wr.Remote = at
		r.a.post(wr)
		r.a.one(4, driver.Success)
	})
}

// R53 and R17: a message that has to wait for its receive invalidates when it has it.
func TestR53WaitsForItsReceive(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		w := r.b.window()
		at := w.now(0, 4096, windowAll)
		r.a.post(r.a.sendInv(1, 0, 8, at.RKey))
		r.b.none(20 * time.Millisecond)
		if w.owner.Load() == nil {
			t.Error("invalidated before its receive was there")
		}
		r.b.recv(driver.RecvWR{ID: 2, SGL: []driver.SGE{r.b.sge(0, 8)}})
		r.b.one(2, driver.Success)
		r.a.one(1, driver.Success)
		if w.owner.Load() != nil {
			t.Error("still bound")
		}
	})
}

// R53 over networks that lose, double, reorder and damage: a window is bound,
// announced, written through and taken back, again and again with keys that come
// around, and opens for nobody else in between.
func TestR53Faults(t *testing.T) {
	for _, f := range []Faults{
		{Loss: 0.05}, {Duplicate: 0.2}, {Reorder: 0.1},
		{Loss: 0.05, Duplicate: 0.1, Reorder: 0.05, Corrupt: 0.02, Delay: 10 * time.Microsecond},
	} {
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			for seed := range uint64(*matrixSeeds) {
				inBubble(t, rigConfig{sim: SimConfig{Seed: seed, Faults: f, Split: seed%2 == 0}, timeout: 8, retryLimit: 64, v6: true, memory: 64 << 10}, func(r *rig) {
					g := rand.New(rand.NewPCG(seed, 53))
					w := r.b.window()
					w.low = 200
					r.a.fill(seed)
					for i := range 100 {
						n := 1 + g.IntN(3000)
						off := g.IntN(64<<10 - n)
						bind, offer := w.bind(1, off, n, windowAll), r.b.send(2, 0, 8)
						at := bind.Bind.Remote()
						r.a.recv(driver.RecvWR{ID: 3, SGL: []driver.SGE{r.a.sge(0, 8)}})
						r.b.recv(driver.RecvWR{ID: 4})
						r.b.post(bind, offer)
						r.a.one(3, driver.Success)
						wr := r.a.write(5, 0, n)
						wr.Remote = at
						r.a.post(wr, r.a.sendInv(6, 0, 0, at.RKey))
						r.a.one(5, driver.Success)
						r.a.one(6, driver.Success)
						for _, wc := range r.b.take(3) {
							if wc.Status != driver.Success || wc.ID == 4 && wc.Imm != at.RKey {
								t.Fatalf("seed %d, round %d: %+v", seed, i, wc)
							}
						}
						if !bytes.Equal(r.a.bytes(0, n), r.b.bytes(off, n)) {
							t.Fatalf("seed %d, round %d: what was written is not there", seed, i)
						}
						if w.owner.Load() != nil {
							t.Fatalf("seed %d, round %d: still bound", seed, i)
						}
					}
				})
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// Windows are closed by other goroutines while they are bound, freed and written
// through, for the race detector.
func TestWindowsUnderLoad(t *testing.T) {
	for range 20 {
		inBubble(t, rigConfig{memory: 64 << 10}, func(r *rig) {
			w := r.b.window()
			at := w.now(0, 64<<10, windowAll)
			var closer sync.WaitGroup
			closer.Go(func() {
				runtime.Gosched()
				r.must(w.Close())
				r.must(w.reg.Close())
			})
			for id := range uint64(8) {
				wr := r.a.write(id, 0, 32<<10)
				wr.Remote = at
				r.a.post(wr)
			}
			failed := false
			for _, wc := range r.a.take(8) {
				switch {
				case wc.Status == driver.Success && !failed, wc.Status == driver.WRFlushErr && failed:
				case wc.Status == driver.RemAccessErr && !failed:
					failed = true
				default:
					t.Errorf("%+v", wc)
				}
			}
			closer.Wait()
		})
	}
}

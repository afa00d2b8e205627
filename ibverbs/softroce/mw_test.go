package softroce

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// window is a window of an end and an MR of its memory without remote rights.
type window struct {
	*mw
	e   *end
	reg *mr
	low uint8 // the bits of the key that were used last
}

func (e *end) window() *window {
	m := e.register(e.pd, driver.LocalWrite|driver.MWBind)
	return &window{mw: e.allocMW(e.pd), e: e, reg: m}
}

// before is later for what goes before all that was made before it.
func (r *rig) before(f func()) { r.atEnd = slices.Insert(r.atEnd, 0, f) }

// allocMW and register free what they made when the QPs are closed, unless the test
// did.
func (e *end) allocMW(p driver.PD) *mw {
	w, err := p.AllocMW()
	e.r.must(err)
	e.r.before(func() {
		if !w.(*mw).shut.Load() {
			e.r.must(w.Close())
		}
	})
	return w.(*mw)
}

func (e *end) register(p driver.PD, a driver.Access) *mr {
	m, err := p.RegMR(e.mem, e.mem.Addr(), a)
	e.r.must(err)
	e.r.before(func() {
		if m.(*mr).users.Load()&closing == 0 {
			e.r.must(m.Close())
		}
	})
	return m.(*mr)
}

// bind is a request for bytes off to off+n with the next key.
func (w *window) bind(id uint64, off, n int, a driver.Access) driver.SendWR {
	w.low++
	return driver.SendWR{ID: id, Op: driver.OpBindMW, Flags: driver.Signaled, Bind: &driver.BindMW{
		MW: w.mw, MR: w.reg, Addr: w.e.mem.Addr() + uint64(off), Length: uint64(n), Access: a, RKey: w.RKey() | uint32(w.low)}}
}

// now binds and waits, and gives what a peer needs.
func (w *window) now(off, n int, a driver.Access) driver.Remote {
	w.e.r.t.Helper()
	wr := w.bind(0xb1d, off, n, a)
	w.e.post(wr)
	w.e.one(0xb1d, driver.Success)
	return wr.Bind.Remote()
}

func invalidate(id uint64, key uint32) driver.SendWR {
	return driver.SendWR{ID: id, Op: driver.OpLocalInv, Flags: driver.Signaled, Imm: key}
}

func (e *end) sendInv(id uint64, off, n int, key uint32) driver.SendWR {
	w := e.send(id, off, n)
	w.Op, w.Imm = driver.OpSendWithInv, key
	return w
}

const windowAll = driver.RemoteWrite | driver.RemoteRead | driver.RemoteAtomic

func TestWindowBounds(t *testing.T) {
	const off, size = 1000, 5000
	access := func(r *rig, op driver.Opcode, at driver.Remote, n int) {
		w := r.a.write(1, 0, n)
		w.Op, w.Remote, w.CompareAdd = op, at, 1
		r.a.post(w)
	}
	for _, op := range []driver.Opcode{driver.OpWrite, driver.OpRead, driver.OpWriteWithImm, driver.OpFetchAdd} {
		for _, c := range []struct {
			from, n int
			fits    bool
		}{{0, 1, true}, {0, size, true}, {size - 1, 1, true}, {4000, 1000, true}, {0, size + 1, false}, {-1, 8, false}, {size, 1, false}, {size - 7, 8, false}} {
			t.Run(fmt.Sprintf("%v/%d+%d", op, c.from, c.n), func(t *testing.T) {
				if op == driver.OpFetchAdd {
					c.n, c.from = 8, c.from&^7
					c.fits = c.from >= 0 && c.from <= size-8
				}
				inBubble(t, rigConfig{}, func(r *rig) {
					w := r.b.window()
					at := w.now(off, size, windowAll)
					at.Addr += uint64(c.from)
					r.b.recv(driver.RecvWR{ID: 5})
					before := bytes.Clone(r.b.mem.Bytes())
					r.a.fill(3)
					access(r, op, at, c.n)
					if c.fits {
						r.a.one(1, driver.Success)
						return
					}
					r.a.one(1, driver.RemAccessErr)
					if !bytes.Equal(before, r.b.mem.Bytes()) {
						t.Error("memory changed")
					}
					r.b.wantEvent(driver.EventQPAccessErr)
				})
			})
		}
	}
	t.Run("rights", func(t *testing.T) {
		for op, need := range map[driver.Opcode]driver.Access{driver.OpWrite: driver.RemoteWrite, driver.OpRead: driver.RemoteRead, driver.OpFetchAdd: driver.RemoteAtomic} {
			for _, has := range []bool{true, false} {
				inBubble(t, rigConfig{}, func(r *rig) {
					rights := windowAll &^ need
					if has {
						rights = need
					}
					access(r, op, r.b.window().now(off, size, rights), 8)
					want := driver.RemAccessErr
					if has {
						want = driver.Success
					}
					r.a.one(1, want)
				})
			}
		}
	})
}

func TestBindErrors(t *testing.T) {
	for name, bad := range map[string]func(r *rig, w *window) driver.SendWR{
		"change of an MR that is only read": func(r *rig, w *window) driver.SendWR {
			w.reg = r.b.register(r.b.pd, driver.MWBind)
			return w.bind(1, 0, 8, driver.RemoteAtomic)
		},
		"MR without the right": func(r *rig, w *window) driver.SendWR {
			w.reg = r.b.mr.(*mr)
			return w.bind(1, 0, 8, driver.RemoteRead)
		},
		"MR of another domain": func(r *rig, w *window) driver.SendWR {
			w.reg = r.b.register(r.b.otherPD(), driver.LocalWrite|driver.MWBind)
			return w.bind(1, 0, 8, driver.RemoteRead)
		},
		"window of another domain": func(r *rig, w *window) driver.SendWR {
			w.mw = r.b.allocMW(r.b.otherPD())
			return w.bind(1, 0, 8, driver.RemoteRead)
		},
		"bound to another QP": func(r *rig, w *window) driver.SendWR {
			_, qs := r.pairs(2)
			wr := w.bind(7, 0, 8, driver.RemoteRead)
			_, err := qs[1].PostSend([]driver.SendWR{wr})
			r.must(err)
			r.b.one(7, driver.Success)
			return w.bind(1, 0, 8, driver.RemoteRead)
		},
		"no bytes": func(_ *rig, w *window) driver.SendWR { return w.bind(1, 0, 0, driver.RemoteRead) },
		"range that wraps": func(_ *rig, w *window) driver.SendWR {
			wr := w.bind(1, 8, 0, driver.RemoteRead)
			wr.Bind.Length = ^uint64(0) - 3
			return wr
		},
		"window that was closed": func(r *rig, w *window) driver.SendWR {
			r.must(w.Close())
			return w.bind(1, 0, 8, driver.RemoteRead)
		},
		"MR that was closed": func(r *rig, w *window) driver.SendWR {
			r.must(w.reg.Close())
			return w.bind(1, 0, 8, driver.RemoteRead)
		},
		"invalidate nothing":    func(_ *rig, _ *window) driver.SendWR { return invalidate(1, 0) },
		"invalidate a free one": func(_ *rig, w *window) driver.SendWR { return invalidate(1, w.RKey()) },
		"invalidate an old key": func(_ *rig, w *window) driver.SendWR {
			w.now(0, 8, windowAll)
			return invalidate(1, w.key-1)
		},
		"invalidate an MR": func(r *rig, _ *window) driver.SendWR { return invalidate(1, r.b.key()) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, rigConfig{}, func(r *rig) {
				wr := bad(r, r.b.window())
				r.b.post(wr, r.b.send(2, 0, 0))
				r.b.one(1, driver.MWBindErr)
				r.b.one(2, driver.WRFlushErr)
				if r.b.state() != driver.StateErr || len(r.packets(func(p seenPacket) bool { return p.from == 'b' })) > 0 {
					t.Error("the queue pair goes on")
				}
			})
		})
	}
}

func (e *end) otherPD() driver.PD {
	p, err := e.ctx.AllocPD()
	e.r.must(err)
	e.r.before(func() { e.r.must(p.Close()) })
	return p
}

// What never could be bound is refused when it is posted.
func TestBindRefused(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		foreign := r.a.window()
		for name, change := range map[string]func(wr *driver.SendWR){
			"no bind":         func(wr *driver.SendWR) { wr.Bind = nil },
			"no window":       func(wr *driver.SendWR) { wr.Bind.MW = nil },
			"no MR":           func(wr *driver.SendWR) { wr.Bind.MR = nil },
			"foreign window":  func(wr *driver.SendWR) { wr.Bind.MW = foreign.mw },
			"foreign MR":      func(wr *driver.SendWR) { wr.Bind.MR = foreign.reg },
			"another's key":   func(wr *driver.SendWR) { wr.Bind.RKey ^= 1 << 8 },
			"rights":          func(wr *driver.SendWR) { wr.Bind.Access = driver.LocalWrite },
			"zero-based":      func(wr *driver.SendWR) { wr.Bind.Access |= driver.ZeroBased },
			"with data":       func(wr *driver.SendWR) { wr.SGL = []driver.SGE{r.b.sge(0, 8)} },
			"inline":          func(wr *driver.SendWR) { wr.Inline = []byte{1} },
			"unbind and data": func(wr *driver.SendWR) { *wr = invalidate(1, 5); wr.Inline = []byte{1} },
		} {
			wr := r.b.window().bind(1, 0, 8, driver.RemoteRead)
			change(&wr)
			if n, err := r.b.q.PostSend([]driver.SendWR{wr}); n != 0 || !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s: %d posted, %v", name, n, err)
			}
		}
		r.b.none(time.Millisecond)
	})
}

// Binds and invalidations complete in their place among what is sent, are done when
// their turn to be sent has come, and once, whatever is lost and sent again.
func TestLocalRequestsInOrder(t *testing.T) {
	for seed := range uint64(*matrixSeeds * 5) {
		inBubble(t, rigConfig{sim: SimConfig{Seed: seed, Faults: Faults{Loss: 0.1, Duplicate: 0.05, Reorder: 0.05}}, timeout: 8, retryLimit: 64, v6: true, memory: 32 << 10}, func(r *rig) {
			g := rand.New(rand.NewPCG(seed, 7))
			w := r.b.window()
			bound := false
			const n = 40
			kinds := make([]driver.WCOpcode, n)
			for id := range uint64(n) {
				var wr driver.SendWR
				switch k := g.IntN(4); {
				case k == 0 && bound:
					wr, bound = invalidate(id, w.RKey()|uint32(w.low)), false
				case k == 0:
					wr, bound = w.bind(id, g.IntN(1000), 1+g.IntN(1000), windowAll), true
				case k == 1:
					wr = r.b.read(id, g.IntN(1000), g.IntN(5000))
				default:
					wr = r.b.write(id, g.IntN(1000), g.IntN(5000))
				}
				if g.IntN(4) == 0 {
					wr.Flags |= driver.Fence
				}
				kinds[id] = completionOf(wr.Op)
				r.b.post(wr)
			}
			for id, wc := range r.b.take(n) {
				if wc.ID != uint64(id) || wc.Status != driver.Success || wc.Op != kinds[id] {
					t.Fatalf("seed %d: completion %d is %+v, want %v", seed, id, wc, kinds[id])
				}
			}
			if (w.owner.Load() == r.b.q) != bound {
				t.Errorf("seed %d: bound %v, want %v", seed, !bound, bound)
			}
		})
	}
}

func TestBindWaitsForFence(t *testing.T) {
	for _, fence := range []driver.SendFlags{0, driver.Fence} {
		inBubble(t, rigConfig{}, func(r *rig) {
			mend := r.cut(r.a)
			w := r.b.window()
			wr := w.bind(2, 0, 8, windowAll)
			wr.Flags |= fence
			r.b.post(r.b.read(1, 0, 8), wr)
			r.b.none(time.Millisecond)
			if bound := w.owner.Load() != nil; bound != (fence == 0) {
				t.Errorf("fence %v: bound %v during the read", fence, bound)
			}
			mend()
			r.b.one(1, driver.Success)
			r.b.one(2, driver.Success)
		})
	}
	t.Run("not while the queue is drained", func(t *testing.T) {
		inBubble(t, rigConfig{}, func(r *rig) {
			w := r.b.window()
			r.must(r.b.q.Modify(&driver.QPAttr{State: driver.StateSQD}, driver.QPStateMask))
			r.b.post(w.bind(1, 0, 8, windowAll))
			r.b.none(time.Millisecond)
			if w.owner.Load() != nil {
				t.Error("bound in SQD")
			}
			r.must(r.b.q.Modify(&driver.QPAttr{State: driver.StateRTS}, driver.QPStateMask))
			r.b.one(1, driver.Success)
		})
	})
	t.Run("not in the error state", func(t *testing.T) {
		inBubble(t, rigConfig{}, func(r *rig) {
			w := r.b.window()
			r.must(r.b.q.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
			r.b.post(w.bind(1, 0, 8, windowAll))
			r.b.one(1, driver.WRFlushErr)
			if w.owner.Load() != nil {
				t.Error("bound in ERR")
			}
		})
	})
}

// Windows go with the connection of the queue pair that bound them; their MRs stay
// until then.
func TestWindowsGoWithTheirQP(t *testing.T) {
	for name, end := range map[string]func(r *rig){
		"reset": func(r *rig) { r.must(r.b.q.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask)) },
		"close": func(r *rig) { r.must(r.b.q.Close()); r.b.q = r.b.newQP(r.b.cq) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, rigConfig{}, func(r *rig) {
				_, qs := r.pairs(2)
				w := []*window{r.b.window(), r.b.window(), r.b.window()}
				for _, w := range w {
					w.now(0, 100, windowAll)
					if err := w.reg.Close(); !errors.Is(err, driver.ErrBusy) {
						t.Errorf("Close of an MR with a window: %v", err)
					}
				}
				r.b.post(invalidate(1, w[1].key)) // the one in the middle
				r.b.one(1, driver.Success)
				end(r)
				for _, w := range w {
					if w.owner.Load() != nil {
						t.Error("still bound")
					}
				}
				_, err := qs[1].PostSend([]driver.SendWR{w[0].bind(3, 0, 100, windowAll)})
				r.must(err)
				r.b.one(3, driver.Success)
				for _, w := range w[1:] {
					r.must(w.reg.Close())
				}
			})
		})
	}
}

// R48: a window is invalidated, or closed, while its peer reads through it.
func TestR48WindowEndsDuringARead(t *testing.T) {
	const size = 4 << 20
	for name, end := range map[string]func(r *rig, w *window){
		"invalidated": func(r *rig, w *window) { r.b.post(invalidate(9, w.key)); r.b.one(9, driver.Success) },
		"closed":      func(r *rig, w *window) { r.must(w.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, rigConfig{memory: size, mtu: driver.MTU4096, sim: SimConfig{Faults: Faults{Delay: 50 * time.Microsecond}}}, func(r *rig) {
				w := r.b.window()
				at := w.now(0, size, windowAll)
				r.b.fill(48)
				wr := r.a.read(1, 0, size)
				wr.Remote = at
				r.a.post(wr, r.a.send(2, 0, 0))
				time.Sleep(500 * time.Microsecond)
				end(r, w)
				r.must(w.reg.Close())
				clear(r.b.mem.Bytes())
				r.failsWith(driver.RemAccessErr)
			})
		})
	}
}

// An answer that comes after a retransmission has begun may complete what lies beyond
// its cursor: a write, the bind behind it and the read behind that.
func TestBindBeyondTheCursor(t *testing.T) {
	inBubble(t, rigConfig{sim: SimConfig{Split: true}}, func(r *rig) {
		w := r.a.window()
		mend := r.cut(r.b)
		r.a.post(r.a.write(1, 0, 600), w.bind(2, 0, 8, windowAll), r.a.read(3, 1024, 8))
		r.settle()
		late := r.packets(func(p seenPacket) bool { return p.from == 'b' && p.op.Operation() == wire.ReadResponse })
		time.Sleep(wire.AckTime(14) + time.Millisecond)
		r.settle()
		if n := r.a.counters().timeouts.Load(); n != 1 || r.a.q.sq.next != 0 || len(late) != 1 {
			t.Fatalf("%d time-outs, cursor at %d, %d answers: not what the test needs", n, r.a.q.sq.next, len(late))
		}
		r.sim.Inject(late[0].src, r.a.addr, late[0].data)
		for id := range uint64(3) {
			r.a.one(id+1, driver.Success)
		}
		mend()
	})
}

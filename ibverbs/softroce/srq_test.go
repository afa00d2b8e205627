package softroce

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

const srqCookie = 0x5105

// pairs is n connections, with QPs of b that share its queue, the first pair that of
// the rig.
func (r *rig) pairs(n int) (as, bs []*qp) {
	as, bs = []*qp{r.a.q}, []*qp{r.b.q}
	for range n - 1 {
		qa, qb := r.a.newQP(r.a.cq), r.b.newQP(r.b.cq)
		join(r.a, qa, r.b, qb)
		join(r.b, qb, r.a, qa)
		as, bs = append(as, qa), append(bs, qb)
		r.later(func() { r.must(qa.Close()); r.must(qb.Close()) })
	}
	return as, bs
}

// share posts n receives of b's queue from ID first on, each into its slot of size
// bytes.
func (e *end) share(first, n, size int) {
	e.r.t.Helper()
	for id := first; id < first+n; id++ {
		if k, err := e.srq.PostRecv([]driver.RecvWR{{ID: uint64(id), SGL: []driver.SGE{e.sge(id*size, size)}}}); k != 1 || err != nil {
			e.r.t.Fatalf("receive %d: %d, %v", id, k, err)
		}
	}
}

// events counts the events of a type that are there.
func (e *end) events(t driver.EventType, cookie uint64) (n int) {
	for ev := e.event(); ev.Type != 255; ev = e.event() {
		if ev.Type == t && ev.Cookie == cookie {
			n++
		}
	}
	return n
}

func TestR56LimitFiresOnce(t *testing.T) {
	inBubble(t, rigConfig{srq: driver.SRQConfig{WR: 16, SGE: 1, Limit: 3, Cookie: srqCookie}}, func(r *rig) {
		use := func(n, want int) {
			t.Helper()
			for range n {
				r.a.post(r.a.send(1, 0, 8))
				r.a.one(1, driver.Success)
				r.b.take(1)
			}
			if got := r.b.events(driver.EventSRQLimitReached, srqCookie); got != want {
				t.Errorf("%d events of the limit, want %d", got, want)
			}
		}
		use(0, 0) // empty from the start, but nobody took anything
		r.b.share(0, 6, 64)
		use(3, 0)
		use(1, 1)
		use(1, 0)
		if a, _ := r.b.srq.Query(); a.Limit != 0 {
			t.Errorf("still armed: %+v", a)
		}
		// One is left. Arming above that raises it at once, and once.
		r.must(r.b.srq.SetLimit(2))
		use(0, 1)
		use(1, 0)
		r.must(r.b.srq.SetLimit(0))
		r.b.share(0, 4, 64)
		use(4, 0)
		for _, bad := range []int{-1, 17} {
			if err := r.b.srq.SetLimit(bad); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("SetLimit(%d): %v", bad, err)
			}
		}
	})
}

// A queue pair goes to the error state, in three ways, with a message half there:
// its receive is flushed, the rest stays for others, and the event comes after.
func TestR56LastWQEReached(t *testing.T) {
	for name, breaks := range map[string]func(r *rig){
		"modify": func(r *rig) {
			r.must(r.b.q.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
		},
		"invalid request": func(r *rig) { r.forge(wire.RCSendFirst, 0, 1, make([]byte, 256), nil) },
		"receive without memory": func(r *rig) {
			r.b.q.resp.recv.sgl[0].LKey++
			r.forge(wire.RCSendMiddle, 0, 1, make([]byte, 256), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, rigConfig{srq: driver.SRQConfig{WR: 16, SGE: 1}}, func(r *rig) {
				as, bs := r.pairs(2)
				r.b.share(0, 4, 1024)
				r.forge(wire.RCSendFirst, 0, 0, make([]byte, 256), nil)
				r.b.none(time.Millisecond)
				breaks(r)
				want := driver.WRFlushErr
				if name == "receive without memory" {
					want = driver.LocProtErr
				}
				if wc := r.b.one(0, want); wc.QPN != r.b.q.num {
					t.Errorf("%+v, want QP %#x", wc, r.b.q.num)
				}
				r.must(r.b.q.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
				if got := r.b.events(driver.EventQPLastWQEReached, 7); got != 1 {
					t.Errorf("%d events, want one", got)
				}
				if n, err := r.b.q.PostRecv([]driver.RecvWR{{ID: 9}}); n != 0 || !errors.Is(err, syscall.EINVAL) {
					t.Errorf("posted to the QP: %d, %v", n, err)
				}
				for i := 1; i < 4; i++ {
					_, err := as[1].PostSend([]driver.SendWR{r.a.send(uint64(i), 0, 8)})
					r.must(err)
					if wc := r.b.one(uint64(i), driver.Success); wc.QPN != bs[1].num {
						t.Errorf("%+v, want QP %#x", wc, bs[1].num)
					}
					r.a.one(uint64(i), driver.Success)
				}
				r.b.none(time.Millisecond)
				// Once more in its next life.
				r.must(r.b.q.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask))
				r.must(r.b.q.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
				if got := r.b.events(driver.EventQPLastWQEReached, 7); got != 1 {
					t.Errorf("%d events after a reset, want one", got)
				}
			})
		})
	}
}

// A QP without a shared queue has no such event.
func TestR56NoEventWithoutSRQ(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		r.must(r.b.q.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
		if got := r.b.events(driver.EventQPLastWQEReached, 7); got != 0 {
			t.Errorf("%d events", got)
		}
	})
}

func TestR56Resize(t *testing.T) {
	for first := range 9 { // wherever the ring stands
		inBubble(t, rigConfig{srq: driver.SRQConfig{WR: 8, SGE: 1}}, func(r *rig) {
			id := 0
			use := func(n int) {
				t.Helper()
				for range n {
					r.a.post(r.a.send(1, 0, 8))
					r.a.one(1, driver.Success)
					r.b.one(uint64(id), driver.Success)
					id++
				}
			}
			r.b.share(0, 8, 64)
			use(first)
			r.b.share(8, first, 64)
			if err := r.b.srq.Resize(7); first < 9 && !errors.Is(err, syscall.EINVAL) {
				t.Errorf("made smaller than what is posted: %v", err)
			}
			use(3)
			r.must(r.b.srq.SetLimit(5))
			if err := r.b.srq.Resize(4); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("made smaller than its limit: %v", err)
			}
			r.must(r.b.srq.SetLimit(0))
			r.must(r.b.srq.Resize(100))
			r.b.share(8+first, 100, 64)
			use(60)
			r.must(r.b.srq.Resize(48))
			if c := r.b.srq.Cap(); c.WR != 64 || c.SGE != 1 {
				t.Errorf("sizes %+v", c)
			}
			use(45)
			for _, bad := range []int{0, -1, maxSRQWR + 1} {
				if err := r.b.srq.Resize(bad); !errors.Is(err, syscall.EINVAL) {
					t.Errorf("Resize(%d): %v", bad, err)
				}
			}
		})
	}
}

// Receives name memory of the domain of their queue, whichever that of the QP is.
func TestR56DomainOfTheQueue(t *testing.T) {
	inBubble(t, rigConfig{apart: true}, func(r *rig) {
		other, err := r.b.ctx.AllocPD()
		r.must(err)
		s, err := other.CreateSRQ(driver.SRQConfig{WR: 4, SGE: 1})
		r.must(err)
		m, err := other.RegMR(r.b.mem, r.b.mem.Addr(), driver.LocalWrite)
		r.must(err)
		r.later(func() { r.must(m.Close()); r.must(s.Close()); r.must(other.Close()) })
		r.must(r.b.q.Close())
		r.b.srq = s.(*srq)
		r.b.q = r.b.newQP(r.b.cq)
		r.b.srq = nil
		r.a.connect(r.b)
		r.b.connect(r.a)
		key, _ := m.Keys()
		r.a.fill(1)
		for _, c := range []struct {
			key  uint32
			want driver.Status
		}{{key, driver.Success}, {r.b.key(), driver.LocProtErr}} {
			_, err = s.PostRecv([]driver.RecvWR{{ID: 1, SGL: []driver.SGE{{Addr: r.b.mem.Addr(), Length: 64, LKey: c.key}}}})
			r.must(err)
			r.a.post(r.a.send(2, 0, 64))
			r.b.one(1, c.want)
			r.a.take(1)
		}
		r.same(0, 64)
		if err := s.Close(); !errors.Is(err, driver.ErrBusy) {
			t.Errorf("Close of a queue in use: %v", err)
		}
	})
}

// Several QPs take from a queue that is mostly empty, over networks that lose, double
// and reorder, while it is posted to, resized and armed: each receive is used once,
// each message arrives once, in the order of its QP, unharmed.
func TestR56Faults(t *testing.T) {
	const pairs, messages, slots, size = 3, 40, 5, 2048
	for _, f := range []Faults{
		{}, {Loss: 0.05}, {Duplicate: 0.2}, {Reorder: 0.1},
		{Loss: 0.05, Duplicate: 0.1, Reorder: 0.05, Corrupt: 0.02, Delay: 10 * time.Microsecond},
	} {
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			for seed := range uint64(*matrixSeeds) {
				inBubble(t, rigConfig{
					sim: SimConfig{Seed: seed, Faults: f, Split: seed%2 == 0}, srq: driver.SRQConfig{WR: slots, SGE: 1, Cookie: srqCookie},
					timeout: 8, retryLimit: 64, v6: true, memory: 64 << 10, depth: 64,
				}, func(r *rig) {
					g := rand.New(rand.NewPCG(seed, 56))
					as, bs := r.pairs(pairs)
					r.a.fill(seed)
					number := map[uint32]int{}
					want := make([][][]byte, pairs)
					for i, q := range bs {
						number[q.num] = i
					}
					for i, q := range as {
						for id := range messages {
							at, n := g.IntN(60<<10), 4+g.IntN(size-4)
							want[i] = append(want[i], bytes.Clone(r.a.bytes(at, n)))
							_, err := q.PostSend([]driver.SendWR{r.a.send(uint64(id), at, n)})
							r.must(err)
						}
					}
					free, next := make(chan int, slots), [pairs]int{}
					var poster sync.WaitGroup
					poster.Go(func() {
						for id := range free {
							time.Sleep(time.Duration(id) * 10 * time.Microsecond)
							r.b.share(id, 1, size)
							if id == 3 {
								r.must(r.b.srq.Resize(slots + id))
								r.must(r.b.srq.SetLimit(1))
							}
						}
					})
					for id := range slots {
						free <- id
					}
					for range pairs * messages {
						wc := r.b.take(1)[0]
						i, ok := number[wc.QPN]
						if wc.Status != driver.Success || !ok || next[i] >= messages || wc.ID >= slots {
							t.Fatalf("seed %d: %+v", seed, wc)
						}
						if got := r.b.bytes(int(wc.ID)*size, int(wc.ByteLen)); !bytes.Equal(got, want[i][next[i]]) {
							t.Fatalf("seed %d: message %d of QP %d is wrong, %d bytes", seed, next[i], i, len(got))
						}
						next[i]++
						free <- int(wc.ID)
					}
					close(free)
					poster.Wait()
					for _, wc := range r.a.take(pairs * messages) {
						if wc.Status != driver.Success {
							t.Fatalf("seed %d: %+v", seed, wc)
						}
					}
					r.b.none(time.Second)
				})
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// QPs are made, used and closed while others take from the same queue: none loses
// another's receives.
func TestR56QPsComeAndGo(t *testing.T) {
	inBubble(t, rigConfig{srq: driver.SRQConfig{WR: 64, SGE: 1}}, func(r *rig) {
		r.pairs(1)
		var posted, taken uint64
		recv := func() {
			_, err := r.b.srq.PostRecv([]driver.RecvWR{{ID: posted, SGL: []driver.SGE{r.b.sge(0, 1024)}}})
			r.must(err)
			posted++
		}
		for range 32 {
			recv()
		}
		for round := range 50 {
			qa, qb := r.a.newQP(r.a.cq), r.b.newQP(r.b.cq)
			join(r.a, qa, r.b, qb)
			join(r.b, qb, r.a, qa)
			for i, q := range []*qp{qa, r.a.q, qa, r.a.q} {
				binary.NativeEndian.PutUint64(r.a.bytes(0, 8), uint64(round))
				_, err := q.PostSend([]driver.SendWR{r.a.send(uint64(i), 0, 8)})
				r.must(err)
				r.a.one(uint64(i), driver.Success)
			}
			// Two completions of the QP that stays, and two that go with the other.
			r.must(qb.Close())
			r.must(qa.Close())
			for _, wc := range r.b.take(2) {
				if wc.QPN != r.b.q.num || wc.Status != driver.Success {
					t.Fatalf("round %d: %+v", round, wc)
				}
			}
			r.b.none(0)
			taken += 4
			if left := r.b.srq.ring.posted - r.b.srq.ring.done; left != posted-taken {
				t.Fatalf("round %d: %d receives are left, want %d", round, left, posted-taken)
			}
			for range 4 {
				recv()
			}
		}
	})
}

// Unreliable QPs take from a shared queue too, also of one that a connection uses.
func TestR56UnreliableTypes(t *testing.T) {
	for _, typ := range []driver.QPType{driver.UC, driver.UD} {
		inBubble(t, rigConfig{typ: typ, srq: driver.SRQConfig{WR: 8, SGE: 1, Limit: 3, Cookie: srqCookie}}, func(r *rig) {
			const size = 1024
			r.a.fill(uint64(typ))
			to := r.a.handle()
			r.b.share(0, 4, size)
			for id := range 3 {
				wr := r.a.send(9, 0, 100+id)
				skip := 0
				if typ == driver.UD {
					wr, skip = r.a.datagram(to, 9, 0, 100+id), 40
				}
				r.a.post(wr)
				r.a.one(9, driver.Success)
				if wc := r.b.one(uint64(id), driver.Success); int(wc.ByteLen) != skip+100+id {
					t.Errorf("%v: %+v", typ, wc)
				}
				if !bytes.Equal(r.b.bytes(id*size+skip, 100+id), r.a.bytes(0, 100+id)) {
					t.Errorf("%v: message %d is wrong", typ, id)
				}
			}
			if got := r.b.events(driver.EventSRQLimitReached, srqCookie); got != 1 {
				t.Errorf("%v: %d events of the limit", typ, got)
			}
			r.must(r.b.q.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
			if got := r.b.events(driver.EventQPLastWQEReached, 7); got != 1 {
				t.Errorf("%v: %d events that the last was taken", typ, got)
			}
			r.b.none(time.Millisecond)
		})
	}
}

package softroce

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
	"github.com/purerdma/purerdma/internal/offheap"
)

func TestR30Signalling(t *testing.T) {
	inBubble(t, rigConfig{retryCnt: 255}, func(r *rig) {
		quiet := r.a.write(1, 0, 8)
		quiet.Flags = 0
		r.a.post(quiet)
		r.a.none(time.Second)
		r.cut(r.a)
		quiet.ID = 2
		r.a.post(quiet)
		r.a.one(2, driver.RetryExcErr)
	})
}

// R33: arm, poll again, sleep. A lost wake-up ends in the context's deadline.
func TestR33NoLostWakeUp(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		const rounds = 20_000
		ch, err := r.b.ctx.CreateCompChannel()
		r.must(err)
		cq, err := r.b.ctx.CreateCQ(driver.CQConfig{Depth: 64, Channel: ch, Cookie: 3})
		r.must(err)
		r.must(r.b.q.Close())
		r.must(r.a.q.Close())
		r.a.q, r.b.q = r.a.newQP(r.a.cq), r.b.newQP(cq)
		r.a.connect(r.b)
		r.b.connect(r.a)
		r.later(func() { r.must(cq.Close()); r.must(ch.Close()) })
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		for range 32 {
			r.b.recv(driver.RecvWR{ID: 1})
		}
		var sender sync.WaitGroup
		defer sender.Wait()
		sender.Go(func() {
			g := rand.New(rand.NewPCG(33, 1))
			for range rounds {
				r.a.post(driver.SendWR{ID: 1, Op: driver.OpSend, Flags: driver.Signaled})
				r.a.take(1)
				time.Sleep(time.Duration(g.IntN(3)) * time.Microsecond)
			}
		})
		var wcs [4]driver.WC
		for got := 0; got < rounds; {
			r.must(cq.Arm(false))
			n, err := cq.Poll(wcs[:])
			r.must(err)
			if n == 0 {
				if _, err := ch.Wait(ctx); err != nil {
					t.Fatalf("after %d of %d: %v", got, rounds, err)
				}
				continue
			}
			for range n {
				r.b.recv(driver.RecvWR{ID: 1})
			}
			got += n
		}
	})
}

func TestR34Segmentation(t *testing.T) {
	for m := driver.MTU256; m <= driver.MTU4096; m++ {
		mtu := m.Bytes()
		for _, n := range []int{0, 1, 3, 4, mtu - 1, mtu, mtu + 1, 2*mtu - 1, 2*mtu + 1, 64 << 10, 1 << 20} {
			t.Run(fmt.Sprintf("%d/%d", mtu, n), func(t *testing.T) {
				inBubble(t, rigConfig{mtu: m, memory: 1 << 20}, func(r *rig) {
					r.a.fill(34)
					wr := r.a.write(1, 0, n)
					wr.Op, wr.Imm = driver.OpWriteWithImm, 5
					r.b.recv(driver.RecvWR{ID: 2})
					r.a.post(wr)
					r.a.one(1, driver.Success)
					r.same(0, n)
					left, sent := n, r.sent(wire.Write)
					if len(sent) != max(1, (n+mtu-1)/mtu) {
						t.Fatalf("%d packets", len(sent))
					}
					for i, p := range sent {
						first, last := i == 0, i == len(sent)-1
						if p.op.Starts() != first || p.op.Ends() != last || p.op.HasRETH() != first || p.op.HasImm() != last ||
							p.payload != min(left, mtu) || p.psn != wire.PSN(i) || last && !p.ackReq {
							t.Fatalf("packet %d is %+v", i, p)
						}
						pad := wire.BTH(p.data).Pad()
						if pad != -p.payload&3 || !bytes.Equal(p.data[len(p.data)-4-pad:len(p.data)-4], make([]byte, pad)) {
							t.Fatalf("packet %d has %d bytes of padding, %x", i, pad, p.data[len(p.data)-8:])
						}
						left -= p.payload
					}
				})
			})
		}
	}
}

func TestR35ReadTakesAsManyNumbersAsAnswers(t *testing.T) {
	inBubble(t, rigConfig{psn: 500}, func(r *rig) {
		r.a.post(r.a.read(1, 0, 3*256+128), r.a.write(2, 4096, 8))
		r.a.take(2)
		if w := r.sent(wire.Write); len(w) != 1 || w[0].psn != 504 {
			t.Errorf("the write behind the read is %+v, want packet 504", w)
		}
	})
}

func TestR36EmptyNeedsNoKey(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		r.a.post(driver.SendWR{ID: 1, Op: driver.OpWrite, Flags: driver.Signaled}, driver.SendWR{ID: 2, Op: driver.OpRead, Flags: driver.Signaled})
		r.a.one(1, driver.Success)
		r.a.one(2, driver.Success)
	})
	inBubble(t, rigConfig{access: driver.RemoteRead}, func(r *rig) {
		r.a.post(driver.SendWR{ID: 1, Op: driver.OpWrite}, r.a.send(2, 0, 0))
		r.failsWith(driver.RemInvReqErr)
	})
}

func TestR38PathMTUsThatDiffer(t *testing.T) {
	inBubble(t, rigConfig{apart: true}, func(r *rig) {
		r.a.connect(r.b)
		r.cfg.mtu = driver.MTU1024
		r.b.connect(r.a)
		r.a.post(r.a.write(1, 0, 600), r.a.send(2, 0, 0))
		r.failsWith(driver.RemInvReqErr)
	})
}

func TestR39LongMessage(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		r.forge(wire.RCWriteFirst, 0, 0, make([]byte, 256), func(p wire.Packet) { p.RETH().Put(r.b.mem.Addr(), r.b.key(), 1<<31+1) })
		if got := r.naks(wire.SynInvalid); len(got) != 1 {
			t.Errorf("NAKs %+v", got)
		}
	})
}

// R39: a SEND says no length at first. It ends where it passes the longest message,
// although there is room for more.
func TestR39SendThatGrowsTooLong(t *testing.T) {
	const entries = 4
	size := maxMessage/entries + 4096
	inBubble(t, rigConfig{}, func(r *rig) {
		// Nobody touches most of it, so that it takes no memory.
		mem, err := offheap.Map(size, offheap.Options{})
		r.must(err)
		defer func() { _ = mem.Release() }()
		m, err := r.b.pd.RegMR(mem, mem.Addr(), everything)
		r.must(err)
		r.later(func() { r.must(m.Close()) })
		key, _ := m.Keys()
		r.b.recv(driver.RecvWR{ID: 5, SGL: slices.Repeat([]driver.SGE{{Addr: mem.Addr(), Length: uint32(size), LKey: key}}, entries)})
		r.forge(wire.RCSendFirst, 0, 0, make([]byte, 256), nil)
		r.settle()
		r.b.q.mu.Lock()
		r.b.q.resp.got = maxMessage - 256
		r.b.q.mu.Unlock()
		r.forge(wire.RCSendMiddle, 0, 1, make([]byte, 256), nil)
		r.b.none(0)
		r.forge(wire.RCSendLast, 0, 2, make([]byte, 1), nil)
		r.b.one(5, driver.LocLenErr)
		if got := r.naks(wire.SynInvalid); len(got) != 1 || got[0].psn != 2 {
			t.Errorf("NAKs %+v", got)
		}
	})
}

// R40: a damaged packet is dropped in silence, whichever byte of it was hit.
func TestR40BadICRC(t *testing.T) {
	inBubble(t, rigConfig{v6: true}, func(r *rig) {
		r.a.post(r.a.write(1, 0, 8))
		r.a.one(1, driver.Success)
		p := r.sent(wire.Write)[0]
		wire.BTH(p.data).SetPSN(1) // the next; its ICRC is wrong by that
		before := bytes.Clone(r.b.mem.Bytes())
		r.forget()
		for i := range p.data {
			if i == 4 {
				continue // outside the ICRC
			}
			bad := bytes.Clone(p.data)
			bad[i] ^= 1 << (i % 8)
			r.sim.Inject(p.src, r.b.addr, bad)
			r.settle()
		}
		if got := r.packets(func(p seenPacket) bool { return p.from == 'b' }); len(got) != 0 {
			t.Errorf("answered by %+v", got)
		}
		if !bytes.Equal(before, r.b.mem.Bytes()) || r.b.q.resp.psn != 1 {
			t.Error("a damaged packet was executed")
		}
		c := r.b.counters()
		if n := c.badICRC.Load() + c.malformed.Load(); n != uint64(len(p.data)-1) {
			t.Errorf("%d of %d were counted", n, len(p.data)-1)
		}
	})
}

func TestR42StrangersAreDropped(t *testing.T) {
	for name, change := range map[string]struct {
		bth  func(r *rig, h wire.BTH)
		src  string
		want func(c *counters) uint64
	}{
		"unknown QP": {bth: func(r *rig, h wire.BTH) { h.Put(h.Opcode(), 0, defaultPKey, r.b.q.num^1, 0) }, want: func(c *counters) uint64 { return c.unknownQP.Load() }},
		"P_Key":      {bth: func(r *rig, h wire.BTH) { h.Put(h.Opcode(), 0, 0x8001, r.b.q.num, 0) }, want: func(c *counters) uint64 { return c.wrongKey.Load() }},
		"UC":         {bth: func(r *rig, h wire.BTH) { h.Put(wire.UCSendOnly, 0, defaultPKey, r.b.q.num, 0) }, want: func(c *counters) uint64 { return c.malformed.Load() }},
		"source":     {src: "10.9.0.77", want: func(c *counters) uint64 { return c.wrongAddress.Load() }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, rigConfig{}, func(r *rig) {
				r.b.recv(driver.RecvWR{ID: 1})
				p := wire.Make(make([]byte, 64), wire.RCSendOnly, 0)
				p.BTH().Put(wire.RCSendOnly, 0, defaultPKey, r.b.q.num, 0)
				if change.bth != nil {
					change.bth(r, p.BTH())
				}
				from := r.a.addr
				if change.src != "" {
					from = netip.MustParseAddr(change.src)
				}
				src := netip.AddrPortFrom(from, wire.Port)
				wire.NewPath(src, netip.AddrPortFrom(r.b.addr, wire.Port)).Seal(p.Bytes(), 0)
				r.sim.Inject(src, r.b.addr, p.Bytes())
				r.b.none(time.Millisecond)
				if change.want(r.b.counters()) != 1 || len(r.packets(func(p seenPacket) bool { return true })) != 0 {
					t.Errorf("not counted, or answered: %+v", r.b.counters())
				}
			})
		})
	}
}

func TestR43PeerThatIsNotReadyIsSilent(t *testing.T) {
	inBubble(t, rigConfig{apart: true}, func(r *rig) {
		r.a.fill(43)
		r.a.connect(r.b)
		r.a.post(r.a.write(1, 0, 1000))
		time.Sleep(100 * time.Millisecond)
		if got := r.packets(func(p seenPacket) bool { return p.from == 'b' }); len(got) != 0 {
			t.Errorf("answered in INIT: %+v", got)
		}
		r.b.connect(r.a)
		r.a.one(1, driver.Success)
		r.same(0, 1000)
	})
}

func TestR44Reordering(t *testing.T) {
	for seed := range uint64(20) {
		inBubble(t, rigConfig{sim: SimConfig{Seed: seed, Faults: Faults{Reorder: 0.05}}}, func(r *rig) {
			r.a.fill(seed)
			for id := range uint64(8) {
				r.b.recv(driver.RecvWR{ID: id, SGL: []driver.SGE{r.b.sge(int(id)*16384, 16384)}})
				r.a.post(r.a.send(id, int(id)*16384, 16384))
			}
			for id, wc := range r.a.take(8) {
				if wc.ID != uint64(id) || wc.Status != driver.Success {
					t.Fatalf("seed %d: %+v", seed, wc)
				}
			}
			r.b.take(8)
			r.b.none(time.Second)
			r.same(0, 8*16384)
		})
	}
}

func TestR45ReadAnswersOutOfOrder(t *testing.T) {
	inBubble(t, rigConfig{sim: SimConfig{Split: true}}, func(r *rig) {
		r.b.fill(45)
		r.sim.Hook(link.Nth(link.Swap, r.on('b', wire.ReadResponse), 2, 7))
		r.a.post(r.a.read(1, 0, 10*256))
		r.a.one(1, driver.Success)
		r.same(0, 10*256)
	})
}

// R46: who sees the completion of a send sees the write before it.
func TestR46WriteBeforeSend(t *testing.T) {
	inBubble(t, rigConfig{sim: SimConfig{Seed: 46, Faults: Faults{Loss: 0.05, Reorder: 0.05}}}, func(r *rig) {
		for i := range 50 {
			r.a.fill(uint64(i))
			r.b.recv(driver.RecvWR{ID: uint64(i)})
			r.a.post(r.a.write(1, 0, 5000), r.a.send(2, 0, 0))
			r.b.one(uint64(i), driver.Success)
			r.same(0, 5000)
			r.a.take(2)
		}
	})
}

func TestR47Fence(t *testing.T) {
	inBubble(t, rigConfig{timeout: 8}, func(r *rig) {
		r.b.fill(47)
		r.sim.Hook(link.Nth(link.Drop, r.on('b', wire.ReadResponse), 1, 3))
		fenced := r.a.write(2, 0, 1024)
		fenced.Flags |= driver.Fence
		fenced.Remote = r.b.remote(8192)
		r.a.post(r.a.read(1, 0, 1024), fenced)
		r.a.take(2)
		if !bytes.Equal(r.b.bytes(0, 1024), r.b.bytes(8192, 1024)) {
			t.Error("the fenced write did not carry what the read fetched")
		}
	})
}

// R48 and R57: memory is deregistered while a peer reads it. Close waits for the
// copy that is on; the peer gets an error and nothing stale.
func TestR48DeregisterDuringARead(t *testing.T) {
	const size = 4 << 20
	inBubble(t, rigConfig{memory: size, mtu: driver.MTU4096, sim: SimConfig{Faults: Faults{Delay: 50 * time.Microsecond}}}, func(r *rig) {
		r.b.fill(48)
		r.a.post(r.a.read(1, 0, size), r.a.send(2, 0, 0))
		time.Sleep(500 * time.Microsecond)
		r.must(r.b.mr.Close())
		clear(r.b.mem.Bytes())
		r.b.mr = nil
		r.failsWith(driver.RemAccessErr)
	})
}

func TestR49PeerThatIsGone(t *testing.T) {
	inBubble(t, rigConfig{retryCnt: 2}, func(r *rig) {
		r.must(r.b.q.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask))
		start := time.Now()
		r.a.post(r.a.write(1, 0, 8))
		r.a.one(1, driver.RetryExcErr)
		if d := time.Since(start); d > 3*wire.AckTime(14)+time.Millisecond {
			t.Errorf("took %v", d)
		}
	})
}

// R50: packets of a connection that was before do nothing.
func TestR50OldPackets(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		r.a.post(r.a.write(1, 0, 700))
		r.a.one(1, driver.Success)
		old := r.packets(func(p seenPacket) bool { return p.from == 'a' })
		for _, e := range []*end{r.a, r.b} {
			r.must(e.q.Close())
			e.q = e.newQP(e.cq)
		}
		r.a.connect(r.b)
		r.b.connect(r.a)
		for _, p := range old {
			r.sim.Inject(p.src, r.b.addr, p.data)
		}
		r.settle()
		if n := r.b.counters().unknownQP.Load(); n == 0 || r.b.q.resp.psn != 0 {
			t.Errorf("%d packets for an unknown QP, next %d", n, r.b.q.resp.psn)
		}
	})
}

// R57: the owner of registered memory truncates the file that it is. The process
// lives, the peer is told.
func TestR57MemoryThatIsGone(t *testing.T) {
	for _, op := range []driver.Opcode{driver.OpWrite, driver.OpRead, driver.OpFetchAdd} {
		t.Run(fmt.Sprint(op), func(t *testing.T) {
			inBubble(t, rigConfig{}, func(r *rig) {
				f, err := os.Create(t.TempDir() + "/memory")
				r.must(err)
				defer func() { _ = f.Close() }()
				r.must(f.Truncate(64 << 10))
				mem, err := offheap.MapFile(int(f.Fd()), 0, 64<<10)
				r.must(err)
				mr, err := r.b.pd.RegMR(mem, mem.Addr(), everything)
				r.must(err)
				r.later(func() { r.must(mr.Close()); _ = mem.Release() })
				r.must(f.Truncate(0))
				key, _ := mr.Keys()
				w := r.a.write(1, 0, 8)
				w.Op, w.Remote = op, driver.Remote{Addr: mem.Addr(), RKey: key}
				r.a.post(w, r.a.send(2, 0, 0))
				r.failsWith(driver.RemOpErr)
			})
		})
	}
	t.Run("of the sender", func(t *testing.T) {
		inBubble(t, rigConfig{}, func(r *rig) {
			f, err := os.Create(t.TempDir() + "/memory")
			r.must(err)
			defer func() { _ = f.Close() }()
			r.must(f.Truncate(4096))
			mem, err := offheap.MapFile(int(f.Fd()), 0, 4096)
			r.must(err)
			mr, err := r.a.pd.RegMR(mem, mem.Addr(), everything)
			r.must(err)
			r.later(func() { r.must(mr.Close()); _ = mem.Release() })
			r.must(f.Truncate(0))
			key, _ := mr.Keys()
			w := r.a.write(1, 0, 8)
			w.SGL[0] = driver.SGE{Addr: mem.Addr(), Length: 8, LKey: key}
			r.a.post(w)
			r.a.one(1, driver.LocProtErr)
		})
	})
}

// R57 again, with the race detector: memory is unmapped as soon as Close returned.
func TestR57CloseWaitsForCopies(t *testing.T) {
	a, b := openDevices(t, New(Config{Addrs: []netip.Addr{addrA, addrB}, Network: OnSim(NewSim(SimConfig{}))}), "soft0", "soft1")
	defer func() { _, _ = a.Context.Close(), b.Context.Close() }()
	p, err := a.Context.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	for range 200 {
		mem, err := offheap.Map(1<<20, offheap.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := p.RegMR(mem, mem.Addr(), everything)
		if err != nil {
			t.Fatal(err)
		}
		var users sync.WaitGroup
		for range 2 {
			users.Go(func() {
				buf := make([]byte, 1<<20)
				for {
					reg, b := a.Context.(*softContext).e.memory(p.(*pd), m.(*mr).key, mem.Addr(), 1<<20, 0)
					if reg == nil {
						return
					}
					ok := getBytes(buf, b)
					reg.end()
					if !ok {
						t.Error("memory was unmapped under a copy")
						return
					}
				}
			})
		}
		runtime.Gosched()
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		_ = mem.Release()
		users.Wait()
	}
}

// R58: an ACK at least every 16 packets, whatever the sender asks for.
func TestR58UnrequestedAcks(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		r.b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{r.b.sge(0, 64<<10)}})
		for psn := range wire.PSN(100) {
			op := wire.RCSendMiddle
			if psn == 0 {
				op = wire.RCSendFirst
			}
			r.forge(op, 0, psn, make([]byte, 256), nil)
		}
		acks := r.packets(func(p seenPacket) bool { return p.op == wire.RCAck })
		if len(acks) != 100/16 {
			t.Fatalf("%d ACKs for 100 packets, want %d", len(acks), 100/16)
		}
		for i, p := range acks {
			if p.psn != wire.PSN(16*(i+1)-1) {
				t.Errorf("ACK %d is of packet %d", i, p.psn)
			}
		}
	})
}

// R60: 64 queue pairs share a small buffer. Nothing is dropped.
func TestR60WindowIsShared(t *testing.T) {
	const pairs, n = 64, 256 << 10
	inBubble(t, rigConfig{memory: n, mtu: driver.MTU1024, sim: SimConfig{RecvBuffer: 212_992}}, func(r *rig) {
		r.a.fill(60)
		as := []*qp{r.a.q}
		for range pairs - 1 {
			qa, qb := r.a.newQP(r.a.cq), r.b.newQP(r.b.cq)
			join(r.a, qa, r.b, qb)
			join(r.b, qb, r.a, qa)
			as = append(as, qa)
			r.later(func() { r.must(qa.Close()); r.must(qb.Close()) })
		}
		for _, q := range as {
			_, err := q.PostSend([]driver.SendWR{r.a.write(1, 0, n)})
			r.must(err)
		}
		for _, wc := range r.a.take(pairs) {
			if wc.Status != driver.Success {
				t.Fatalf("%+v", wc)
			}
		}
		r.same(0, n)
		if s := r.b.q.e.link.Stats(); s.RecvDropped != 0 || r.a.counters().retries.Load() != 0 {
			t.Errorf("%d packets dropped for want of room, %d retries", s.RecvDropped, r.a.counters().retries.Load())
		}
	})
}

package softroce

import (
	"runtime"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// mark has the network mark what it may of an end's packets with an operation.
func (r *rig) mark(from byte, op wire.Operation) {
	match := r.on(from, op)
	r.sim.Hook(func(p *link.SimPacket) link.Fate {
		if match(p) && p.TOS&ecnMask != 0 {
			p.TOS |= ecnMarked
		}
		return link.Pass
	})
}

// Data of a reliable connection may be marked, and nothing else; without the option
// nothing may, and notifications are ignored.
func TestECNWhatMayBeMarked(t *testing.T) {
	for _, on := range []bool{false, true} {
		inBubble(t, rigConfig{ecn: on}, func(r *rig) {
			r.sim.Hook(func(p *link.SimPacket) link.Fate {
				op := wire.Opcode(p.Data[0])
				var want uint8
				if on && op.HasData() {
					want = ecnCapable
				}
				if p.TOS != want {
					t.Errorf("on %v: %v has type of service %#x, want %#x", on, op, p.TOS, want)
				}
				return link.Pass
			})
			r.b.recv(driver.RecvWR{ID: 1})
			r.a.post(r.a.send(1, 0, 0), r.a.write(2, 0, 1000), r.a.read(3, 0, 1000), r.a.add(4, 0, 1))
			r.a.take(4)
			r.inject(r.b, r.a, wire.CNP, wire.BECN, 0, nil, nil)
			ignored, handled := r.a.counter("rp_cnp_ignored"), r.a.counter("rp_cnp_handled")
			if on && (ignored != 0 || handled != 1) || !on && (ignored != 1 || handled != 0) {
				t.Errorf("on %v: %d notifications ignored, %d handled", on, ignored, handled)
			}
		})
	}
}

// A receiver answers marks, once in 50 µs, with what IBTA says a CNP is.
func TestECNNotifications(t *testing.T) {
	inBubble(t, rigConfig{ecn: true, memory: 1 << 20, sim: SimConfig{Faults: Faults{Delay: 5 * time.Microsecond}, RecvBuffer: 64 << 10}}, func(r *rig) {
		r.mark('a', wire.Write)
		r.a.fill(1)
		start := time.Now()
		r.a.post(r.a.write(1, 0, 1<<20))
		r.a.one(1, driver.Success)
		r.same(0, 1<<20)
		cnps := r.packets(func(p seenPacket) bool { return p.op == wire.CNP })
		if most := int(time.Since(start)/cnpInterval) + 1; len(cnps) < 4 || len(cnps) > most {
			t.Errorf("%d notifications in %v, want 4 to %d", len(cnps), time.Since(start), most)
		}
		for i, p := range cnps {
			h := wire.BTH(p.data)
			if p.from != 'b' || h.Flags() != wire.BECN || h.QPN() != r.a.q.num || h.PSN() != 0 || len(p.data) != 12+16+4 {
				t.Errorf("notification %d is %x", i, p.data)
			}
			if i > 0 && p.at-cnps[i-1].at < cnpInterval {
				t.Errorf("notification %d comes %v behind the one before", i, p.at-cnps[i-1].at)
			}
		}
		if n, m := r.a.counter("rp_cnp_handled"), r.b.counter("np_cnp_sent"); n != uint64(len(cnps)) || m != n {
			t.Errorf("%d sent, %d handled of %d", m, n, len(cnps))
		}
		if n := r.b.counter("np_ecn_marked_roce_packets"); n != 1<<20/256 {
			t.Errorf("%d marks counted of %d", n, 1<<20/256)
		}
	})
}

// A sender halves what is in flight, once for each window, down to one packet, and
// grows by a packet for each window that is acknowledged, until it has no limit.
func TestECNSenderObeys(t *testing.T) {
	inBubble(t, rigConfig{ecn: true, memory: 8 << 20, timeout: 255, sim: SimConfig{RecvBuffer: 64 << 10}}, func(r *rig) {
		mend := r.cut(r.b)
		r.a.post(r.a.write(1, 0, 8<<20))
		r.settle()
		q := r.a.q
		c, packet := &q.req.congestion, q.charge(q.mtu)
		ack := func(n int) { // of the oldest n packets
			r.inject(r.b, r.a, wire.RCAck, 0, q.req.una.Add(uint32(n-1)), nil, func(p wire.Packet) { p.AETH().Put(wire.SynAck, 0) })
		}
		cnp := func() { r.inject(r.b, r.a, wire.CNP, wire.BECN, 0, nil, nil) }
		for round := range 12 {
			flying := q.req.inFlight
			cnp()
			if want := max(flying/2, packet); c.limit != want {
				t.Fatalf("round %d: limit %d with %d in flight, want %d", round, c.limit, flying, want)
			}
			before, limit := len(r.sent(wire.Write)), c.limit
			if limit > 2*packet {
				ack(2)
			}
			cnp()
			if c.limit != limit || len(r.sent(wire.Write)) != before {
				t.Fatalf("round %d: the second notification for a window counts", round)
			}
			ack(int(q.req.sent.Sub(q.req.una)))
			if q.req.inFlight > c.limit || q.req.inFlight == 0 {
				t.Fatalf("round %d: %d in flight with a limit of %d", round, q.req.inFlight, c.limit)
			}
		}
		if n := q.req.sent.Sub(q.req.una); n != 1 && n != 2 {
			t.Errorf("%d packets in flight in the end", n)
		}
		for i := range 10 {
			was := c.limit
			for acked := 0; acked < was && c.limit == was; acked += packet {
				ack(1)
			}
			if c.limit != was+packet {
				t.Fatalf("window %d: limit %d became %d, want a packet of %d more", i, was, c.limit, packet)
			}
		}
		mend()
		ack(1)
		r.a.one(1, driver.Success)
		if c.limit != 0 {
			t.Errorf("limit %d behind 8 MiB without a mark", c.limit)
		}
		r.same(0, 8<<20)
	})
}

// Marks on answers to a read slow who asks.
func TestECNReads(t *testing.T) {
	inBubble(t, rigConfig{ecn: true, memory: 1 << 20, mtu: driver.MTU1024, sim: SimConfig{Faults: Faults{Delay: 5 * time.Microsecond}}}, func(r *rig) {
		r.b.fill(2)
		r.mark('b', wire.ReadResponse)
		r.a.post(r.a.read(1, 0, 1<<20))
		r.a.one(1, driver.Success)
		r.same(0, 1<<20)
		if r.a.q.req.congestion.limit == 0 || r.b.counter("rp_cnp_handled") == 0 {
			t.Errorf("limit %d, %d notifications", r.a.q.req.congestion.limit, r.b.counter("rp_cnp_handled"))
		}
	})
}

// With marks, loss and the rest at once all is delivered.
func TestECNUnderFaults(t *testing.T) {
	for seed := range uint64(8) {
		inBubble(t, rigConfig{ecn: true, timeout: 8, memory: 1 << 20, sim: SimConfig{Seed: seed, RecvBuffer: 128 << 10,
			Faults: Faults{Mark: 0.3, Loss: 0.01, Duplicate: 0.1, Reorder: 0.05, Delay: 10 * time.Microsecond}}}, func(r *rig) {
			r.a.fill(seed)
			for id := range uint64(4) {
				r.a.post(r.a.write(id, int(id)<<18, 1<<18))
			}
			for _, wc := range r.a.take(4) {
				if wc.Status != driver.Success {
					t.Fatalf("seed %d: %+v", seed, wc)
				}
			}
			r.same(0, 1<<20)
			if r.a.counter("rp_cnp_handled") == 0 {
				t.Errorf("seed %d: no notification", seed)
			}
		})
	}
}

// The mark comes through a real network's stack: a sender that does not take part
// writes it itself, as its traffic class, and ignores the answers.
func TestECNOnSockets(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("package net tells no type of service")
	}
	t.Run("UDP", func(t *testing.T) { ecnOnSockets(t, OnUDP()) })
	t.Run("packet sockets", func(t *testing.T) {
		needPacketSockets(t)
		ecnOnSockets(t, OnPacketSockets())
	})
}

func ecnOnSockets(t *testing.T, n Network) {
	addrs := loopbacks(2)
	r := &rig{t: t, cfg: rigConfig{typ: driver.RC, mtu: driver.MTU1024, timeout: 16, retryCnt: 7, rdAtomic: 1, access: everything, memory: 1 << 16, depth: 4, cqDepth: 16}}
	r.a, r.b = &end{r: r, name: 'a', addr: addrs[0]}, &end{r: r, name: 'b', addr: addrs[1]}
	for i, e := range []*end{r.a, r.b} {
		devices, _ := New(Config{Addrs: addrs[i : i+1], Network: n, ECN: e == r.b}).Devices()
		e.open(devices[0])
	}
	defer r.close()
	r.a.connect(r.b)
	r.b.connect(r.a)
	r.a.q.mu.Lock()
	r.a.q.tos = ecnMarked
	r.a.q.mu.Unlock()
	r.a.fill(3)
	r.a.post(r.a.write(1, 0, 1<<16))
	r.a.one(1, driver.Success)
	r.same(0, 1<<16)
	if marks, sent, ignored := r.b.counter("np_ecn_marked_roce_packets"), r.b.counter("np_cnp_sent"), r.a.counter("rp_cnp_ignored"); marks < 64 || sent == 0 || ignored == 0 {
		t.Errorf("%d marks, %d notifications sent, %d ignored", marks, sent, ignored)
	}
}

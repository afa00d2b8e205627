package softroce

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
	"github.com/purerdma/purerdma/internal/offheap"
)

// attack is packets that somebody on the network sends to an end of a connection
// that is at work. He can forge addresses and knows the numbers of queue pairs, but
// not keys and packet numbers: who knows those is as good as the peer.
type attack struct {
	// packet makes one for b, from a if stranger is false.
	packet   func(h *hostile) []byte
	stranger bool
	toSender bool // it is for a, from b
	counted  []string
}

// hostile makes packets by a seed.
type hostile struct {
	*rig
	g        *rand.Rand
	from, to netip.AddrPort
	victim   *end
}

// right is a packet that would be executed, with the number given.
func (h *hostile) right(op wire.Opcode, psn wire.PSN) wire.Packet {
	n := 0
	if op.HasData() {
		n = h.g.IntN(257)
	}
	p := wire.Make(make([]byte, 512), op, n)
	p.BTH().Put(op, wire.AckReq, defaultPKey, h.victim.q.num, psn)
	if op.HasRETH() {
		p.RETH().Put(h.victim.mem.Addr(), h.victim.key(), uint32(n))
	}
	if p.AtomicETH() != nil {
		p.AtomicETH().Put(h.victim.mem.Addr(), h.victim.key(), 1, 1)
	}
	return p
}

func (h *hostile) seal(b []byte) []byte {
	wire.NewPath(h.from, h.to).Seal(b, 0)
	return b
}

func (h *hostile) request() wire.Opcode {
	list := opcodes(func(op wire.Opcode) bool { return op.Transport() == wire.RC && op.IsRequest() && !op.HasInv() })
	return list[h.g.IntN(len(list))]
}

// far is a number that is neither under way nor next, ahead or behind.
func (h *hostile) far(ahead bool) wire.PSN {
	d := uint32(1<<20 + h.g.IntN(1<<20))
	h.victim.q.mu.Lock()
	defer h.victim.q.mu.Unlock()
	next := h.victim.q.resp.psn
	if h.victim == h.a {
		next = h.victim.q.req.una
	}
	if ahead {
		return next.Add(d)
	}
	return next.Add(1<<24 - d)
}

var attacks = map[string]attack{
	"random bytes": {counted: []string{"rcvd_malformed_err", "rcvd_icrc_err"}, packet: func(h *hostile) []byte {
		b := make([]byte, h.g.IntN(300))
		fillRandom(h.g, b)
		return b
	}},
	"headers cut off": {counted: []string{"rcvd_malformed_err", "rcvd_icrc_err"}, packet: func(h *hostile) []byte {
		b := h.right(h.request(), h.far(true)).Bytes()
		b = b[:h.g.IntN(len(b))]
		if len(b) >= wire.BTHSize+wire.ICRCSize {
			b[1] |= 0x30 // more padding than there is
			h.seal(b)
			b[len(b)-1] ^= 1 // and not even that right
		}
		return b
	}},
	"damaged": {counted: []string{"rcvd_icrc_err"}, packet: func(h *hostile) []byte {
		b := h.seal(h.right(h.request(), h.far(true)).Bytes())
		b[len(b)-1-h.g.IntN(4)] ^= 1 << h.g.IntN(8)
		return b
	}},
	"another QP's number": {counted: []string{"rcvd_unknown_qp"}, packet: func(h *hostile) []byte {
		p := h.right(h.request(), h.far(true))
		p.BTH().Put(p.Opcode(), 0, defaultPKey, h.victim.q.num^uint32(1<<h.g.IntN(24)), 0)
		return h.seal(p.Bytes())
	}},
	"another partition": {counted: []string{"rcvd_pkey_err"}, packet: func(h *hostile) []byte {
		p := h.right(h.request(), h.far(true))
		p.BTH().Put(p.Opcode(), 0, uint16(h.g.IntN(0x7fff)), h.victim.q.num, 0)
		return h.seal(p.Bytes())
	}},
	"from a stranger": {stranger: true, counted: []string{"rcvd_wrong_peer"}, packet: func(h *hostile) []byte {
		h.victim.q.mu.Lock()
		next := h.victim.q.resp.psn
		h.victim.q.mu.Unlock()
		return h.seal(h.right(h.request(), next).Bytes())
	}},
	"other transports": {counted: []string{"rcvd_malformed_err"}, packet: func(h *hostile) []byte {
		list := opcodes(func(op wire.Opcode) bool { return op.Transport() != wire.RC && op != wire.CNP })
		return h.seal(h.right(list[h.g.IntN(len(list))], h.far(true)).Bytes())
	}},
	"no opcode": {counted: []string{"rcvd_malformed_err"}, packet: func(h *hostile) []byte {
		p := h.right(wire.RCSendOnly, h.far(true))
		for wire.Opcode(p.Bytes()[0]).Valid() {
			p.Bytes()[0] = byte(h.g.Uint32())
		}
		return h.seal(p.Bytes())
	}},
	"requests from far ahead": {counted: []string{"out_of_seq_request"}, packet: func(h *hostile) []byte {
		return h.seal(h.right(h.request(), h.far(true)).Bytes())
	}},
	"requests from long ago": {counted: []string{"duplicate_request"}, packet: func(h *hostile) []byte {
		return h.seal(h.right(h.request(), h.far(false)).Bytes())
	}},
	"answers nobody asked for": {toSender: true, counted: []string{"rcvd_stale_answer"}, packet: func(h *hostile) []byte {
		list := opcodes(func(op wire.Opcode) bool { return op.Transport() == wire.RC && !op.IsRequest() })
		p := h.right(list[h.g.IntN(len(list))], h.far(h.g.IntN(2) == 0))
		if p.AETH() != nil {
			p.AETH().Put(wire.Syndrome(h.g.Uint32()), h.g.Uint32())
		}
		return h.seal(p.Bytes())
	}},
	"congestion notifications": {toSender: true, counted: []string{"rp_cnp_ignored"}, packet: func(h *hostile) []byte {
		return h.seal(h.right(wire.CNP, 0).Bytes())
	}},
}

// An attacker changes nothing but counters, and all arrives that a sends meanwhile.
func TestHostileNetwork(t *testing.T) {
	const shots = 300
	for name, at := range attacks {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, IPv6 %v", name, v6), func(t *testing.T) {
				seed := rand.Uint64()
				t.Log("seed", seed)
				inBubble(t, rigConfig{v6: v6, psn: 0xfffff0, sim: SimConfig{Faults: Faults{Delay: 5 * time.Microsecond}}}, func(r *rig) {
					h := &hostile{rig: r, g: rand.New(rand.NewPCG(seed, 1)), victim: r.b}
					from := r.a.addr
					if at.toSender {
						h.victim, from = r.a, r.b.addr
					}
					if at.stranger {
						from = r.b.addr.Next()
					}
					h.from, h.to = netip.AddrPortFrom(from, wire.Port), netip.AddrPortFrom(h.victim.addr, wire.Port)
					before := map[string]uint64{}
					for _, c := range at.counted {
						before[c] = h.victim.counter(c)
					}
					w := r.work(seed)
					for range shots {
						r.sim.Inject(h.from, h.to.Addr(), at.packet(h))
						time.Sleep(time.Duration(h.g.IntN(10)) * time.Microsecond)
					}
					w.finish()
					var counted uint64
					for _, c := range at.counted {
						counted += h.victim.counter(c) - before[c]
					}
					// What a sends again for a forged gap counts as well.
					if counted < shots || counted > shots && name != "requests from far ahead" && name != "requests from long ago" {
						t.Errorf("%d of %d were counted by %v", counted, shots, at.counted)
					}
				})
			})
		}
	}
}

// work is traffic from a to b and back: writes, reads, sends and atomics in turn.
type work struct {
	*rig
	done  sync.WaitGroup
	bytes []byte
	stop  chan struct{}
}

func (r *rig) work(seed uint64) *work {
	r.a.fill(seed)
	w := &work{rig: r, stop: make(chan struct{}), bytes: bytes.Clone(r.a.bytes(0, 64<<10))}
	clear(r.b.mem.Bytes())
	w.done.Go(func() {
		for round := uint64(0); ; round++ {
			select {
			case <-w.stop:
				return
			default:
			}
			r.b.recv(driver.RecvWR{ID: round, SGL: []driver.SGE{r.b.sge(32<<10, 16<<10)}})
			back := r.a.read(3, 64<<10, 16<<10)
			back.Remote = r.b.remote(0)
			r.a.post(r.a.write(1, 0, 32<<10), r.a.send(2, 32<<10, 16<<10), back, r.a.add(4, 128<<10, 1))
			for i, wc := range r.a.take(4) {
				if wc.ID != uint64(i+1) || wc.Status != driver.Success {
					r.t.Errorf("round %d: %+v", round, wc)
					return
				}
			}
			if wc := r.b.take(1)[0]; wc.ID != round || wc.Status != driver.Success || wc.ByteLen != 16<<10 {
				r.t.Errorf("round %d: %+v", round, wc)
				return
			}
			if !bytes.Equal(r.b.bytes(0, 48<<10), w.bytes[:48<<10]) || !bytes.Equal(r.a.bytes(64<<10, 16<<10), w.bytes[:16<<10]) {
				r.t.Errorf("round %d: wrong bytes", round)
				return
			}
		}
	})
	return w
}

// finish ends the traffic and sees that memory that it does not use is untouched.
func (w *work) finish() {
	close(w.stop)
	w.done.Wait()
	if b := w.b.bytes(48<<10, 80<<10); !bytes.Equal(b, make([]byte, len(b))) {
		w.t.Error("memory changed that nobody wrote to")
	}
	for _, e := range []*end{w.a, w.b} {
		if s := e.state(); s != driver.StateRTS {
			w.t.Errorf("%c is in %v", e.name, s)
		}
	}
}

// A peer with a connection of its own asks for what is not its: each request ends
// its connection with the NAK that belongs to it, no byte beside the registration
// changes, and the connection of others goes on.
func TestHostilePeer(t *testing.T) {
	const size = 8192
	type ask struct {
		op   wire.Opcode
		va   func(base uint64) uint64
		n    uint32
		key  func(r *rig, right uint32) uint32
		want wire.Syndrome
	}
	at := func(d uint64) func(uint64) uint64 { return func(base uint64) uint64 { return base + d } }
	right := func(_ *rig, k uint32) uint32 { return k }
	var cases []ask
	for _, op := range []wire.Opcode{wire.RCWriteOnly, wire.RCWriteFirst, wire.RCReadRequest} {
		n := uint32(200)
		if op == wire.RCWriteFirst {
			n = 300
		}
		cases = append(cases,
			ask{op, at(size - uint64(n) + 1), n, right, wire.SynAccess}, // one past the end
			ask{op, at(1<<64 - 1), n, right, wire.SynAccess},            // one before the start
			ask{op, at(size), n, right, wire.SynAccess},
			ask{op, func(uint64) uint64 { return 1<<64 - 1 }, n, right, wire.SynAccess},         // va+len overflows
			ask{op, func(uint64) uint64 { return -uint64(n) }, n, right, wire.SynAccess},        // to exactly 0
			ask{op, func(base uint64) uint64 { return base ^ 1<<63 }, n, right, wire.SynAccess}, // sign
			ask{op, at(0), n, func(_ *rig, k uint32) uint32 { return k ^ 1 }, wire.SynAccess},   // the next key
			ask{op, at(0), n, func(*rig, uint32) uint32 { return 0 }, wire.SynAccess},           // none
			ask{op, at(0), n, func(r *rig, _ uint32) uint32 { return r.b.foreignKey() }, wire.SynAccess},
			ask{op, at(0), n, func(r *rig, _ uint32) uint32 { return r.b.weakKey() }, wire.SynAccess})
		if op != wire.RCWriteOnly {
			cases = append(cases, ask{op, at(0), size + 1, right, wire.SynAccess}, ask{op, at(0), 1 << 31, right, wire.SynAccess},
				ask{op, at(0), 1<<31 + 1, right, wire.SynInvalid}, ask{op, at(0), 1<<32 - 1, right, wire.SynInvalid})
		}
	}
	cases = append(cases, ask{wire.RCWriteOnly, at(0), 199, right, wire.SynInvalid}, // another length than it says
		ask{wire.RCWriteOnly, at(0), 1<<32 - 1, right, wire.SynInvalid})
	for _, op := range []wire.Opcode{wire.RCFetchAdd, wire.RCCompareSwap} {
		cases = append(cases,
			ask{op, at(size), 0, right, wire.SynAccess}, ask{op, at(1<<64 - 8), 0, right, wire.SynAccess},
			ask{op, at(size - 4), 0, right, wire.SynInvalid}, ask{op, at(1), 0, right, wire.SynInvalid},
			ask{op, func(uint64) uint64 { return 1<<64 - 8 }, 0, right, wire.SynAccess})
	}
	inBubble(t, rigConfig{}, func(r *rig) {
		all, err := offheap.Map(size+2*guard, offheap.Options{})
		r.must(err)
		defer func() { _ = all.Release() }()
		mine, err := all.Slice(guard, size)
		r.must(err)
		mr, err := r.b.pd.RegMR(mine, mine.Addr(), everything)
		r.must(err)
		r.later(func() { r.must(mr.Close()) })
		key, _ := mr.Keys()
		fillRandom(rand.New(rand.NewPCG(3, 3)), all.Bytes())
		before := bytes.Clone(all.Bytes())
		stranger := r.b.addr.Next()
		port, err := r.sim.Listen(stranger)
		r.must(err)
		defer func() { r.must(port.Close()) }()
		w := r.work(9)
		for i, c := range cases {
			q := r.b.newQP(r.b.cq)
			r.must(toRTR(r.b, q, &end{addr: stranger}, 7))
			r.must(toRTS(r.b, q))
			p := wire.Make(make([]byte, 512), c.op, map[wire.Opcode]int{wire.RCWriteOnly: 200, wire.RCWriteFirst: 256}[c.op])
			p.BTH().Put(c.op, wire.AckReq, defaultPKey, q.num, 0)
			va, k := c.va(mine.Addr()), c.key(r, key)
			if p.RETH() != nil {
				p.RETH().Put(va, k, c.n)
			} else {
				p.AtomicETH().Put(va, k, 1, 1)
			}
			src, dst := netip.AddrPortFrom(stranger, wire.Port), netip.AddrPortFrom(r.b.addr, wire.Port)
			wire.NewPath(src, dst).Seal(p.Bytes(), 0)
			name := map[wire.Syndrome]string{wire.SynAccess: "send_access_err", wire.SynInvalid: "send_inv_req_err"}[c.want]
			counted := r.b.counter(name)
			r.sim.Inject(src, r.b.addr, p.Bytes())
			time.Sleep(time.Microsecond)
			if a, err := q.Query(); err != nil || a.State != driver.StateErr || r.b.counter(name) != counted+1 {
				t.Errorf("case %d, %v: state %v, %s %d more, %v", i, c.op, a.State, name, r.b.counter(name)-counted, err)
			}
			r.must(q.Close())
		}
		w.finish()
		if !bytes.Equal(all.Bytes(), before) {
			t.Error("memory changed")
		}
		naks := r.packets(func(p seenPacket) bool { return p.from == 'b' && p.op == wire.RCAck && p.syndrome >= wire.SynInvalid })
		if len(naks) != len(cases) {
			t.Errorf("%d NAKs for %d requests", len(naks), len(cases))
		}
	})
}

// On real sockets as well, with a sender that is not even a RoCE device.
func TestHostileSocket(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8")
	}
	t.Run("UDP", func(t *testing.T) { hostileSocket(t, OnUDP()) })
	t.Run("packet sockets", func(t *testing.T) {
		needPacketSockets(t)
		hostileSocket(t, OnPacketSockets())
	})
}

func hostileSocket(t *testing.T, n Network) {
	r := &rig{t: t, cfg: rigConfig{typ: driver.RC, mtu: driver.MTU1024, timeout: 16, retryCnt: 7, rnrRetry: 7, rdAtomic: 4, access: everything, memory: 256 << 10, depth: 16, cqDepth: 64}}
	addrs := loopbacks(3)
	r.a, r.b = &end{r: r, name: 'a', addr: addrs[0]}, &end{r: r, name: 'b', addr: addrs[1]}
	devices, _ := New(Config{Addrs: addrs[:2], Network: n}).Devices()
	for i, e := range []*end{r.a, r.b} {
		e.open(devices[i])
	}
	defer r.close()
	r.a.connect(r.b)
	r.b.connect(r.a)
	seed := rand.Uint64()
	t.Log("seed", seed)
	c, err := net.DialUDP("udp4", &net.UDPAddr{IP: addrs[2].AsSlice(), Port: 4791}, &net.UDPAddr{IP: addrs[1].AsSlice(), Port: 4791})
	r.must(err)
	defer func() { r.must(c.Close()) }()
	h := &hostile{rig: r, g: rand.New(rand.NewPCG(seed, 1)), victim: r.b, from: netip.AddrPortFrom(addrs[2], wire.Port), to: netip.AddrPortFrom(addrs[1], wire.Port)}
	names := []string{"random bytes", "headers cut off", "damaged", "another QP's number", "another partition", "from a stranger", "no opcode", "requests from far ahead"}
	w := r.work(seed)
	const shots = 2000
	for range shots {
		_, err := c.Write(attacks[names[h.g.IntN(len(names))]].packet(h))
		r.must(err)
	}
	w.finish()
	dropped := func() (n uint64) {
		for _, name := range []string{"rcvd_malformed_err", "rcvd_icrc_err", "rcvd_unknown_qp", "rcvd_pkey_err", "rcvd_wrong_peer", "rcvd_buffer_drops"} {
			n += r.b.counter(name)
		}
		return n
	}
	for deadline := time.Now().Add(time.Minute); dropped() < shots; runtime.Gosched() { // some may still be in the socket's buffer
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d were dropped", dropped(), shots)
		}
	}
}

// loopbacks is n addresses that nobody else is likely to use.
func loopbacks(n int) []netip.Addr {
	list := []netip.Addr{netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(250)), byte(rand.IntN(256)), byte(1 + rand.IntN(200))})}
	for len(list) < n {
		list = append(list, list[len(list)-1].Next())
	}
	return list
}

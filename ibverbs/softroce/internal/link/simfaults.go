package link

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// Faults are what a network does to packets, each with a probability from 0 to
// 1 for each packet.
type Faults struct {
	Loss      float64
	Duplicate float64 // delivered twice
	Reorder   float64 // overtaken by 1 to Depth later packets of the same flow
	Corrupt   float64 // one bit, or up to four neighbouring bytes, changed
	Mark      float64 // congestion experienced, where the TOS is ECN-capable

	Depth int           // 0 is 8
	Hold  time.Duration // how long at most a packet waits for those that overtake it; 0 is 100 µs

	Delay  time.Duration // of every packet
	Jitter time.Duration // up to so much more, so that packets overtake each other
}

func (f *Faults) any() bool { return *f != Faults{Depth: f.Depth, Hold: f.Hold} }

// flowKey names the packets from one address to one QP.
type flowKey struct {
	src, dst netip.Addr
	qpn      uint32
}

// flow is what the faults need to know of them.
type flow struct {
	rand *rand.Rand
	sent uint64
	held []*run // wait until the flow has sent number run.upTo
}

func (s *Sim) flow(src netip.Addr, dst netip.AddrPort, pkt []byte) *flow {
	key := flowKey{src: src, dst: dst.Addr()}
	if len(pkt) >= wire.BTHSize {
		key.qpn = wire.BTH(pkt).QPN()
	}
	f := s.flows[key]
	if f == nil {
		h := fnv.New64a()
		from, to := src.As16(), dst.Addr().As16()
		h.Write(from[:])
		h.Write(to[:])
		h.Write(binary.BigEndian.AppendUint32(nil, key.qpn))
		f = &flow{rand: rand.New(rand.NewPCG(s.cfg.Seed, h.Sum64()))}
		s.flows[key] = f
	}
	return f
}

// chance draws only for what can happen, so that a run without one kind of
// fault draws the same as before that kind was there.
func (f *flow) chance(p float64) bool { return p > 0 && f.rand.Float64() < p }

// way takes the packets of one Send call through hooks and faults, and puts
// those together again that came through side by side.
type way struct {
	s    *Sim
	to   *SimLink
	open *run // packets that stay together so far
	flow *flow
}

func (w *way) flush() {
	if w.open != nil {
		w.s.deliver(w.to, w.open, w.s.delay(w.flow))
		w.open = nil
	}
}

func (w *way) packet(r *run, f *flow, d *Datagrams) {
	f.sent++
	switch fate, upTo := w.s.fate(r, f, d.Addr); fate {
	case Drop:
		w.flush()
		w.s.free(r)
	case Twice:
		w.flush()
		again := w.s.newRun(r.from, r.tos, r.id, 0, r.data)
		w.s.deliver(w.to, r, w.s.delay(f))
		w.s.deliver(w.to, again, w.s.delay(f))
	case Swap:
		w.flush()
		w.hold(r, f, upTo)
	default:
		w.pass(r, f, d)
	}
	w.release(f)
}

func (w *way) pass(r *run, f *flow, d *Datagrams) {
	if w.open != nil && w.flow == f && w.open.takes(r) {
		w.open.data = append(w.open.data, r.data...)
		w.s.free(r)
		return
	}
	w.flush()
	if !w.s.cfg.Split && w.s.faults.Jitter == 0 && len(r.data) == d.Seg {
		r = w.s.roomy(r)
	}
	w.open, w.flow = r, f
}

// hold keeps a packet back until the flow has sent number upTo, or for the
// longest time.
func (w *way) hold(r *run, f *flow, upTo uint64) {
	r.flow, r.upTo = f, upTo
	f.held = append(f.held, r)
	hold := w.s.faults.Hold
	if hold == 0 {
		hold = 100 * time.Microsecond
	}
	w.s.deliver(w.to, r, w.s.delay(f)+hold)
}

// release lets go, behind the packet just sent, of those that it was the last
// to overtake.
func (w *way) release(f *flow) {
	for i := 0; i < len(f.held); {
		r := f.held[i]
		if f.sent < r.upTo {
			i++
			continue
		}
		w.flush()
		r.to.hasten(r, w.s.due(w.s.delay(f)), w.s.next()) // takes it out of held
	}
}

// forget takes a run out of those that its flow holds back.
func (f *flow) forget(r *run) {
	for i, q := range f.held {
		if q == r {
			f.held = append(f.held[:i], f.held[i+1:]...)
			break
		}
	}
	r.flow = nil
}

// fate asks the hooks, then draws. For Swap it says which number of the flow
// must have gone before.
func (s *Sim) fate(r *run, f *flow, dst netip.AddrPort) (fate Fate, upTo uint64) {
	if len(s.hooks) > 0 {
		if fate := s.ask(r, dst); fate != Pass {
			return fate, f.sent + 1
		}
	}
	if f.chance(s.faults.Loss) {
		return Drop, 0
	}
	if f.chance(s.faults.Corrupt) {
		damage(r.data, f.rand)
	}
	if f.chance(s.faults.Mark) && r.tos&3 != 0 {
		r.tos |= 3
	}
	if f.chance(s.faults.Duplicate) {
		return Twice, 0
	}
	if f.chance(s.faults.Reorder) {
		depth := s.faults.Depth
		if depth <= 0 {
			depth = 8
		}
		return Swap, f.sent + 1 + f.rand.Uint64N(uint64(depth))
	}
	return Clean, 0
}

// ask is the first verdict of a hook.
func (s *Sim) ask(r *run, dst netip.AddrPort) (fate Fate) {
	p := SimPacket{Src: r.from, Dst: dst, ID: r.id, TOS: r.tos, Data: r.data}
	for _, h := range s.hooks {
		if fate = (*h)(&p); fate != Pass {
			break
		}
	}
	r.tos, r.data = p.TOS, p.Data
	return fate
}

// damage changes one bit, or one to four neighbouring bytes.
func damage(b []byte, r *rand.Rand) {
	if len(b) == 0 {
		return
	}
	at := r.IntN(len(b))
	if r.IntN(2) == 0 {
		b[at] ^= 1 << r.IntN(8)
		return
	}
	for i := range min(1+r.IntN(4), len(b)-at) {
		b[at+i] ^= byte(1 + r.IntN(255))
	}
}

func (s *Sim) delay(f *flow) time.Duration {
	d := s.faults.Delay
	if s.faults.Jitter > 0 && f != nil {
		d += time.Duration(f.rand.Int64N(int64(s.faults.Jitter)))
	}
	return d
}

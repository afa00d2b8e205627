package softroce

import (
	"bytes"
	"cmp"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/softdev"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
	"github.com/purerdma/purerdma/internal/offheap"
)

// rigConfig is what a test wants of two connected ends on a network in memory.
type rigConfig struct {
	typ        driver.QPType // RC if 0
	sim        SimConfig
	mtu        driver.MTU // 256 if 0
	psn        uint32
	timeout    uint8 // 14 (67 ms) if 0; 255 is none
	retryCnt   uint8 // 7 if 0; 255 is none
	rnrRetry   uint8 // 7 if 0; 255 is none
	rdAtomic   uint8 // 16 if 0; 255 is none
	access     driver.Access
	memory     int
	depth      int
	cqDepth    int
	retryLimit uint8
	ecn        bool
	capture    func(device string) (io.WriteCloser, error)
	srq        driver.SRQConfig // of b; none if empty
	v6         bool
	tos        uint8 // of address handles
	unseen     bool  // packets are not recorded
	signalAll  bool
	apart      bool // leave the QPs in Init
}

const everything = driver.LocalWrite | driver.RemoteWrite | driver.RemoteRead | driver.RemoteAtomic

// rig is two ends in a bubble of virtual time. a's packets and b's are recorded.
type rig struct {
	t    testing.TB
	cfg  rigConfig
	sim  *Sim
	a, b *end

	mu   sync.Mutex
	seen []seenPacket

	atEnd []func()
}

// seenPacket is a packet that went onto the network.
type seenPacket struct {
	at       time.Duration
	from     byte // 'a' or 'b'
	src      netip.AddrPort
	op       wire.Opcode
	psn      wire.PSN
	ackReq   bool
	syndrome wire.Syndrome
	reth     [2]uint64 // address and length
	payload  int
	data     []byte
}

type end struct {
	r    *rig
	name byte
	addr netip.Addr
	ctx  driver.Context
	pd   driver.PD
	cq   driver.CQ
	srq  *srq
	q    *qp
	mem  driver.Span
	mr   driver.MR
	got  []driver.WC // polled and not yet taken
}

// orElse is the default for 0, and 0 for 255.
func orElse(v, def uint8) uint8 {
	switch v {
	case 255:
		return 0
	case 0:
		return def
	}
	return v
}

// inBubble runs f with a rig, under virtual time.
func inBubble(t *testing.T, c rigConfig, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, c)
		defer r.close()
		f(r)
	})
}

func newRig(t testing.TB, c rigConfig) *rig {
	c.timeout, c.retryCnt, c.rnrRetry, c.rdAtomic = orElse(c.timeout, 14), orElse(c.retryCnt, 7), orElse(c.rnrRetry, 7), orElse(c.rdAtomic, 16)
	c.mtu, c.access, c.typ = cmp.Or(c.mtu, driver.MTU256), cmp.Or(c.access, everything), cmp.Or(c.typ, driver.RC)
	c.memory, c.depth = cmp.Or(c.memory, 256<<10), cmp.Or(c.depth, 64)
	c.cqDepth = cmp.Or(c.cqDepth, 4*c.depth)
	if c.sim.MTU == 0 {
		c.sim.MTU = 9000
	}
	r := &rig{t: t, cfg: c, sim: NewSim(c.sim)}
	addrs := []netip.Addr{addrA, addrB}
	if c.v6 {
		addrs = []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
	}
	start := time.Now()
	if !c.unseen {
		r.sim.Hook(func(p *link.SimPacket) link.Fate {
			r.record(time.Since(start), p)
			return link.Pass
		})
	}
	drv := New(Config{Addrs: addrs, Network: OnSim(r.sim), retryLimit: c.retryLimit, ECN: c.ecn, Capture: c.capture})
	devices, _ := drv.Devices()
	r.a, r.b = &end{r: r, name: 'a', addr: addrs[0]}, &end{r: r, name: 'b', addr: addrs[1]}
	for i, e := range []*end{r.a, r.b} {
		e.open(devices[i])
	}
	if !c.apart {
		r.a.connect(r.b)
		r.b.connect(r.a)
	}
	return r
}

func (r *rig) record(at time.Duration, s *link.SimPacket) {
	p, err := wire.Parse(s.Data)
	if err != nil {
		return
	}
	o := seenPacket{at: at, from: 'a', src: s.Src, op: p.Opcode(), psn: p.BTH().PSN(), ackReq: p.BTH().AckReq(), payload: len(p.Payload()), data: bytes.Clone(s.Data)}
	if s.Src.Addr() == r.b.addr {
		o.from = 'b'
	}
	if p.Opcode().HasAETH() {
		o.syndrome = p.AETH().Syndrome()
	}
	if p.Opcode().HasRETH() {
		o.reth = [2]uint64{p.RETH().VA(), uint64(p.RETH().Length())}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, o)
}

// packets is what went onto the network and is as wanted.
func (r *rig) packets(want func(seenPacket) bool) []seenPacket {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []seenPacket
	for _, p := range r.seen {
		if want(p) {
			list = append(list, p)
		}
	}
	return list
}

func (r *rig) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = nil
}

// naks is the NAKs of a kind that b sent.
func (r *rig) naks(s wire.Syndrome) []seenPacket {
	return r.packets(func(p seenPacket) bool { return p.from == 'b' && p.op == wire.RCAck && p.syndrome == s })
}

// sent is the packets that a sent with an operation.
func (r *rig) sent(op wire.Operation) []seenPacket {
	return r.packets(func(p seenPacket) bool { return p.from == 'a' && p.op.Operation() == op })
}

// on is a match for hooks: packets from an end with an operation.
func (r *rig) on(from byte, op wire.Operation) func(*link.SimPacket) bool {
	addr := r.a.addr
	if from == 'b' {
		addr = r.b.addr
	}
	return func(p *link.SimPacket) bool {
		return p.Src.Addr() == addr && wire.Opcode(p.Data[0]).Operation() == op
	}
}

// cut loses all that an end sends until mend is called.
func (r *rig) cut(from *end) (mend func()) {
	return r.sim.Hook(func(p *link.SimPacket) link.Fate {
		if p.Src.Addr() == from.addr {
			return link.Drop
		}
		return link.Pass
	})
}

// settle waits until nothing moves any more but timers.
func (r *rig) settle() { synctest.Wait() }

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (e *end) open(d driver.Device) {
	r := e.r
	var err error
	e.ctx, err = d.Open()
	r.must(err)
	e.pd, err = e.ctx.AllocPD()
	r.must(err)
	e.cq, err = e.ctx.CreateCQ(driver.CQConfig{Depth: r.cfg.cqDepth, Cookie: 1})
	r.must(err)
	e.mem, err = offheap.Map(r.cfg.memory, offheap.Options{})
	r.must(err)
	e.mr, err = e.pd.RegMR(e.mem, e.mem.Addr(), everything)
	r.must(err)
	if c := r.cfg.srq; c.WR > 0 && e.name == 'b' {
		q, err := e.pd.CreateSRQ(c)
		r.must(err)
		e.srq = q.(*srq)
	}
	e.q = e.newQP(e.cq)
}

func (e *end) newQP(cq driver.CQ) *qp {
	c := driver.QPConfig{Type: e.r.cfg.typ, SendCQ: cq, RecvCQ: cq, SignalAll: e.r.cfg.signalAll, Cookie: 7,
		Cap: driver.QPCap{SendWR: e.r.cfg.depth, RecvWR: e.r.cfg.depth, SendSGE: 4, RecvSGE: 4, Inline: 64}}
	if e.srq != nil {
		c.SRQ = e.srq
	}
	q, err := e.pd.CreateQP(c)
	e.r.must(err)
	rights := driver.QPAccessFlags
	if e.r.cfg.typ == driver.UD {
		rights = driver.QPQKey
	}
	e.r.must(q.Modify(&driver.QPAttr{State: driver.StateInit, Port: 1, Access: e.r.cfg.access, QKey: rigQKey},
		driver.QPStateMask|driver.QPPort|driver.QPPKeyIndex|rights))
	return q.(*qp)
}

func (e *end) connect(peer *end) {
	join(e, e.q, peer, peer.q)
}

// join brings q of end e to RTS, connected to the QP of a peer.
func join(e *end, q *qp, peer *end, to *qp) {
	e.r.must(toRTR(e, q, peer, to.num))
	e.r.must(toRTS(e, q))
}

func toRTR(e *end, q *qp, peer *end, num uint32) error {
	c := &e.r.cfg
	return q.Modify(&driver.QPAttr{State: driver.StateRTR, PathMTU: c.mtu, DestQPN: num, RQPSN: c.psn, MaxDestRdAtomic: c.rdAtomic, MinRNRTimer: 12,
		AH: driver.AHAttr{DGID: gidOf(peer.addr), Port: 1, IsGlobal: true, HopLimit: 64},
	}, driver.QPStateMask|softdev.Required(c.typ, driver.StateInit, driver.StateRTR))
}

func toRTS(e *end, q *qp) error {
	c := &e.r.cfg
	return q.Modify(&driver.QPAttr{State: driver.StateRTS, SQPSN: c.psn, Timeout: c.timeout, RetryCnt: c.retryCnt, RNRRetry: c.rnrRetry, MaxRdAtomic: c.rdAtomic},
		driver.QPStateMask|softdev.Required(c.typ, driver.StateRTR, driver.StateRTS))
}

// later runs f when the QPs are closed.
func (r *rig) later(f func()) { r.atEnd = append(r.atEnd, f) }

func (r *rig) close() {
	for _, e := range []*end{r.a, r.b} {
		r.must(e.q.Close())
	}
	for _, f := range r.atEnd {
		f()
	}
	for _, e := range []*end{r.a, r.b} {
		if e.mr != nil {
			r.must(e.mr.Close())
		}
		r.must(e.cq.Close())
		if e.srq != nil {
			r.must(e.srq.Close())
		}
		r.must(e.pd.Close())
		r.must(e.ctx.Close())
		_ = e.mem.Release()
	}
}

func (e *end) key() uint32 { k, _ := e.mr.Keys(); return k }

func (e *end) sge(off, n int) driver.SGE {
	return driver.SGE{Addr: e.mem.Addr() + uint64(off), Length: uint32(n), LKey: e.key()}
}

func (e *end) remote(off int) driver.Remote {
	return driver.Remote{Addr: e.mem.Addr() + uint64(off), RKey: e.key()}
}

func (e *end) bytes(off, n int) []byte { return e.mem.Bytes()[off : off+n] }

func (e *end) fill(seed uint64) { fillRandom(rand.New(rand.NewPCG(seed, 1)), e.mem.Bytes()) }

func fillRandom(g *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(g.Uint32())
	}
}

func (e *end) post(wrs ...driver.SendWR) {
	e.r.t.Helper()
	if n, err := e.q.PostSend(wrs); err != nil || n != len(wrs) {
		e.r.t.Fatalf("post send: %d of %d, %v", n, len(wrs), err)
	}
}

func (e *end) recv(wrs ...driver.RecvWR) {
	e.r.t.Helper()
	if n, err := e.q.PostRecv(wrs); err != nil || n != len(wrs) {
		e.r.t.Fatalf("post receive: %d of %d, %v", n, len(wrs), err)
	}
}

// write is a signaled write of n bytes from off to the same place at the peer.
func (e *end) write(id uint64, off, n int) driver.SendWR {
	return driver.SendWR{ID: id, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{e.sge(off, n)}, Remote: e.peer().remote(off)}
}

func (e *end) read(id uint64, off, n int) driver.SendWR {
	w := e.write(id, off, n)
	w.Op = driver.OpRead
	return w
}

func (e *end) send(id uint64, off, n int) driver.SendWR {
	return driver.SendWR{ID: id, Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{e.sge(off, n)}}
}

func (e *end) add(id uint64, off int, v uint64) driver.SendWR {
	w := e.write(id, off, 8)
	w.Op, w.CompareAdd = driver.OpFetchAdd, v
	return w
}

func (e *end) peer() *end {
	if e == e.r.a {
		return e.r.b
	}
	return e.r.a
}

// poll is what is there now.
func (e *end) poll() []driver.WC {
	wcs := make([]driver.WC, 256)
	n, err := e.cq.Poll(wcs)
	if err != nil {
		e.r.t.Fatalf("%c: poll: %v", e.name, err)
	}
	return wcs[:n]
}

// take waits for n completions, for a minute at most.
func (e *end) take(n int) []driver.WC {
	e.r.t.Helper()
	step := 5 * time.Microsecond
	for start := time.Now(); ; time.Sleep(step) {
		e.got = append(e.got, e.poll()...)
		if len(e.got) >= n {
			break
		}
		d := time.Since(start)
		if d > time.Minute {
			e.r.t.Fatalf("%c: %d completions of %d in a minute: %+v", e.name, len(e.got), n, e.got)
		}
		step = min(max(step, d/64), time.Millisecond/2)
	}
	all := e.got[:n:n]
	e.got = e.got[n:]
	return all
}

// one waits for a completion of this request with this status.
func (e *end) one(id uint64, status driver.Status) driver.WC {
	e.r.t.Helper()
	wc := e.take(1)[0]
	if wc.ID != id || wc.Status != status {
		e.r.t.Fatalf("%c: request %d ended in %v, want request %d in %v", e.name, wc.ID, wc.Status, id, status)
	}
	return wc
}

// none sees that nothing completes for some time.
func (e *end) none(d time.Duration) {
	e.r.t.Helper()
	time.Sleep(d)
	if e.got = append(e.got, e.poll()...); len(e.got) > 0 {
		e.r.t.Fatalf("%c: completions where none is due: %+v", e.name, e.got)
	}
}

func (e *end) state() driver.QPState {
	a, err := e.q.Query()
	e.r.must(err)
	return a.State
}

func (e *end) counters() *counters { return &e.q.e.counters }

// same says whether n bytes from off on are equal at both ends.
func (r *rig) same(off, n int) {
	r.t.Helper()
	if !bytes.Equal(r.a.bytes(off, n), r.b.bytes(off, n)) {
		r.t.Fatalf("%d bytes from %d on differ", n, off)
	}
}

// forge delivers to b a packet that claims to come from a's QP.
func (r *rig) forge(op wire.Opcode, f wire.Flags, psn wire.PSN, payload []byte, fill func(p wire.Packet)) {
	r.inject(r.a, r.b, op, f, psn, payload, fill)
}

func (r *rig) inject(from, to *end, op wire.Opcode, f wire.Flags, psn wire.PSN, payload []byte, fill func(p wire.Packet)) {
	buf := make([]byte, 8192)
	p := wire.Make(buf, op, len(payload))
	p.BTH().Put(op, f, defaultPKey, to.q.num, psn)
	copy(p.Payload(), payload)
	if fill != nil {
		fill(p)
	}
	src := netip.AddrPortFrom(from.addr, wire.Port)
	path := wire.NewPath(src, netip.AddrPortFrom(to.addr, wire.Port))
	path.Seal(p.Bytes(), 0)
	r.sim.Inject(src, to.addr, p.Bytes())
	r.settle()
}

// event is the next asynchronous event of the end's context, or the zero value.
func (e *end) event() driver.Event {
	ev, ok := e.ctx.(*softContext).events.Take()
	if !ok {
		return driver.Event{Type: 255}
	}
	return ev
}

func (e *end) wantEvent(want driver.EventType) {
	e.r.t.Helper()
	var got []driver.EventType
	for {
		ev := e.event()
		if ev.Type == 255 {
			break
		}
		got = append(got, ev.Type)
	}
	if !slices.Contains(got, want) {
		e.r.t.Errorf("%c: events %v, want %v", e.name, got, want)
	}
}

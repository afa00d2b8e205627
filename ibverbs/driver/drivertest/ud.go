package drivertest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// grhBytes is what stands in front of a received datagram.
const grhBytes = 40

// testQKey is the Q_Key of all QPs that a test does not give another.
const testQKey = 0x1234567

// testUD is datagrams and address handles.
func testUD(t *testing.T, cfg Config) {
	has(t, cfg, driver.UD, cfg.NoUD, driver.FeatureUD, driver.FeatureAH)
	for _, part := range []struct {
		name string
		run  func(*testing.T, Config)
	}{
		{"AddressHandles", testAddressHandles},
		{"Datagrams", testDatagrams},
		{"TooLong", testDatagramTooLong},
		{"QKeys", testQKeys},
		{"Refusals", testUDRefusals},
		{"Attributes", testUDAttributes},
		{"Losses", testUDLosses},
		{"TooShort", testUDTooShort},
		{"LocalErrors", testUDLocalErrors},
		{"ReceiveErrors", testUDReceiveErrors},
		{"ManyPeers", testUDManyPeers},
		{"HandleCloses", testHandleCloses},
		{"Reset", testUDReset},
		{"Allocations", testUDAllocations},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, cfg) })
	}
}

// initUD brings a QP to Init.
func (s *side) initUD() error {
	return s.modify(driver.QPAttr{State: driver.StateInit, Port: s.Port, QKey: testQKey},
		driver.QPStateMask|driver.QPPort|driver.QPPKeyIndex|driver.QPQKey)
}

// udSide is a side that sends datagrams to its peer.
type udSide struct {
	*side
	ah driver.AH
}

func connectUD(t testing.TB, cfg Config, want setup) (a, b udSide) {
	want.typ = driver.UD
	x, y := connect(t, cfg, want)
	return udSide{x, x.handle()}, udSide{y, y.handle()}
}

// handle is an address handle to the peer's port.
func (s *side) handle() driver.AH {
	s.t.Helper()
	h, err := s.pd.CreateAH(s.toPeer())
	must(s.t, "create address handle", err)
	s.t.Cleanup(func() { check(s.t, "close address handle", h.Close()) })
	return h
}

func (s udSide) to() driver.Destination {
	return driver.Destination{AH: s.ah, QPN: s.peer.qp.Num(), QKey: testQKey}
}

// send is a datagram of n bytes from off on.
func (s udSide) send(id uint64, off, n int) driver.SendWR {
	return driver.SendWR{ID: id, Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{s.sge(off, n)}, UD: s.to()}
}

func testAddressHandles(t *testing.T, cfg Config) {
	a, _ := open(t, cfg)
	pd := a.otherPD()
	changes := map[string]func(*driver.AHAttr){
		"port 0":            func(h *driver.AHAttr) { h.Port = 0 },
		"port too high":     func(h *driver.AHAttr) { h.Port = a.attr.Ports + 1 },
		"no such SGIDIndex": func(h *driver.AHAttr) { h.SGIDIndex = a.port.GIDTableLen },
	}
	if a.port.LinkLayer == driver.LinkEthernet {
		changes["not global"] = func(h *driver.AHAttr) { h.IsGlobal = false }
	}
	for name, change := range changes {
		attr := a.toPeer()
		change(&attr)
		if h, err := pd.CreateAH(attr); err == nil {
			t.Errorf("an address handle was made: %s", name)
			check(t, "close address handle", h.Close())
		}
	}
	first, err := pd.CreateAH(a.toPeer())
	must(t, "create address handle", err)
	second, err := pd.CreateAH(a.toPeer())
	must(t, "create a second handle of one way", err)
	check(t, "close address handle", first.Close())
	check(t, "close address handle", second.Close())
}

func testDatagrams(t *testing.T, cfg Config) {
	a, b := connectUD(t, cfg, setup{})
	mtu := a.mtu().Bytes()
	rng := rand.New(rand.NewPCG(cfg.Seed, 12))
	for _, m := range moves[:2] {
		for _, n := range edges(mtu, mtu) {
			for i, from := range []udSide{a, b} {
				t.Run(fmt.Sprintf("%s/%d/%c", m.name, n, 'a'+i), func(t *testing.T) { from.carry(t, m, n, rng) })
			}
		}
	}
	t.Run("inline", func(t *testing.T) {
		limit := a.qp.Cap().Inline
		for _, n := range []int{0, 1, limit} {
			data := randomBytes(rng, n)
			fill(b.bytes(0, 2*guard+grhBytes+limit), 0xee)
			b.postRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(guard, grhBytes+limit)}})
			wc := a.untilArrives(t, driver.SendWR{ID: 2, Op: driver.OpSend, Inline: data, UD: a.to()}, 1)
			if wc.ByteLen != uint32(grhBytes+n) {
				t.Errorf("%d bytes came, want %d and %d", wc.ByteLen, grhBytes, n)
			}
			fill(b.bytes(guard, grhBytes), 0xee)
			b.wantBytes(t, guard+grhBytes, data, 2*guard+grhBytes+limit)
		}
	})
}

// carry sends one datagram, gathered from two places into two that do not end where
// the header does.
func (s udSide) carry(t *testing.T, m move, n int, rng *rand.Rand) {
	dst := s.peer
	data := randomBytes(rng, n)
	cut := rng.IntN(n + 1)
	copy(s.bytes(3, cut), data)
	copy(s.bytes(8192, n-cut), data[cut:])
	whole := guard + grhBytes + n + guard
	fill(dst.bytes(0, whole), 0xee)
	first := 1 + rng.IntN(grhBytes+n-1)
	dst.postRecv(driver.RecvWR{ID: 5, SGL: []driver.SGE{dst.sge(guard, first), dst.sge(guard+first, grhBytes+n-first)}})
	imm := rng.Uint32()
	wc := s.untilArrives(t, driver.SendWR{ID: 6, Op: m.op, Imm: imm, SGL: []driver.SGE{s.sge(3, cut), s.sge(8192, n-cut)}, UD: s.to()}, 5)
	if wc.Op != driver.WCRecv || wc.ByteLen != uint32(grhBytes+n) || wc.SrcQP != s.qp.Num() ||
		m.imm != (wc.Flags&driver.WCWithImm != 0) || m.imm && wc.Imm != imm {
		t.Errorf("%+v, want %d and %d bytes from QP %#x, immediate %v %#x", wc, grhBytes, n, s.qp.Num(), m.imm, imm)
	}
	if s.port.LinkLayer == driver.LinkEthernet {
		if wc.Flags&driver.WCGRH == 0 {
			t.Errorf("%+v has no GRH", wc)
		}
		s.wantGRH(t, dst.bytes(guard, grhBytes), n)
	}
	fill(dst.bytes(guard, grhBytes), 0xee)
	dst.wantBytes(t, guard+grhBytes, data, whole)
}

// wantGRH looks at the addresses in the header of a datagram of s: an IPv6 header,
// or an IPv4 header in the last 20 bytes.
func (s udSide) wantGRH(t *testing.T, h []byte, n int) {
	t.Helper()
	var src, dst driver.GID
	version := h[0] >> 4
	if s.gid.Addr().Is4() {
		ip := h[20:]
		version = ip[0] >> 4
		if version != 4 {
			t.Errorf("GRH % x, want an IPv4 header in the last 20 bytes", h)
			return
		}
		src, dst = mapped(ip[12:16]), mapped(ip[16:20])
		if got := int(binary.BigEndian.Uint16(ip[2:])); got < 20+8+n {
			t.Errorf("IPv4 total length %d for %d bytes", got, n)
		}
	} else {
		if version != 6 {
			t.Errorf("GRH % x, want an IPv6 header", h)
		}
		copy(src[:], h[8:])
		copy(dst[:], h[24:])
	}
	if src != s.gid || dst != s.peer.gid {
		t.Errorf("GRH from %v to %v, want %v and %v", src, dst, s.gid, s.peer.gid)
	}
}

func mapped(ip []byte) driver.GID {
	g := driver.GID{10: 0xff, 11: 0xff}
	copy(g[12:], ip)
	return g
}

// testDatagramTooLong has more than one packet takes. It is refused, or fails, or is
// sent as nothing (IBTA C10-93.1.1); nothing arrives of it.
func testDatagramTooLong(t *testing.T, cfg Config) {
	a, b := connectUD(t, cfg, setup{})
	n := a.port.ActiveMTU.Bytes() + 1
	fill(b.mem.Bytes(), 0xee)
	b.postRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(0, 2*n)}})
	if posted, err := a.trySend(a.send(2, 0, n)); err == nil && posted == 1 {
		a.oneOf(2, driver.Success, driver.LocLenErr, driver.LocQPOpErr)
	} else {
		a.none()
	}
	b.none()
	b.unchanged(t)
}

func testQKeys(t *testing.T, cfg Config) {
	a, b := connectUD(t, cfg, setup{})
	b.postRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(0, 100)}}, driver.RecvWR{ID: 2, SGL: []driver.SGE{b.sge(0, 100)}},
		driver.RecvWR{ID: 3, SGL: []driver.SGE{b.sge(0, 100)}})
	wrong := a.send(10, 0, 8)
	wrong.UD.QKey ^= 1
	a.postSend(wrong)
	a.one(10, driver.Success)
	b.none()
	a.untilArrives(t, a.send(11, 0, 8), 1)
	own := a.send(12, 0, 8)
	own.UD.QKey = 1<<31 | 0x55
	a.untilArrives(t, own, 2)
	must(t, "give the QP another Q_Key", b.modify(driver.QPAttr{QKey: testQKey + 1}, driver.QPQKey))
	a.postSend(a.send(13, 0, 8))
	a.one(13, driver.Success)
	b.none()
	other := a.send(14, 0, 8)
	other.UD.QKey = testQKey + 1
	a.untilArrives(t, other, 3)
}

func testUDRefusals(t *testing.T, cfg Config) {
	a, b := connectUD(t, cfg, setup{})
	sgl := []driver.SGE{a.sge(0, 8)}
	var wrs []driver.SendWR
	for _, op := range []driver.Opcode{driver.OpWrite, driver.OpWriteWithImm, driver.OpRead, driver.OpFetchAdd, driver.OpCmpSwap, 77} {
		wrs = append(wrs, driver.SendWR{Op: op, SGL: sgl, Remote: b.remote(0), UD: a.to()})
	}
	a.refuses(t, driver.ErrBadOpcode, wrs...)
	if n, err := a.trySend(driver.SendWR{Op: driver.OpSend, SGL: []driver.SGE{a.sge(0, 8)}}); n != 0 || err == nil {
		t.Errorf("a datagram to nowhere: %d, %v", n, err)
	}
	a.none()
	b.postRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(0, 48)}})
	a.untilArrives(t, a.send(2, 0, 8), 1)
}

func testUDAttributes(t *testing.T, cfg Config) {
	a, b := open(t, cfg)
	want := setup{typ: driver.UD}.withDefaults(cfg)
	b.build(want)
	a.build(want)
	a.state(driver.StateReset)
	for name, mask := range map[string]driver.QPMask{
		"without a Q_Key": driver.QPPort | driver.QPPKeyIndex,
		"without a port":  driver.QPPKeyIndex | driver.QPQKey,
		"with rights":     driver.QPPort | driver.QPPKeyIndex | driver.QPQKey | driver.QPAccessFlags,
	} {
		if a.modify(driver.QPAttr{State: driver.StateInit, Port: a.Port, QKey: testQKey}, driver.QPStateMask|mask) == nil {
			t.Errorf("INIT %s was accepted", name)
			a.state(driver.StateReset)
		}
	}
	must(t, "modify to INIT", a.initUD())
	a.join(want)
	b.join(want)
	attr, err := a.qp.Query()
	must(t, "query QP", err)
	if attr.State != driver.StateRTS || attr.QKey != testQKey {
		t.Errorf("query says %+v", attr)
	}
}

// testUDLosses has datagrams that the receiver throws away; the next arrives.
func testUDLosses(t *testing.T, cfg Config) {
	a, b := connectUD(t, cfg, setup{})
	fill(b.mem.Bytes(), 0xee)
	a.postSend(a.send(1, 0, 8)) // there is no receive
	a.one(1, driver.Success)
	b.none()
	unknown := a.send(2, 0, 8)
	unknown.UD.QPN ^= 0x800000
	a.postSend(unknown)
	a.one(2, driver.Success)
	b.unchanged(t)
	copy(a.bytes(0, 8), "the next")
	b.postRecv(driver.RecvWR{ID: 3, SGL: []driver.SGE{b.sge(0, 48)}})
	a.untilArrives(t, a.send(4, 0, 8), 3)
	if got := string(b.bytes(grhBytes, 8)); got != "the next" {
		t.Errorf("%q came", got)
	}
	gone := a.send(5, 0, 8)
	b.closeQP()
	a.postSend(gone)
	a.one(5, driver.Success)
	a.awaitState(driver.StateRTS)
}

// testUDTooShort takes either: silence, or a receive that ends in error.
func testUDTooShort(t *testing.T, cfg Config) {
	for _, room := range []int{0, grhBytes - 1, grhBytes + 7} {
		a, b := connectUD(t, cfg, setup{})
		b.postRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(0, room)}})
		a.postSend(a.send(2, 0, 8))
		a.one(2, driver.Success)
		time.Sleep(cfg.Quiet)
		if wcs, err := b.cq.pollOnce(1); err != nil || len(wcs) > 0 && wcs[0].Status == driver.Success {
			t.Errorf("a datagram of %d and 8 bytes into %d: %+v, %v", grhBytes, room, wcs, err)
		}
	}
}

func testUDLocalErrors(t *testing.T, cfg Config) {
	a, b := connectUD(t, cfg, setup{})
	of := func(s *side) udSide {
		if s == a.side {
			return a
		}
		return b
	}
	sendQueueFails(t, a.side, b.side, func(from *side) driver.SendWR {
		wr := of(from).send(0, 0, 8)
		wr.SGL[0].LKey ^= 0x7f00
		return wr
	}, func(from *side) driver.SendWR {
		return of(from).send(0, 0, 8)
	}, func(at *side, id uint64) driver.RecvWR {
		return driver.RecvWR{ID: id, SGL: []driver.SGE{at.sge(64, 48)}}
	}, driver.LocProtErr, driver.LocQPOpErr)
}

// testUDReceiveErrors has a receive whose memory is not there: its QP fails.
func testUDReceiveErrors(t *testing.T, cfg Config) {
	a, b := connectUD(t, cfg, setup{})
	b.postRecv(driver.RecvWR{ID: 50, SGL: []driver.SGE{{Addr: b.mem.Addr(), Length: 4096, LKey: b.lkey() ^ 0x7f00}}}, driver.RecvWR{ID: 51})
	for range tries {
		a.postSend(a.send(1, 0, 100))
		a.one(1, driver.Success)
		if wc := b.arrival(); wc != nil {
			if wc.ID != 50 || wc.Status != driver.LocProtErr && wc.Status != driver.LocQPOpErr {
				t.Errorf("receive %+v (%v)", *wc, wc.Status)
			}
			break
		}
	}
	b.one(51, driver.WRFlushErr)
	b.awaitState(driver.StateErr)
}

// testUDManyPeers sends to two QPs by two handles in one list, and from two to one.
func testUDManyPeers(t *testing.T, cfg Config) {
	a, b := connectUD(t, cfg, setup{})
	second := a.handle()
	b2 := b.twinUD()
	for try := 1; ; try++ {
		b.postRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(0, 48)}})
		b2.postRecv(driver.RecvWR{ID: 2, SGL: []driver.SGE{b.sge(100, 48)}})
		copy(a.bytes(0, 16), "to first"+"to other")
		x, y := a.send(10, 0, 8), a.send(11, 8, 8)
		y.UD = driver.Destination{AH: second, QPN: b2.qp.Num(), QKey: testQKey}
		a.postSend(x, y)
		a.one(10, driver.Success)
		a.one(11, driver.Success)
		got := map[uint32]string{}
		for range 2 {
			if wc := b.arrival(); wc != nil && wc.Status == driver.Success && wc.SrcQP == a.qp.Num() {
				got[wc.QPN] = string(b.bytes(int(wc.ID-1)*100+grhBytes, 8))
			}
		}
		if len(got) == 2 {
			if got[b.qp.Num()] != "to first" || got[b2.qp.Num()] != "to other" {
				t.Errorf("came %v", got)
			}
			return
		}
		if try == tries {
			t.Fatalf("of %d tries none arrived whole: %v", tries, got)
		}
		for _, s := range []*side{b.side, b2} { // takes the receives out
			s.state(driver.StateReset)
			must(t, "modify to INIT", s.initUD())
			s.join(setup{typ: driver.UD})
		}
	}
}

// twinUD is another QP of s in RTS.
func (s *side) twinUD() *side {
	c := &side{t: s.t, cfg: s.cfg, End: s.End, attr: s.attr, port: s.port, gid: s.gid, pd: s.pd, cq: s.cq, mem: s.mem, mr: s.mr, peer: s.peer}
	var err error
	c.qp, err = s.pd.CreateQP(driver.QPConfig{Type: driver.UD, SendCQ: s.cq.CQ, RecvCQ: s.cq.CQ, Cap: driver.QPCap{
		SendWR: 16, RecvWR: 16, SendSGE: 1, RecvSGE: 1}, Cookie: 78})
	must(s.t, "create QP", err)
	s.t.Cleanup(func() { c.closeQP() })
	must(s.t, "modify to INIT", c.initUD())
	c.join(setup{typ: driver.UD})
	return c
}

// testHandleCloses closes handles that requests under way name, which they must not
// do: each request ends somehow, and the device lives.
func testHandleCloses(t *testing.T, cfg Config) {
	for range min(cfg.Rounds, 20) {
		a, b := connectUD(t, cfg, setup{})
		h, err := a.pd.CreateAH(a.toPeer())
		must(t, "create address handle", err)
		const n = 16
		var wrs []driver.SendWR
		for id := range uint64(n) {
			wr := a.send(id, 0, 8)
			wr.UD.AH = h
			wrs = append(wrs, wr)
		}
		a.postSend(wrs...)
		check(t, "close address handle", h.Close())
		for i, wc := range a.take(n) {
			if wc.ID != uint64(i) {
				t.Fatalf("completion %d is %+v", i, wc)
			}
		}
		b.awaitState(driver.StateRTS)
	}
}

func testUDReset(t *testing.T, cfg Config) {
	a, b := connectUD(t, cfg, setup{})
	a.postRecv(driver.RecvWR{ID: 9, SGL: []driver.SGE{a.sge(0, 48)}})
	a.state(driver.StateErr)
	a.one(9, driver.WRFlushErr)
	a.postSend(a.send(1, 0, 8))
	a.one(1, driver.WRFlushErr)
	a.state(driver.StateReset)
	must(t, "modify to INIT", a.initUD())
	a.join(setup{typ: driver.UD})
	for _, from := range []udSide{a, b} {
		from.peer.postRecv(driver.RecvWR{ID: 2, SGL: []driver.SGE{from.peer.sge(0, 48)}})
		from.untilArrives(t, from.send(3, 0, 8), 2)
	}
}

func testUDAllocations(t *testing.T, cfg Config) {
	if cfg.PostAllocates {
		t.Skip("Config.PostAllocates")
	}
	a, b := connectUD(t, cfg, setup{})
	allocates(t, cfg, a.side, b.side, []driver.SendWR{a.send(1, 0, 64)}, []driver.RecvWR{{ID: 2, SGL: []driver.SGE{b.sge(0, 104)}}})
}

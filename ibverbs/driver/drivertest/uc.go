package drivertest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

const ucAccess = driver.LocalWrite | driver.RemoteWrite

// testUC is unreliable connections: a request completes when it was sent, what the
// peer cannot take is thrown away in silence, and what follows arrives.
func testUC(t *testing.T, cfg Config) {
	has(t, cfg, driver.UC, cfg.NoUC, driver.FeatureUC)
	for _, part := range []struct {
		name string
		run  func(*testing.T, Config)
	}{
		{"Operations", testUCOperations},
		{"PSNWrap", testUCPSNWrap},
		{"Signalling", testUCSignalling},
		{"Refusals", testUCRefusals},
		{"Attributes", testUCAttributes},
		{"Losses", testUCLosses},
		{"TooShort", testUCTooShort},
		{"LocalErrors", testUCLocalErrors},
		{"ReceiveErrors", testUCReceiveErrors},
		{"PeerGone", testUCPeerGone},
		{"Flush", testUCFlush},
		{"Allocations", testUCAllocations},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, cfg) })
	}
}

func connectUC(t testing.TB, cfg Config, want setup) (a, b *side) {
	want.typ = driver.UC
	if want.qpAccess == 0 {
		want.qpAccess = ucAccess
	}
	return connect(t, cfg, want)
}

func testUCOperations(t *testing.T, cfg Config) {
	longest := min(cfg.MaxMessage, longestUnreliable)
	a, b := connectUC(t, cfg, setup{memory: longest + 2*guard + 16})
	rng := rand.New(rand.NewPCG(cfg.Seed, 11))
	for _, m := range moves {
		if m.op == driver.OpRead {
			continue
		}
		for _, n := range edges(a.mtu().Bytes(), longest) {
			for i, from := range []*side{a, b} {
				t.Run(fmt.Sprintf("%s/%d/%c", m.name, n, 'a'+i), func(t *testing.T) { from.carryUC(t, m, n, rng) })
			}
		}
	}
	t.Run("inline", func(t *testing.T) {
		limit := a.qp.Cap().Inline
		for _, n := range []int{0, 1, limit} {
			data := randomBytes(rng, n)
			fill(b.bytes(0, 2*guard+limit), 0xee)
			b.postRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(guard, limit)}})
			if wc := a.untilArrives(t, driver.SendWR{ID: 2, Op: driver.OpSend, Inline: data}, 1); wc.ByteLen != uint32(n) {
				t.Errorf("%d bytes of %d came", wc.ByteLen, n)
			}
			b.wantBytes(t, guard, data, 2*guard+limit)
		}
	})
	t.Run("gather and scatter", func(t *testing.T) {
		data := randomBytes(rng, 300)
		copy(a.bytes(0, 100), data)
		copy(a.bytes(1001, 200), data[100:])
		fill(b.bytes(0, 1000), 0xee)
		b.postRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(guard, 7), b.sge(guard+7, 293)}})
		a.untilArrives(t, driver.SendWR{ID: 2, Op: driver.OpSend, SGL: []driver.SGE{a.sge(0, 100), a.sge(1001, 200)}}, 1)
		b.wantBytes(t, guard, data, 1000)
	})
}

// carryUC is carry without an acknowledgement.
func (s *side) carryUC(t *testing.T, m move, n int, rng *rand.Rand) {
	dst := s.peer
	from, to := rng.IntN(8), guard+rng.IntN(8)
	data := randomBytes(rng, n)
	copy(s.bytes(from, n), data)
	whole := to + n + guard
	fill(dst.bytes(0, whole), 0xee)
	id, imm := rng.Uint64(), rng.Uint32()
	wr := driver.SendWR{ID: id, Op: m.op, Imm: imm, SGL: []driver.SGE{s.sge(from, n)}, Remote: dst.remote(to)}
	switch m.recv {
	case driver.WCRecv:
		dst.postRecv(driver.RecvWR{ID: id + 1, SGL: []driver.SGE{dst.sge(to, n)}})
	case driver.WCRecvWriteWithImm:
		dst.postRecv(driver.RecvWR{ID: id + 1})
	default:
		s.writeUC(t, m, wr, to, data)
		dst.wantBytes(t, to, data, whole)
		return
	}
	wc := s.untilArrives(t, wr, id+1)
	if wc.Op != m.recv || wc.ByteLen != uint32(n) || m.imm != (wc.Flags&driver.WCWithImm != 0) || m.imm && wc.Imm != imm {
		t.Errorf("responder got %+v, want %v of %d bytes, immediate %v %#x", wc, m.recv, n, m.imm, imm)
	}
	dst.wantBytes(t, to, data, whole)
}

// writeUC writes until the bytes are there.
func (s *side) writeUC(t *testing.T, m move, wr driver.SendWR, to int, data []byte) {
	t.Helper()
	for range tries {
		s.postSend(again(wr))
		if wc := s.one(wr.ID, driver.Success); wc.Op != m.wc {
			t.Errorf("requester got %+v", wc)
		}
		for end := time.Now().Add(s.cfg.Wait / tries); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if firstDifference(s.peer.bytes(to, len(data)), data) < 0 {
				return
			}
		}
	}
	t.Fatalf("a write of %d bytes did not arrive in %d tries", len(data), tries)
}

func testUCPSNWrap(t *testing.T, cfg Config) {
	for _, psn := range []uint32{0xffffff, 0xfffff0} {
		n := 40 * 256
		a, b := connectUC(t, cfg, setup{psn: psn, mtu: driver.MTU256, memory: n + 2*guard + 16})
		rng := rand.New(rand.NewPCG(cfg.Seed, uint64(psn)))
		for _, m := range moves[:4] {
			a.carryUC(t, m, n, rng)
			b.carryUC(t, m, n, rng)
		}
	}
}

func testUCSignalling(t *testing.T, cfg Config) {
	a, b := connectUC(t, cfg, setup{})
	write := func(id uint64, f driver.SendFlags) driver.SendWR {
		return driver.SendWR{ID: id, Op: driver.OpWrite, Flags: f, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)}
	}
	a.postSend(write(1, 0), write(2, 0), write(3, driver.Signaled))
	a.one(3, driver.Success)
	a.none()
	a, b = connectUC(t, cfg, setup{signal: true})
	a.postSend(write(1, 0), write(2, 0))
	a.one(1, driver.Success)
	a.one(2, driver.Success)
}

func testUCRefusals(t *testing.T, cfg Config) {
	a, b := connectUC(t, cfg, setup{})
	sgl := []driver.SGE{a.sge(0, 8)}
	a.refuses(t, driver.ErrBadOpcode,
		driver.SendWR{Op: driver.OpRead, SGL: sgl, Remote: b.remote(0)},
		driver.SendWR{Op: driver.OpFetchAdd, SGL: sgl, Remote: b.remote(0)},
		driver.SendWR{Op: driver.OpCmpSwap, SGL: sgl, Remote: b.remote(0)},
		driver.SendWR{Op: 77, SGL: sgl})
	b.postRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(0, 8)}})
	a.untilArrives(t, driver.SendWR{ID: 2, Op: driver.OpSend, SGL: sgl}, 1)
}

// testUCAttributes sees that what only reliable connections have is refused.
func testUCAttributes(t *testing.T, cfg Config) {
	a, b := open(t, cfg)
	want := setup{typ: driver.UC, qpAccess: ucAccess}.withDefaults(cfg)
	a.build(want)
	b.build(want)
	a.toRTR(want)
	if err := a.modify(driver.QPAttr{State: driver.StateRTS, Timeout: 14, RetryCnt: 7}, driver.QPStateMask|driver.QPSQPSN|driver.QPTimeout|driver.QPRetryCnt); err == nil {
		t.Error("RTS with time-out and retry count was accepted")
	}
	a.toRTS(want)
	b.join(want)
	attr, err := a.qp.Query()
	must(t, "query QP", err)
	if attr.State != driver.StateRTS || attr.DestQPN != b.qp.Num() || attr.PathMTU != a.mtu() || attr.AH.DGID != b.gid {
		t.Errorf("query says %+v", attr)
	}
	if a.modify(driver.QPAttr{State: driver.StateSQE}, driver.QPStateMask) == nil {
		t.Error("SQE was accepted")
	}
}

// testUCLosses has messages that the responder must throw away; the requester does
// not learn of it, not a byte of memory changes, and the next message arrives.
func testUCLosses(t *testing.T, cfg Config) {
	for _, c := range []struct {
		name string
		qp   driver.Access
		wr   func(a, b *side) driver.SendWR
	}{
		{"no receive for a SEND", ucAccess, func(a, b *side) driver.SendWR {
			return driver.SendWR{Op: driver.OpSend, SGL: []driver.SGE{a.sge(0, 5000)}}
		}},
		{"wrong rkey", ucAccess, func(a, b *side) driver.SendWR {
			return driver.SendWR{Op: driver.OpWrite, SGL: []driver.SGE{a.sge(0, 5000)}, Remote: driver.Remote{Addr: b.mem.Addr(), RKey: b.rkey() ^ 0x7f00}}
		}},
		{"past the MR", ucAccess, func(a, b *side) driver.SendWR {
			return driver.SendWR{Op: driver.OpWrite, SGL: []driver.SGE{a.sge(0, 5000)}, Remote: b.remote(b.mem.Len() - 4999)}
		}},
		{"QP without remote write", driver.LocalWrite, func(a, b *side) driver.SendWR {
			return driver.SendWR{Op: driver.OpWrite, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := connectUC(t, cfg, setup{qpAccess: c.qp})
			fill(b.mem.Bytes(), 0xee)
			wr := again(c.wr(a, b))
			wr.ID = 1
			a.postSend(wr)
			a.one(1, driver.Success)
			b.none()
			b.unchanged(t)
			copy(a.bytes(0, 8), "the next")
			b.postRecv(driver.RecvWR{ID: 2, SGL: []driver.SGE{b.sge(0, 8)}})
			a.untilArrives(t, driver.SendWR{ID: 3, Op: driver.OpSend, SGL: []driver.SGE{a.sge(0, 8)}}, 2)
			if got := string(b.bytes(0, 8)); got != "the next" {
				t.Errorf("%q came", got)
			}
		})
	}
}

// testUCTooShort takes either: silence, or a receive that ends in error.
func testUCTooShort(t *testing.T, cfg Config) {
	a, b := connectUC(t, cfg, setup{})
	b.postRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(0, 99)}})
	a.postSend(driver.SendWR{ID: 2, Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 100)}})
	a.one(2, driver.Success)
	time.Sleep(cfg.Quiet)
	if wcs, err := b.cq.pollOnce(1); err != nil || len(wcs) > 0 && wcs[0].Status == driver.Success {
		t.Errorf("a message of 100 bytes into 99: %+v, %v", wcs, err)
	}
}

func testUCLocalErrors(t *testing.T, cfg Config) {
	a, b := connectUC(t, cfg, setup{})
	sendQueueFails(t, a, b, func(from *side) driver.SendWR {
		return driver.SendWR{Op: driver.OpSend, SGL: []driver.SGE{{Addr: from.mem.Addr(), Length: 8, LKey: from.lkey() ^ 0x7f00}}}
	}, func(from *side) driver.SendWR {
		return driver.SendWR{Op: driver.OpSend, SGL: []driver.SGE{from.sge(0, 8)}}
	}, func(at *side, id uint64) driver.RecvWR {
		return driver.RecvWR{ID: id, SGL: []driver.SGE{at.sge(64, 8)}}
	}, driver.LocProtErr, driver.LocQPOpErr)
}

// testUCReceiveErrors has a receive whose memory is not there: its QP fails, the
// peer does not notice.
func testUCReceiveErrors(t *testing.T, cfg Config) {
	a, b := connectUC(t, cfg, setup{})
	b.postRecv(driver.RecvWR{ID: 50, SGL: []driver.SGE{{Addr: b.mem.Addr(), Length: 4096, LKey: b.lkey() ^ 0x7f00}}}, driver.RecvWR{ID: 51})
	for range tries {
		a.postSend(driver.SendWR{ID: 1, Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 100)}})
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

func testUCPeerGone(t *testing.T, cfg Config) {
	a, b := connectUC(t, cfg, setup{})
	remote := b.remote(0)
	b.closeQP()
	for id := range uint64(8) {
		a.postSend(driver.SendWR{ID: id, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: remote})
		a.one(id, driver.Success)
	}
	a.awaitState(driver.StateRTS)
}

func testUCFlush(t *testing.T, cfg Config) {
	a, _ := connectUC(t, cfg, setup{})
	for id := range uint64(8) {
		a.postRecv(driver.RecvWR{ID: id, SGL: []driver.SGE{a.sge(0, 8)}})
	}
	a.state(driver.StateErr)
	for id := range uint64(8) {
		a.one(id, driver.WRFlushErr)
	}
	a.postSend(driver.SendWR{ID: 9, Op: driver.OpSend, SGL: []driver.SGE{a.sge(0, 8)}})
	a.one(9, driver.WRFlushErr)
	a.none()
}

func testUCAllocations(t *testing.T, cfg Config) {
	if cfg.PostAllocates {
		t.Skip("Config.PostAllocates")
	}
	a, b := connectUC(t, cfg, setup{})
	allocates(t, cfg, a, b,
		[]driver.SendWR{{ID: 1, Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 64)}}},
		[]driver.RecvWR{{ID: 2, SGL: []driver.SGE{b.sge(0, 64)}}})
}

package softroce

import (
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// longAnswer has b owe the answer to a read of n packets, of which it sends the
// first burst.
func (r *rig) longAnswer(n uint32, key uint32) {
	r.b.q.owe(reply{psn: r.b.q.resp.psn, packets: n, va: r.b.mem.Addr(), length: n * 256, key: key, msn: 1})
	r.b.q.resp.psn = r.b.q.resp.psn.Add(n)
}

// Whoever finds that a packet must be refused does not stay to send the answers that
// are owed before the NAK: a peer that asks for gigabytes and then for what it may
// not would hold up all others.
func TestRefusalLeavesLongAnswersToThePump(t *testing.T) {
	const n = 900
	inBubble(t, rigConfig{timeout: 255}, func(r *rig) {
		q := r.b.q
		q.mu.Lock()
		r.longAnswer(n, r.b.key())
		q.refuse(invalidRequest)
		left := len(q.resp.replies.jobs) - q.resp.replies.head
		q.mu.Unlock()
		if left != 1 {
			t.Error("all was sent at once")
		}
		// What comes meanwhile is neither executed nor refused a second time.
		r.forge(wire.RCWriteOnly, 0, n, make([]byte, 8), func(p wire.Packet) { p.RETH().Put(r.b.mem.Addr(), r.b.key(), 8) })
		r.forge(wire.RCWriteOnly, 0, n+1, make([]byte, 8), func(p wire.Packet) { p.RETH().Put(r.b.mem.Addr(), r.b.key(), 8) })
		r.settle()
		sent := r.packets(func(p seenPacket) bool { return p.from == 'b' })
		if last := sent[len(sent)-1]; len(sent) != n+1 || last.syndrome != wire.SynInvalid || last.psn != n {
			t.Errorf("%d packets, the last %+v", len(sent), last)
		}
		if s := r.b.state(); s != driver.StateErr {
			t.Errorf("state %v", s)
		}
		r.b.wantEvent(driver.EventQPReqErr)
	})
}

// An answer that fails is refused, and what waited for it is not: one NAK, one event.
func TestRefusedAnswerIsTheOnlyRefusal(t *testing.T) {
	inBubble(t, rigConfig{timeout: 255}, func(r *rig) {
		m, err := r.b.pd.RegMR(r.b.mem, r.b.mem.Addr(), everything)
		r.must(err)
		key, _ := m.Keys()
		q := r.b.q
		q.mu.Lock()
		r.longAnswer(900, key)
		q.refuse(invalidRequest)
		r.must(m.Close())
		q.mu.Unlock()
		r.settle()
		if got := r.packets(func(p seenPacket) bool { return p.from == 'b' && p.op == wire.RCAck }); len(got) != 1 || got[0].syndrome != wire.SynAccess || got[0].psn != replyBurst {
			t.Errorf("NAKs %+v", got)
		}
		if a, i := r.b.counter("send_access_err"), r.b.counter("send_inv_req_err"); a != 1 || i != 0 {
			t.Errorf("counted %d and %d", a, i)
		}
		r.b.wantEvent(driver.EventQPAccessErr)
	})
}

// A queue pair that is closed sends what it can in a moment.
func TestLeavingSendsNoLongAnswers(t *testing.T) {
	inBubble(t, rigConfig{timeout: 255, memory: 1 << 20}, func(r *rig) {
		q := r.b.q
		q.mu.Lock()
		r.longAnswer(4*leaveBurst-replyBurst, r.b.key())
		q.resp.replies.ack = true
		q.leave()
		left := q.resp.replies.busy()
		q.resp.replies.stop()
		q.mu.Unlock()
		r.settle()
		got := r.packets(func(p seenPacket) bool { return p.from == 'b' })
		if !left || len(got) != leaveBurst+replyBurst || got[len(got)-1].op == wire.RCAck {
			t.Errorf("%d packets, more left: %v", len(got), left)
		}
	})
}

// Requests behind a long read are refused when that is through.
func TestR23RefusalBehindReads(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		r.b.fill(23)
		bad := r.a.write(3, 0, 8)
		bad.Remote.RKey ^= 1
		r.a.post(r.a.read(1, 0, 100000), r.a.read(2, 100000, 100000), bad, r.a.send(4, 0, 0))
		r.a.one(1, driver.Success)
		r.a.one(2, driver.Success)
		r.a.one(3, driver.RemAccessErr)
		r.a.one(4, driver.WRFlushErr)
		r.same(0, 200000)
	})
}

// The window to a peer is given back to it when the path of a queue pair that has
// packets in flight changes.
func TestWindowMovesWithThePath(t *testing.T) {
	inBubble(t, rigConfig{timeout: 255}, func(r *rig) {
		r.cut(r.b)
		r.a.post(r.a.write(1, 0, 50000))
		r.settle()
		e, q := r.a.q.e, r.a.q
		old := q.flow
		r.must(q.Modify(&driver.QPAttr{State: driver.StateSQD}, driver.QPStateMask))
		other := r.b.addr.Next()
		r.must(q.Modify(&driver.QPAttr{State: driver.StateSQD, AH: driver.AHAttr{DGID: gidOf(other), Port: 1, IsGlobal: true, HopLimit: 64}},
			driver.QPStateMask|driver.QPAV))
		full := int64(e.window())
		if got := old.left.Load(); got != full {
			t.Errorf("%d of %d bytes of the old peer's window are left", got, full)
		}
		if got := q.flow.left.Load(); q.req.inFlight == 0 || got != full-int64(q.req.inFlight) {
			t.Errorf("%d of %d bytes of the new peer's are left, with %d in flight", got, full, q.req.inFlight)
		}
		r.must(q.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
		if got := q.flow.left.Load(); got != full {
			t.Errorf("%d of %d at the end", got, full)
		}
		r.a.take(1)
	})
}

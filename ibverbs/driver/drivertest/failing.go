package drivertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// failed sees that request 1 of s ended in one of the statuses, that 2, posted with it,
// was flushed, and that s is in the error state and keeps flushing.
func (s *side) failed(t *testing.T, allowed ...driver.Status) {
	t.Helper()
	s.oneOf(1, allowed...)
	s.one(2, driver.WRFlushErr)
	s.awaitState(driver.StateErr)
	s.postSend(driver.SendWR{ID: 3, Op: driver.OpSend})
	s.one(3, driver.WRFlushErr)
	s.none()
}

// follow is the request posted behind one that fails.
var follow = driver.SendWR{ID: 2, Op: driver.OpSend}

func testLocalErrors(t *testing.T, cfg Config) {
	for _, c := range []struct {
		name string
		wr   func(a, b *side) driver.SendWR
	}{
		{"wrong lkey", func(a, b *side) driver.SendWR {
			return driver.SendWR{Op: driver.OpWrite, SGL: []driver.SGE{{Addr: a.mem.Addr(), Length: 8, LKey: a.lkey() ^ 0x7f00}}, Remote: b.remote(0)}
		}},
		{"before the MR", func(a, b *side) driver.SendWR {
			e := a.sge(0, 8)
			e.Addr--
			return driver.SendWR{Op: driver.OpWrite, SGL: []driver.SGE{e}, Remote: b.remote(0)}
		}},
		{"past the MR", func(a, b *side) driver.SendWR {
			return driver.SendWR{Op: driver.OpSend, SGL: []driver.SGE{a.sge(0, 8), a.sge(a.mem.Len()-8, 9)}}
		}},
		{"around the end of the address space", func(a, b *side) driver.SendWR {
			return driver.SendWR{Op: driver.OpWrite, SGL: []driver.SGE{{Addr: ^uint64(0) - 3, Length: 8, LKey: a.lkey()}}, Remote: b.remote(0)}
		}},
		{"MR that is closed", func(a, b *side) driver.SendWR {
			mr := a.reg(a.pd, a.mem, driver.LocalWrite)
			lkey, _ := mr.Keys()
			check(a.t, "close MR", mr.Close())
			return driver.SendWR{Op: driver.OpWrite, SGL: []driver.SGE{{Addr: a.mem.Addr(), Length: 8, LKey: lkey}}, Remote: b.remote(0)}
		}},
		{"MR of another PD", func(a, b *side) driver.SendWR {
			mr := a.reg(a.otherPD(), a.mem, driver.LocalWrite)
			lkey, _ := mr.Keys()
			return driver.SendWR{Op: driver.OpWrite, SGL: []driver.SGE{{Addr: a.mem.Addr(), Length: 8, LKey: lkey}}, Remote: b.remote(0)}
		}},
		{"read into an MR without local write", func(a, b *side) driver.SendWR {
			mr := a.reg(a.pd, a.mem, driver.RemoteRead)
			lkey, _ := mr.Keys()
			return driver.SendWR{Op: driver.OpRead, SGL: []driver.SGE{{Addr: a.mem.Addr(), Length: 8, LKey: lkey}}, Remote: b.remote(0)}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := connect(t, cfg, setup{})
			b.postRecv(driver.RecvWR{ID: 50, SGL: []driver.SGE{b.sge(0, 4096)}}, driver.RecvWR{ID: 51})
			fill(b.mem.Bytes(), 0xee)
			wr := c.wr(a, b)
			wr.ID = 1
			a.postSend(wr, follow)
			a.failed(t, driver.LocProtErr, driver.LocQPOpErr)
			b.unchanged(t)
		})
	}
}

func (s *side) otherPD() driver.PD {
	pd, err := s.Context.AllocPD()
	must(s.t, "alloc PD", err)
	s.t.Cleanup(func() { check(s.t, "close PD", pd.Close()) })
	return pd
}

func (s *side) unchanged(t *testing.T) {
	t.Helper()
	if i := slices.IndexFunc(s.mem.Bytes(), func(v byte) bool { return v != 0xee }); i >= 0 {
		t.Errorf("byte %d of the peer's memory changed", i)
	}
}

// testRemoteErrors asks the peer for what its keys and rights do not give: not
// a byte changes, the requester is told, both ends go to the error state.
func testRemoteErrors(t *testing.T, cfg Config) {
	const size = 64 << 10
	at := func(b *side, off int64, key uint32) driver.Remote {
		return driver.Remote{Addr: b.mem.Addr() + uint64(off), RKey: key}
	}
	key := func(b *side, pd driver.PD, a driver.Access) uint32 {
		_, rkey := b.reg(pd, b.mem, a).Keys()
		return rkey
	}
	for _, c := range []struct {
		name     string
		qpAccess driver.Access
		remote   func(b *side) driver.Remote
		status   driver.Status
		ops      []driver.Opcode // nil: write, write with immediate, read
	}{
		{"wrong rkey", 0, func(b *side) driver.Remote { return at(b, 0, b.rkey()^0x7f00) }, driver.RemAccessErr, nil},
		{"one byte before", 0, func(b *side) driver.Remote { return at(b, -1, b.rkey()) }, driver.RemAccessErr, nil},
		{"one byte past", 0, func(b *side) driver.Remote { return at(b, size-7, b.rkey()) }, driver.RemAccessErr, nil},
		{"far past", 0, func(b *side) driver.Remote { return at(b, 1<<40, b.rkey()) }, driver.RemAccessErr, nil},
		{"around the end of the address space", 0, func(b *side) driver.Remote {
			return driver.Remote{Addr: ^uint64(0) - 3, RKey: b.rkey()}
		}, driver.RemAccessErr, nil},
		{"MR of another PD", 0, func(b *side) driver.Remote { return at(b, 0, key(b, b.otherPD(), allAccess)) }, driver.RemAccessErr, nil},
		{"MR that is closed", 0, func(b *side) driver.Remote {
			mr := b.reg(b.pd, b.mem, allAccess)
			_, rkey := mr.Keys()
			check(b.t, "close MR", mr.Close())
			return at(b, 0, rkey)
		}, driver.RemAccessErr, nil},
		{"MR without remote write", 0, func(b *side) driver.Remote {
			return at(b, 0, key(b, b.pd, driver.LocalWrite|driver.RemoteRead))
		}, driver.RemAccessErr, []driver.Opcode{driver.OpWrite, driver.OpWriteWithImm}},
		{"MR without remote read", 0, func(b *side) driver.Remote {
			return at(b, 0, key(b, b.pd, driver.LocalWrite|driver.RemoteWrite))
		}, driver.RemAccessErr, []driver.Opcode{driver.OpRead}},
		{"QP without remote write", driver.LocalWrite | driver.RemoteRead, func(b *side) driver.Remote { return b.remote(0) },
			driver.RemInvReqErr, []driver.Opcode{driver.OpWrite, driver.OpWriteWithImm}},
		{"QP without remote read", driver.LocalWrite | driver.RemoteWrite, func(b *side) driver.Remote { return b.remote(0) },
			driver.RemInvReqErr, []driver.Opcode{driver.OpRead}},
		{"MR without atomics", 0, func(b *side) driver.Remote { return at(b, 0, key(b, b.pd, allAccess)) },
			driver.RemAccessErr, []driver.Opcode{driver.OpFetchAdd, driver.OpCmpSwap}},
		{"atomic that is not aligned", 0, func(b *side) driver.Remote { return b.remote(4) },
			driver.RemInvReqErr, []driver.Opcode{driver.OpFetchAdd, driver.OpCmpSwap}},
	} {
		if c.ops == nil {
			c.ops = []driver.Opcode{driver.OpWrite, driver.OpWriteWithImm, driver.OpRead}
		}
		for _, op := range c.ops {
			t.Run(fmt.Sprintf("%s/%d", c.name, op), func(t *testing.T) {
				a, b := connect(t, cfg, setup{memory: size, qpAccess: c.qpAccess})
				if op == driver.OpFetchAdd || op == driver.OpCmpSwap {
					if !a.atomics() || !b.atomics() {
						t.Skip("the device has no atomics")
					}
				}
				b.postRecv(driver.RecvWR{ID: 50}, driver.RecvWR{ID: 51})
				fill(b.mem.Bytes(), 0xee)
				fill(a.bytes(0, 8), 0x11)
				a.postSend(driver.SendWR{ID: 1, Op: op, SGL: []driver.SGE{a.sge(0, 8)}, Remote: c.remote(b), CompareAdd: 1}, follow)
				a.failed(t, c.status)
				b.awaitState(driver.StateErr)
				if op == driver.OpWriteWithImm { // which takes a receive, on some devices before it fails
					b.oneOf(50, driver.WRFlushErr, driver.RemAccessErr, driver.RemInvReqErr, driver.LocQPOpErr)
				} else {
					b.one(50, driver.WRFlushErr)
				}
				b.one(51, driver.WRFlushErr)
				b.unchanged(t)
			})
		}
	}

	t.Run("no bytes need no key", func(t *testing.T) {
		a, b := connect(t, cfg, setup{})
		a.postSend(
			driver.SendWR{ID: 1, Op: driver.OpWrite, Flags: driver.Signaled, Remote: at(b, 0, 0)},
			driver.SendWR{ID: 2, Op: driver.OpRead, Flags: driver.Signaled, Remote: at(b, 0, 0)})
		a.one(1, driver.Success)
		a.one(2, driver.Success)
	})
}

// testReceiveErrors has a receive that cannot take the message. Devices report
// it at the responder with different statuses, always as an error.
func testReceiveErrors(t *testing.T, cfg Config) {
	tooShort := []driver.Status{driver.RemInvReqErr, driver.RemOpErr}
	refused := []driver.Status{driver.RemOpErr}
	atResponder := []driver.Status{driver.LocLenErr, driver.LocProtErr, driver.LocQPOpErr, driver.RemInvReqErr}
	for _, c := range []struct {
		name   string
		sgl    func(b *side) []driver.SGE
		status []driver.Status
	}{
		{"too short", func(b *side) []driver.SGE { return []driver.SGE{b.sge(0, 50), b.sge(64, 49)} }, tooShort},
		{"none for a message", func(b *side) []driver.SGE { return nil }, tooShort},
		{"wrong lkey", func(b *side) []driver.SGE {
			return []driver.SGE{{Addr: b.mem.Addr(), Length: 4096, LKey: b.lkey() ^ 0x7f00}}
		}, refused},
		{"past the MR", func(b *side) []driver.SGE { return []driver.SGE{b.sge(b.mem.Len()-8, 100)} }, refused},
		{"MR without local write", func(b *side) []driver.SGE {
			lkey, _ := b.reg(b.pd, b.mem, driver.RemoteRead).Keys()
			return []driver.SGE{{Addr: b.mem.Addr(), Length: 4096, LKey: lkey}}
		}, refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := connect(t, cfg, setup{})
			fill(b.mem.Bytes(), 0xee)
			b.postRecv(driver.RecvWR{ID: 50, SGL: c.sgl(b)}, driver.RecvWR{ID: 51})
			a.postSend(driver.SendWR{ID: 1, Op: driver.OpSend, SGL: []driver.SGE{a.sge(0, 100)}}, follow)
			a.failed(t, c.status...)
			b.oneOf(50, atResponder...)
			b.one(51, driver.WRFlushErr)
			b.awaitState(driver.StateErr)
		})
	}
}

func testReceiverNotReady(t *testing.T, cfg Config) {
	for _, op := range []driver.Opcode{driver.OpSend, driver.OpSendWithImm, driver.OpWriteWithImm} {
		t.Run(fmt.Sprintf("waits/%d", op), func(t *testing.T) {
			a, b := connect(t, cfg, setup{rnrRetry: 7})
			copy(a.bytes(0, 8), "patience")
			a.postSend(
				driver.SendWR{ID: 1, Op: op, Flags: driver.Signaled, Imm: 5, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)},
				driver.SendWR{ID: 2, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(64)})
			a.none()
			b.postRecv(driver.RecvWR{ID: 9, SGL: []driver.SGE{b.sge(0, 8)}})
			a.one(1, driver.Success)
			a.one(2, driver.Success)
			b.one(9, driver.Success)
			if got := string(b.bytes(0, 8)) + string(b.bytes(64, 8)); got != "patiencepatience" {
				t.Errorf("came %q", got)
			}
		})
		t.Run(fmt.Sprintf("gives up/%d", op), func(t *testing.T) {
			a, b := connect(t, cfg, setup{rnrRetry: 2})
			a.postSend(driver.SendWR{ID: 1, Op: op, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)}, follow)
			a.failed(t, driver.RNRRetryExcErr)
		})
	}
}

func testPeerGone(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{})
	a.postRecv(driver.RecvWR{ID: 60})
	b.closeQP()
	start := time.Now()
	a.postSend(driver.SendWR{ID: 1, Op: driver.OpWrite, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)}, follow)
	a.one(1, driver.RetryExcErr)
	t.Logf("gave up after %v", time.Since(start).Round(time.Millisecond))
	for _, wc := range a.take(2) {
		if wc.Status != driver.WRFlushErr || wc.ID != 2 && wc.ID != 60 {
			t.Errorf("flushed: %+v", wc)
		}
	}
	a.awaitState(driver.StateErr)
}

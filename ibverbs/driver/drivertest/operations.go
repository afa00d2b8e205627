package drivertest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// guard is bytes around each target that must stay as they are.
const guard = 64

// edges is lengths at which something changes: words, cache lines, packets, and
// the longest to try.
func edges(mtu, longest int) []int {
	list := []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, mtu - 1, mtu, mtu + 1, 2*mtu - 1, 2 * mtu, 2*mtu + 1, 3*mtu + 5, 16 * mtu, longest - 1, longest}
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(n int) bool { return n > longest })
}

// move is an operation that carries n bytes from a's buffer to b's, or back for
// a read.
type move struct {
	name string
	op   driver.Opcode
	wc   driver.WCOpcode // at the requester
	recv driver.WCOpcode // at the responder, 0 if nothing completes there
	imm  bool
}

var moves = []move{
	{"SEND", driver.OpSend, driver.WCSend, driver.WCRecv, false},
	{"SEND_WITH_IMM", driver.OpSendWithImm, driver.WCSend, driver.WCRecv, true},
	{"RDMA_WRITE", driver.OpWrite, driver.WCWrite, 0, false},
	{"RDMA_WRITE_WITH_IMM", driver.OpWriteWithImm, driver.WCWrite, driver.WCRecvWriteWithImm, true},
	{"RDMA_READ", driver.OpRead, driver.WCRead, 0, false},
}

func testOperations(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{memory: cfg.MaxMessage + 2*guard + 8})
	rng := rand.New(rand.NewPCG(cfg.Seed, 1))
	for _, m := range moves {
		for _, n := range edges(a.mtu().Bytes(), cfg.MaxMessage) {
			for i, from := range []*side{a, b} {
				t.Run(fmt.Sprintf("%s/%d/%c", m.name, n, 'a'+i), func(t *testing.T) { from.carry(t, m, n, rng) })
			}
		}
	}
}

// carry does one move of n bytes between places of odd alignment and looks at
// all that it left behind.
func (s *side) carry(t *testing.T, m move, n int, rng *rand.Rand) {
	src, dst := s, s.peer
	if m.op == driver.OpRead {
		src, dst = dst, src
	}
	from, to := rng.IntN(8), guard+rng.IntN(8)
	data := randomBytes(rng, n)
	copy(src.bytes(from, n), data)
	whole := dst.bytes(0, to+n+guard)
	fill(whole, 0xee)

	id, imm := rng.Uint64(), rng.Uint32()
	wr := driver.SendWR{ID: id, Op: m.op, Flags: driver.Signaled, Imm: imm}
	if m.op == driver.OpRead {
		wr.SGL, wr.Remote = []driver.SGE{s.sge(to, n)}, s.peer.remote(from)
	} else {
		wr.SGL, wr.Remote = []driver.SGE{s.sge(from, n)}, s.peer.remote(to)
	}
	switch m.recv {
	case driver.WCRecv:
		s.peer.postRecv(driver.RecvWR{ID: id + 1, SGL: []driver.SGE{s.peer.sge(to, n)}})
	case driver.WCRecvWriteWithImm:
		s.peer.postRecv(driver.RecvWR{ID: id + 1})
	}
	s.postSend(wr)
	wc := s.one(id, driver.Success)
	if wc.Op != m.wc || m.op == driver.OpRead && wc.ByteLen != uint32(n) {
		t.Errorf("requester got %+v", wc)
	}
	if m.recv != 0 {
		wc := s.peer.one(id+1, driver.Success)
		if wc.Op != m.recv || wc.ByteLen != uint32(n) || m.imm != (wc.Flags&driver.WCWithImm != 0) || m.imm && wc.Imm != imm {
			t.Errorf("responder got %+v, want %v of %d bytes, immediate %v %#x", wc, m.recv, n, m.imm, imm)
		}
	}
	if !bytes.Equal(whole[to:to+n], data) {
		t.Errorf("data differ first at byte %d of %d", firstDifference(whole[to:to+n], data), n)
	}
	for i, v := range whole {
		if (i < to || i >= to+n) && v != 0xee {
			t.Fatalf("byte %d changed, outside of %d to %d", i, to, to+n)
		}
	}
	if !bytes.Equal(src.bytes(from, n), data) {
		t.Error("the source changed")
	}
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
	return b[:n]
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

func testInline(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{})
	limit := a.qp.Cap().Inline
	rng := rand.New(rand.NewPCG(cfg.Seed, 2))
	for _, n := range edges(limit/2, limit) {
		data := randomBytes(rng, n)
		fill(b.bytes(0, 2*limit), 0xee)
		b.postRecv(driver.RecvWR{ID: 1, SGL: []driver.SGE{b.sge(0, limit)}})
		a.postSend(
			driver.SendWR{ID: 2, Op: driver.OpWrite, Flags: driver.Signaled, Inline: data, Remote: b.remote(limit)},
			driver.SendWR{ID: 3, Op: driver.OpSend, Flags: driver.Signaled, Inline: data})
		a.one(2, driver.Success)
		a.one(3, driver.Success)
		if wc := b.one(1, driver.Success); wc.ByteLen != uint32(n) {
			t.Errorf("%d bytes of %d came", wc.ByteLen, n)
		}
		if !bytes.Equal(b.bytes(0, n), data) || !bytes.Equal(b.bytes(limit, n), data) {
			t.Errorf("inline data of %d bytes differ", n)
		}
		if n < limit && (b.bytes(n, 1)[0] != 0xee || b.bytes(limit+n, 1)[0] != 0xee) {
			t.Errorf("more than %d bytes came", n)
		}
	}
}

// testGatherScatter cuts messages at different places on both ends.
func testGatherScatter(t *testing.T, cfg Config) {
	most := 8
	a, b := connect(t, cfg, setup{cap: driver.QPCap{SendWR: 4, RecvWR: 4, SendSGE: most, RecvSGE: most}})
	rng := rand.New(rand.NewPCG(cfg.Seed, 3))
	for range cfg.Rounds {
		n := rng.IntN(8 << 10)
		data := randomBytes(rng, n)
		gather := pieces(rng, n, 1+rng.IntN(most))
		scatter := pieces(rng, n, 1+rng.IntN(most))

		var from, to []driver.SGE
		off := 0
		for _, p := range gather {
			copy(a.bytes(p.at, p.n), data[off:])
			from = append(from, a.sge(p.at, p.n))
			off += p.n
		}
		for _, p := range scatter {
			to = append(to, b.sge(p.at, p.n))
		}
		b.postRecv(driver.RecvWR{ID: 5, SGL: to})
		a.postSend(driver.SendWR{ID: 6, Op: driver.OpSend, Flags: driver.Signaled, SGL: from})
		a.one(6, driver.Success)
		b.one(5, driver.Success)
		if got := b.collect(scatter); !bytes.Equal(got, data) {
			t.Fatalf("send of %v into %v differs at byte %d", gather, scatter, firstDifference(got, data))
		}

		from = nil
		for _, p := range gather {
			from = append(from, a.sge(p.at, p.n))
		}
		flat := 48 << 10
		a.postSend(driver.SendWR{ID: 7, Op: driver.OpWrite, Flags: driver.Signaled, SGL: from, Remote: b.remote(flat)})
		a.one(7, driver.Success)
		if !bytes.Equal(b.bytes(flat, n), data) {
			t.Fatalf("write of %v differs at byte %d", gather, firstDifference(b.bytes(flat, n), data))
		}

		to = nil
		for _, p := range scatter {
			fill(b.bytes(p.at, p.n), 0)
			to = append(to, b.sge(p.at, p.n))
		}
		copy(a.bytes(flat, n), data)
		if len(to) > b.attr.MaxSGERead {
			continue
		}
		b.postSend(driver.SendWR{ID: 8, Op: driver.OpRead, Flags: driver.Signaled, SGL: to, Remote: a.remote(flat)})
		b.one(8, driver.Success)
		if got := b.collect(scatter); !bytes.Equal(got, data) {
			t.Fatalf("read into %v differs at byte %d", scatter, firstDifference(got, data))
		}
	}
}

type piece struct{ at, n int }

// pieces cuts n bytes into parts of at least one byte, in places that do not
// touch.
func pieces(rng *rand.Rand, n, count int) []piece {
	count = max(1, min(count, n))
	cuts := make([]int, 0, count+1)
	for range count - 1 {
		cuts = append(cuts, 1+rng.IntN(max(1, n-1)))
	}
	cuts = append(cuts, 0, n)
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var list []piece
	at := rng.IntN(64)
	for i := 1; i < len(cuts); i++ {
		size := cuts[i] - cuts[i-1]
		list = append(list, piece{at, size})
		at += size + 1 + rng.IntN(64)
	}
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func (s *side) collect(list []piece) []byte {
	var all []byte
	for _, p := range list {
		all = append(all, s.bytes(p.at, p.n)...)
	}
	return all
}

func testAtomics(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{})
	if !a.atomics() || !b.atomics() {
		t.Skip("the device has no atomics")
	}
	word := func(s *side, off int) uint64 { return binary.NativeEndian.Uint64(s.bytes(off, 8)) }
	put := func(s *side, off int, v uint64) { binary.NativeEndian.PutUint64(s.bytes(off, 8), v) }
	for _, c := range []struct {
		name                        string
		op                          driver.Opcode
		wc                          driver.WCOpcode
		before, compareAdd, swap, v uint64
	}{
		{"add", driver.OpFetchAdd, driver.WCFetchAdd, 40, 2, 9, 42},
		{"add that wraps", driver.OpFetchAdd, driver.WCFetchAdd, ^uint64(0), 3, 9, 2},
		{"add nothing", driver.OpFetchAdd, driver.WCFetchAdd, 7, 0, 9, 7},
		{"swap", driver.OpCmpSwap, driver.WCCmpSwap, 1 << 40, 1 << 40, 5, 5},
		{"swap refused", driver.OpCmpSwap, driver.WCCmpSwap, 1 << 40, 1<<40 + 1, 5, 1 << 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, s := range []*side{a, b} {
				put(s.peer, 128, c.before)
				put(s, 64, 99)
				s.postSend(driver.SendWR{ID: 1, Op: c.op, Flags: driver.Signaled, SGL: []driver.SGE{s.sge(64, 8)},
					Remote: s.peer.remote(128), CompareAdd: c.compareAdd, Swap: c.swap})
				if wc := s.one(1, driver.Success); wc.Op != c.wc {
					t.Errorf("completion is of %v", wc.Op)
				}
				if got := word(s, 64); got != c.before {
					t.Errorf("result %#x, want %#x", got, c.before)
				}
				if got := word(s.peer, 128); got != c.v {
					t.Errorf("memory %#x, want %#x", got, c.v)
				}
			}
		})
	}
	put(b, 0, 0)
	for i := range cfg.Rounds {
		a.postSend(driver.SendWR{ID: uint64(i), Op: driver.OpFetchAdd, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(8, 8)},
			Remote: b.remote(0), CompareAdd: 1})
		a.one(uint64(i), driver.Success)
		if got := word(a, 8); got != uint64(i) {
			t.Fatalf("addition %d found %d", i, got)
		}
	}
}

// testOrder keeps many requests of mixed kinds in flight: each SEND says what
// the write before it must have left.
func testOrder(t *testing.T, cfg Config) {
	const window = 8
	a, b := connect(t, cfg, setup{})
	rng := rand.New(rand.NewPCG(cfg.Seed, 4))
	slot := func(i int) int { return (i % window) * 4096 }
	for first := 0; first < cfg.Rounds; first += window {
		var want [window][]byte
		for i := range window {
			b.postRecv(driver.RecvWR{ID: uint64(first + i), SGL: []driver.SGE{b.sge(slot(i)+2048, 8)}})
		}
		for i := range window {
			n := rng.IntN(2048)
			want[i] = randomBytes(rng, n)
			copy(a.bytes(slot(i), n), want[i])
			binary.LittleEndian.PutUint64(a.bytes(slot(i)+2048, 8), uint64(first+i))
			a.postSend(
				driver.SendWR{ID: 1, Op: driver.OpWrite, SGL: []driver.SGE{a.sge(slot(i), n)}, Remote: b.remote(slot(i))},
				driver.SendWR{ID: uint64(first + i), Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(slot(i)+2048, 8)}})
		}
		for i := range window {
			b.one(uint64(first+i), driver.Success)
			if got := binary.LittleEndian.Uint64(b.bytes(slot(i)+2048, 8)); got != uint64(first+i) {
				t.Fatalf("message %d holds %d", first+i, got)
			}
			if !bytes.Equal(b.bytes(slot(i), len(want[i])), want[i]) {
				t.Fatalf("the write before message %d is not there", first+i)
			}
		}
		for i := range window {
			a.one(uint64(first+i), driver.Success)
		}
	}
	// A fenced request sees what the read before it fetched.
	copy(b.bytes(0, 8), "original")
	fill(a.bytes(0, 16), 0)
	a.postSend(
		driver.SendWR{ID: 1, Op: driver.OpRead, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)},
		driver.SendWR{ID: 2, Op: driver.OpWrite, Flags: driver.Fence | driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(64)})
	a.one(2, driver.Success)
	if got := string(b.bytes(64, 8)); got != "original" {
		t.Errorf("fenced write carried %q", got)
	}
}

func testPathMTU(t *testing.T, cfg Config) {
	a, _ := open(t, cfg)
	for m := driver.MTU256; m <= a.mtu(); m++ {
		t.Run(m.String(), func(t *testing.T) {
			longest := 5*m.Bytes() + 3
			a, b := connect(t, cfg, setup{mtu: m, memory: longest + 2*guard + 8})
			rng := rand.New(rand.NewPCG(cfg.Seed, uint64(m)))
			for _, n := range edges(m.Bytes(), longest) {
				for _, op := range moves {
					a.carry(t, op, n, rng)
					b.carry(t, op, n, rng)
				}
			}
		})
	}
}

// testPSNWrap starts so that packet numbers pass 2^24 in the first messages.
func testPSNWrap(t *testing.T, cfg Config) {
	for _, psn := range []uint32{0xffffff, 0xfffff0} {
		n := 40 * 256
		a, b := connect(t, cfg, setup{psn: psn, mtu: driver.MTU256, memory: n + 2*guard + 8})
		rng := rand.New(rand.NewPCG(cfg.Seed, uint64(psn)))
		for _, op := range moves {
			a.carry(t, op, n, rng)
			b.carry(t, op, n, rng)
		}
	}
}

func testSignalling(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{})
	write := func(id uint64, f driver.SendFlags) driver.SendWR {
		return driver.SendWR{ID: id, Op: driver.OpWrite, Flags: f, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)}
	}
	a.postSend(write(1, 0), write(2, 0), write(3, driver.Signaled))
	a.one(3, driver.Success)
	a.none()

	a, b = connect(t, cfg, setup{signal: true})
	a.postSend(write(1, 0), write(2, 0))
	a.one(1, driver.Success)
	a.one(2, driver.Success)
}

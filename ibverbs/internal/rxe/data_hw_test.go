//go:build hw && linux

package rxe

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

func TestHWOperations(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rand.Rand, at, there place) {
		a, b := connected(t, at, there, shape{})
		const there1 = 8192
		data := a.mem.Bytes()[:3000]
		fill(r, data)
		target := b.mem.Bytes()[there1 : there1+3000]
		imm := r.Uint32()

		sent := func(op driver.WCOpcode) {
			t.Helper()
			if wc := a.one(driver.Success); wc.Op != op || wc.ID != 5 || wc.QPN != a.qp.Num() || wc.Flags != 0 {
				t.Errorf("completion %+v, want op %d", wc, op)
			}
		}
		received := func(op driver.WCOpcode, flags driver.WCFlags, n int) {
			t.Helper()
			wc := b.one(driver.Success)
			if wc.Op != op || wc.ID != 6 || wc.QPN != b.qp.Num() || wc.Flags != flags || int(wc.ByteLen) != n {
				t.Errorf("receive %+v, want op %d, flags %d, %d bytes", wc, op, flags, n)
			}
			if flags&driver.WCWithImm != 0 && wc.Imm != imm {
				t.Errorf("immediate data %#x, want %#x", wc.Imm, imm)
			}
		}
		same := func() {
			t.Helper()
			if !bytes.Equal(data, target) {
				t.Error("data differs")
			}
			clear(target)
		}
		wr := driver.SendWR{ID: 5, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, len(data))}, Imm: imm, Remote: b.remote(there1)}
		for _, op := range []struct {
			op   driver.Opcode
			sent driver.WCOpcode
			recv driver.WCOpcode
			f    driver.WCFlags
		}{
			{driver.OpSend, driver.WCSend, driver.WCRecv, 0},
			{driver.OpSendWithImm, driver.WCSend, driver.WCRecv, driver.WCWithImm},
			{driver.OpWrite, driver.WCWrite, 0, 0},
			{driver.OpWriteWithImm, driver.WCWrite, driver.WCRecvWriteWithImm, driver.WCWithImm},
		} {
			if op.recv != 0 {
				b.recv(driver.RecvWR{ID: 6, SGL: []driver.SGE{b.sge(there1, len(data))}})
			}
			wr.Op = op.op
			a.send(wr)
			sent(op.sent)
			if op.recv != 0 {
				received(op.recv, op.f, len(data))
			}
			same()
		}

		fill(r, target)
		wr.Op = driver.OpRead
		a.send(wr)
		sent(driver.WCRead)
		same()

		word := b.mem.Bytes()[there1:]
		result := a.mem.Bytes()
		binary.NativeEndian.PutUint64(word, 40)
		wr = driver.SendWR{ID: 5, Op: driver.OpFetchAdd, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(there1), CompareAdd: 2}
		a.send(wr)
		sent(driver.WCFetchAdd)
		wr.Op, wr.CompareAdd, wr.Swap, wr.SGL = driver.OpCmpSwap, 42, 1<<63+7, []driver.SGE{a.sge(8, 8)}
		a.send(wr)
		sent(driver.WCCmpSwap)
		wr.Swap, wr.SGL = 1, []driver.SGE{a.sge(16, 8)} // 42 is not there any more
		a.send(wr)
		sent(driver.WCCmpSwap)
		for i, want := range []uint64{40, 42, 1<<63 + 7} {
			if got := binary.NativeEndian.Uint64(result[8*i:]); got != want {
				t.Errorf("atomic %d gave %d, want %d", i, got, want)
			}
		}
		if got := binary.NativeEndian.Uint64(word); got != 1<<63+7 {
			t.Errorf("word is %#x", got)
		}
	})
}

// TestHWInline sends Go memory, of sizes up to the limit, and changes it at
// once.
func TestHWInline(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rand.Rand, at, there place) {
		a, b := connected(t, at, there, shape{inline: maxInline})
		if got := a.qp.Cap().Inline; got != maxInline {
			t.Fatalf("inline limit %d, want %d", got, maxInline)
		}
		for _, n := range []int{0, 1, 7, 8, 64, 65, r.IntN(maxInline), maxInline} {
			data := make([]byte, n)
			fill(r, data)
			want := bytes.Clone(data)
			a.send(driver.SendWR{Op: driver.OpWrite, Flags: driver.Signaled, Inline: data, Remote: b.remote(100)})
			fill(r, data)
			a.one(driver.Success)
			b.recv(driver.RecvWR{SGL: []driver.SGE{b.sge(1000, maxInline)}})
			copy(data, want)
			a.send(driver.SendWR{Op: driver.OpSend, Flags: driver.Signaled, Inline: data})
			clear(data)
			a.one(driver.Success)
			if wc := b.one(driver.Success); int(wc.ByteLen) != n {
				t.Errorf("%d bytes received, want %d", wc.ByteLen, n)
			}
			for _, off := range []int{100, 1000} {
				if !bytes.Equal(b.mem.Bytes()[off:off+n], want) {
					t.Errorf("%d bytes at %d differ", n, off)
				}
			}
		}
		if n, err := a.qp.PostSend([]driver.SendWR{{Op: driver.OpSend, Inline: make([]byte, maxInline+1)}}); n != 0 || err != driver.ErrInlineTooBig {
			t.Errorf("too much inline: %d, %v", n, err)
		}
	})
}

// TestHWGatherScatter moves messages in pieces of random, unequal lengths, empty
// ones among them.
func TestHWGatherScatter(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rand.Rand, at, there place) {
		const sge = 7
		a, b := connected(t, at, there, shape{sge: sge})
		cut := func(e *end, total, pieces int) (sgl []driver.SGE, at [][]byte) {
			off := 0
			for i := range pieces {
				n := r.IntN(total + 1)
				if i == pieces-1 {
					n = total
				}
				off += r.IntN(50)
				sgl, at = append(sgl, e.sge(off, n)), append(at, e.mem.Bytes()[off:off+n])
				off, total = off+n, total-n
			}
			return sgl, at
		}
		for range 12 {
			total := r.IntN(9000)
			from, src := cut(a, total, 1+r.IntN(sge))
			to, dst := cut(b, total, 1+r.IntN(sge))
			for _, s := range src {
				fill(r, s)
			}
			b.recv(driver.RecvWR{SGL: to})
			a.send(driver.SendWR{Op: driver.OpSend, Flags: driver.Signaled, SGL: from})
			a.one(driver.Success)
			if wc := b.one(driver.Success); int(wc.ByteLen) != total {
				t.Errorf("%d bytes received, want %d", wc.ByteLen, total)
			}
			if !bytes.Equal(bytes.Join(src, nil), bytes.Join(dst, nil)) {
				t.Errorf("%d bytes from %v to %v differ", total, from, to)
			}
		}
	})
}

// countingBell counts the doorbells.
type countingBell struct {
	bell
	n int
}

func (b *countingBell) Ring() error { b.n++; return b.bell.Ring() }

// TestHWList posts lists with one doorbell each, longer than what is free too.
func TestHWList(t *testing.T) {
	r := random(t)
	at, there := pair(t, r, false)
	a, b := connected(t, at, there, shape{depth: 20})
	count := &countingBell{bell: a.qp.bell}
	a.qp.bell = count
	depth := a.qp.Cap().SendWR
	wrs := make([]driver.SendWR, depth+5)
	for i := range wrs {
		wrs[i] = driver.SendWR{ID: uint64(i), Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(i, 1)}, Remote: b.remote(i)}
	}
	fill(r, a.mem.Bytes()[:len(wrs)])
	for round := range 4 {
		n, err := a.qp.PostSend(wrs)
		if n != depth || err != driver.ErrQueueFull {
			t.Fatalf("posted %d, %v; want %d, then full", n, err, depth)
		}
		if count.n != round+1 {
			t.Errorf("%d doorbells, want %d", count.n, round+1)
		}
		for i, wc := range a.wait(n) {
			if wc.Status != driver.Success || wc.ID != uint64(i) {
				t.Errorf("completion %d is %+v", i, wc)
			}
		}
	}
	if !bytes.Equal(a.mem.Bytes()[:depth], b.mem.Bytes()[:depth]) {
		t.Error("data differs")
	}
}

// TestHWNoAllocations is the promise of the hot path on a real device.
func TestHWNoAllocations(t *testing.T) {
	r := random(t)
	at, there := pair(t, r, false)
	a, b := connected(t, at, there, shape{})
	send := []driver.SendWR{{Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}}}
	recv := []driver.RecvWR{{SGL: []driver.SGE{b.sge(0, 8)}}}
	wcs := make([]driver.WC, 4)
	poll := func(e *end) {
		for {
			if n, err := e.cq.Poll(wcs); n > 0 || err != nil {
				return
			}
		}
	}
	if n := testing.AllocsPerRun(50, func() {
		_, _ = b.qp.PostRecv(recv)
		_, _ = a.qp.PostSend(send)
		poll(a)
		poll(b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

package rxe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/mmio"
	"pgregory.net/rapid"
)

var order = binary.NativeEndian

// Offsets within an element of a send queue (rdma_user_rxe.h).
const (
	atID, atOpcode, atFlags, atImm        = 0, 12, 16, 20
	atRemote, atRKey                      = 24, 32
	atCompare, atSwap, atAtomicKey        = 32, 40, 48
	atIOVA, atSSN                         = 152, 176
	atLength, atResid, atNumSGE           = 184, 188, 196
	atSGL                                 = 208
	recvLength, recvResid, recvNum        = 16, 20, 28
	atRecvSGL                             = 40
	addr, rkey, lkey                      = 0x1122334455667788, 0xaabbccdd, 0x01020304
	compare, swap                  uint64 = 0x8877665544332211, 0xffeeddccbbaa9988
)

// image is an element as it should be: zeros, and these words.
type image []byte

func (m image) u32(at int, v uint32) image { order.PutUint32(m[at:], v); return m }
func (m image) u64(at int, v uint64) image { order.PutUint64(m[at:], v); return m }

// TestSendElements compares whole elements. The ring was full of rubbish.
func TestSendElements(t *testing.T) {
	base := func(op driver.Opcode, flags uint32) image {
		return make(image, atSGL).u64(atID, 77).u32(atOpcode, uint32(op)).u32(atFlags, flags)
	}
	data := func(m image, sge ...driver.SGE) image {
		total := uint32(0)
		for _, s := range sge {
			m = order.AppendUint64(m, s.Addr)
			m = order.AppendUint32(order.AppendUint32(m, s.Length), s.LKey)
			total += s.Length
		}
		return m.u32(atLength, total).u32(atResid, total).u32(atNumSGE, uint32(len(sge)))
	}
	rdma := func(m image) image { return m.u64(atRemote, addr).u32(atRKey, rkey).u64(atIOVA, addr) }
	atomic := func(m image) image {
		return m.u64(atRemote, addr).u64(atCompare, compare).u64(atSwap, swap).u32(atAtomicKey, rkey).u64(atIOVA, addr)
	}
	imm := func(m image) image { copy(m[atImm:], []byte{0xde, 0xad, 0xbe, 0xef}); return m }
	remote := driver.Remote{Addr: addr, RKey: rkey}
	one := []driver.SGE{{Addr: 0x1000, Length: 8, LKey: lkey}}
	three := []driver.SGE{{Addr: 0x1000, Length: 5, LKey: lkey}, {Addr: 0x9000, LKey: lkey}, {Addr: 0x2000, Length: 1<<31 - 5, LKey: lkey}}
	inline := []byte("inline data")

	tests := []struct {
		name string
		wr   driver.SendWR
		want image
	}{
		{"send", driver.SendWR{Op: driver.OpSend, SGL: one}, data(base(2, 0), one...)},
		{"send without data", driver.SendWR{Op: driver.OpSend, Flags: driver.Fence}, base(2, 1)},
		{"send with immediate", driver.SendWR{Op: driver.OpSendWithImm, Flags: driver.Solicited, Imm: 0xdeadbeef, SGL: one}, data(imm(base(3, 4)), one...)},
		{"imm is not sent unless asked", driver.SendWR{Op: driver.OpSend, Imm: 0xdeadbeef, Remote: remote, CompareAdd: 1, Swap: 2}, base(2, 0)},
		{"write", driver.SendWR{Op: driver.OpWrite, Flags: driver.Signaled, SGL: three, Remote: remote}, data(rdma(base(0, 2)), three...)},
		{"write with immediate", driver.SendWR{Op: driver.OpWriteWithImm, Imm: 0xdeadbeef, SGL: one, Remote: remote}, data(imm(rdma(base(1, 0))), one...)},
		{"read", driver.SendWR{Op: driver.OpRead, SGL: one, Remote: remote}, data(rdma(base(4, 0)), one...)},
		{"compare and swap", driver.SendWR{Op: driver.OpCmpSwap, SGL: one, Remote: remote, CompareAdd: compare, Swap: swap}, data(atomic(base(5, 0)), one...)},
		{"fetch and add", driver.SendWR{Op: driver.OpFetchAdd, SGL: one, Remote: remote, CompareAdd: compare, Swap: swap}, data(atomic(base(6, 0)), one...)},
		{"inline", driver.SendWR{Op: driver.OpWrite, Flags: driver.Signaled, Inline: inline, Remote: remote},
			append(rdma(base(0, 2|flagInline)).u32(atLength, 11).u32(atResid, 11), inline...)},
		{"inline of nothing", driver.SendWR{Op: driver.OpSend, Inline: []byte{}}, base(2, 0)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := fakeSendQueue(t, 8, 7)
			q.ssn = 5
			tt.wr.ID = 77
			tt.want.u32(atSSN, 5)
			if n, err := q.write([]driver.SendWR{tt.wr}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if got := elementBytes(&q.view, 0)[:len(tt.want)]; !bytes.Equal(got, tt.want) {
				t.Errorf("element is\n%x, want\n%x", got, []byte(tt.want))
			}
			if q.ssn != 6 {
				t.Errorf("next number in the stream is %d", q.ssn)
			}
		})
	}
}

func TestBadSends(t *testing.T) {
	sgl := func(n int, length uint32) []driver.SGE { return slices.Repeat([]driver.SGE{{Length: length}}, n) }
	tests := []struct {
		name string
		wr   driver.SendWR
		want error
	}{
		{"gather entries", driver.SendWR{Op: driver.OpSend, SGL: sgl(5, 1)}, driver.ErrTooManySGE},
		{"inline size", driver.SendWR{Op: driver.OpSend, Inline: make([]byte, 65)}, driver.ErrInlineTooBig},
		{"message size", driver.SendWR{Op: driver.OpSend, SGL: append(sgl(1, 1<<31), sgl(1, 1)...)}, driver.ErrTooLong},
		{"message size beyond 32 bits", driver.SendWR{Op: driver.OpSend, SGL: sgl(4, 1<<30+1)}, driver.ErrTooLong},
		{"message size whose sum wraps to 0", driver.SendWR{Op: driver.OpSend, SGL: sgl(2, 1<<31)}, driver.ErrTooLong},
		{"opcode", driver.SendWR{Op: 200}, driver.ErrBadOpcode},
		{"bind of nothing", driver.SendWR{Op: driver.OpBindMW}, errNoBind},
		{"bind with data", driver.SendWR{Op: driver.OpBindMW, SGL: sgl(1, 1)}, errNoData},
		{"invalidation with data", driver.SendWR{Op: driver.OpLocalInv, Inline: []byte{1}}, errNoData},
		{"both kinds of data", driver.SendWR{Op: driver.OpSend, SGL: sgl(1, 1), Inline: []byte{1}}, errInlineAndSGL},
		{"inline read", driver.SendWR{Op: driver.OpRead, Inline: []byte{1}}, errInlineOp},
		{"inline atomic", driver.SendWR{Op: driver.OpFetchAdd, Inline: make([]byte, 8)}, errInlineOp},
		{"atomic of 4 bytes", driver.SendWR{Op: driver.OpFetchAdd, SGL: sgl(1, 4)}, errAtomicLength},
		{"atomic without memory", driver.SendWR{Op: driver.OpCmpSwap}, errAtomicLength},
		{"the kernel's flag for inline data", driver.SendWR{Op: driver.OpSend, Flags: flagInline, SGL: sgl(1, 1)}, errFlags},
		{"unknown flag", driver.SendWR{Op: driver.OpSend, Flags: 1 << 7}, errFlags},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			qp := &QP{sq: *fakeSendQueue(t, 8, 7), bell: silentBell{}}
			qp.state.Store(uint32(driver.StateRTS))
			good := driver.SendWR{ID: 1, Op: driver.OpSend}
			n, err := qp.PostSend([]driver.SendWR{good, good, tt.wr, good})
			if n != 2 || err != tt.want {
				t.Errorf("posted %d, %v; want 2, %v", n, err, tt.want)
			}
			if qp.sq.head.ProducerIndex != 2 {
				t.Errorf("the kernel sees %d entries", qp.sq.head.ProducerIndex)
			}
			if n, err := qp.PostSend([]driver.SendWR{tt.wr}); n != 0 || err != tt.want {
				t.Errorf("alone: posted %d, %v", n, err)
			}
			good.ID = 2
			if n, err := qp.PostSend([]driver.SendWR{good}); n != 1 || err != nil {
				t.Errorf("after it: posted %d, %v", n, err)
			}
			if w := qp.sq.sendWQE(2); w.WR.WRID != 2 || w.SSN != 2 {
				t.Errorf("entry after it is %d with number %d", w.WR.WRID, w.SSN)
			}
		})
	}
}

func TestRecvElements(t *testing.T) {
	q := fakeRecvQueue(t, 8, 7)
	sgl := []driver.SGE{{Addr: addr, Length: 10, LKey: lkey}, {Addr: 0x2000, Length: 20, LKey: rkey}}
	if n, err := q.write([]driver.RecvWR{{ID: 77, SGL: sgl}, {ID: 78}}); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	want := make(image, atRecvSGL).u64(atID, 77).u32(recvLength, 30).u32(recvResid, 30).u32(recvNum, 2)
	for _, s := range sgl {
		want = order.AppendUint64(want, s.Addr)
		want = order.AppendUint32(order.AppendUint32(want, s.Length), s.LKey)
	}
	if got := elementBytes(&q.view, 0)[:len(want)]; !bytes.Equal(got, want) {
		t.Errorf("element is\n%x, want\n%x", got, []byte(want))
	}
	want = make(image, atRecvSGL).u64(atID, 78)
	if got := elementBytes(&q.view, 1)[:len(want)]; !bytes.Equal(got, want) {
		t.Errorf("empty element is\n%x, want\n%x", got, []byte(want))
	}
	for want, sgl := range map[error][]driver.SGE{
		driver.ErrTooManySGE: make([]driver.SGE, 5),
		driver.ErrTooLong:    slices.Repeat([]driver.SGE{{Length: 1 << 31}}, 2),
	} {
		if n, err := q.write([]driver.RecvWR{{SGL: sgl}}); n != 0 || err != want || q.prod != 2 {
			t.Errorf("%d, %v, want %v", n, err, want)
		}
	}
}

func TestCompletions(t *testing.T) {
	full := uapi.WC{WRID: 1 << 63, VendorErr: 2, ByteLen: 3, Ex: [4]byte{0xde, 0xad, 0xbe, 0xef}, QPNum: 4, PKeyIndex: 6, SLID: 7, SL: 8, DLIDPathBits: 9}
	plain := driver.WC{ID: 1 << 63, VendorErr: 2, ByteLen: 3, QPN: 4, PKeyIndex: 6, SLID: 7, SL: 8, PathBits: 9}
	tests := []struct {
		name        string
		op, st, set uint32
		want        func(*driver.WC)
	}{
		{"send", 0, 0, 0, func(*driver.WC) {}},
		{"send with immediate", 0, 0, 2, func(*driver.WC) {}},
		{"write", 1, 0, 0, func(w *driver.WC) { w.Op = driver.WCWrite }},
		{"receive", 128, 0, 1, func(w *driver.WC) { w.Op = driver.WCRecv }},
		{"receive with immediate", 128, 0, 3, func(w *driver.WC) { w.Op, w.Flags, w.Imm = driver.WCRecv, driver.WCWithImm, 0xdeadbeef }},
		{"write with immediate", 129, 0, 3, func(w *driver.WC) { w.Op, w.Flags, w.Imm = driver.WCRecvWriteWithImm, driver.WCWithImm, 0xdeadbeef }},
		{"receive with invalidate", 128, 0, 5, func(w *driver.WC) {
			w.Op, w.Flags, w.Imm = driver.WCRecv, driver.WCWithInv, order.Uint32(full.Ex[:])
		}},
		{"failed", 0, 12, 0, func(w *driver.WC) { w.Status = driver.RetryExcErr }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cq := fakeCQ(t, 4)
			q := &cq.q
			e := full
			e.Opcode, e.Status, e.WCFlags = tt.op, tt.st, tt.set
			*q.cqe(0) = e
			q.head.ProducerIndex = 1
			want := plain
			tt.want(&want)
			wcs := []driver.WC{{ID: 1, Imm: 99, Flags: 99, Status: 99}, {ID: 2}}
			if n, err := cq.Poll(wcs); n != 1 || err != nil || wcs[0] != want || wcs[1].ID != 2 {
				t.Errorf("%d, %v, %+v; want %+v", n, err, wcs, want)
			}
			if q.head.ConsumerIndex != 1 {
				t.Errorf("consumer index %d", q.head.ConsumerIndex)
			}
		})
	}
}

func TestBadRings(t *testing.T) {
	for _, tt := range []struct {
		name       string
		size       int
		log2, mask uint32
		elem       int
		good       bool
	}{
		{"fits", headSize + 8*256, 8, 7, 208, true},
		{"larger than it says", headSize + 9*256, 8, 7, 208, true},
		{"one slot", headSize + 256, 8, 0, 208, true},
		{"no head", headSize - 1, 8, 7, 208, false},
		{"cut short", headSize + 8*256 - 1, 8, 7, 208, false},
		{"elements too small", headSize + 8*128, 7, 7, 208, false},
		{"elements too large", headSize + 8*256, 31, 7, 208, false},
		{"shift beyond a word", headSize + 8*256, 64, 7, 208, false},
		{"slots no power of two", headSize + 8*256, 8, 6, 208, false},
		{"all slots there are", headSize + 8*256, 8, 1<<32 - 1, 208, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mem := fakeMemory(t, 64, 256)
			head := (*uapi.RxeQueueBuf)(mem.Pointer())
			head.Log2ElemSize, head.IndexMask = tt.log2, tt.mask
			part, err := mem.Slice(0, tt.size)
			if err != nil {
				t.Fatal(err)
			}
			r, err := newRing(part, tt.elem)
			if (err == nil) != tt.good {
				t.Fatalf("error %v", err)
			}
			if err == nil {
				err = r.release()
			} else {
				err = nil
			}
			if mem.Retain() == nil || err != nil {
				t.Error("the memory is still there", err)
			}
		})
	}
}

// TestSendModel drives a send queue and the kernel's end of it by chance, from
// any place of the indices, and compares with a list.
func TestSendModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		slots := 1 << rapid.IntRange(1, 4).Draw(rt, "log2 slots")
		limit := rapid.IntRange(1, slots-1).Draw(rt, "limit")
		q := fakeSendQueue(rt, slots, limit)
		start := rapid.Uint32Range(0, uint32(slots-1)).Draw(rt, "start")
		q.head.ProducerIndex, q.head.ConsumerIndex = start, start
		q.restart()
		qp := &QP{sq: *q, bell: silentBell{}}
		qp.state.Store(uint32(driver.StateRTS))

		var model []uint64 // requests that the kernel has not done
		id, ssn := uint64(0), uint32(0)
		rt.Repeat(map[string]func(*rapid.T){
			"post": func(rt *rapid.T) {
				wrs := make([]driver.SendWR, rapid.IntRange(0, slots+2).Draw(rt, "requests"))
				for i := range wrs {
					wrs[i] = driver.SendWR{ID: id + uint64(i), Op: driver.OpWrite}
				}
				n, err := qp.PostSend(wrs)
				want, wantErr := len(wrs), error(nil)
				if room := limit - len(model); room < want {
					want, wantErr = room, driver.ErrQueueFull
				}
				if n != want || err != wantErr {
					rt.Fatalf("posted %d, %v; want %d, %v", n, err, want, wantErr)
				}
				for range n {
					model = append(model, id)
					id++
				}
			},
			"kernel": func(rt *rapid.T) {
				head := qp.sq.head
				for range rapid.IntRange(0, len(model)).Draw(rt, "done") {
					w := qp.sq.sendWQE(head.ConsumerIndex)
					if w.WR.WRID != model[0] || w.SSN != ssn {
						rt.Fatalf("the kernel finds request %d with number %d, want %d with %d", w.WR.WRID, w.SSN, model[0], ssn)
					}
					w.State, w.DMA.Resid, w.Status = 3, 99, 5 // it writes into them
					model, ssn = model[1:], ssn+1
					head.ConsumerIndex = (head.ConsumerIndex + 1) & uint32(slots-1)
				}
			},
			"reset": func(*rapid.T) {
				qp.sq.head.ConsumerIndex = qp.sq.head.ProducerIndex
				qp.sq.restart()
				model, ssn = nil, 0
			},
			"": func(rt *rapid.T) {
				if got := qp.sq.used(qp.sq.head.ProducerIndex, qp.sq.head.ConsumerIndex); got != len(model) {
					rt.Fatalf("the kernel sees %d requests, want %d", got, len(model))
				}
			},
		})
	})
}

// TestRecvModel does the same for receives, with lists that the kernel gets at
// once.
func TestRecvModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		slots := 1 << rapid.IntRange(1, 4).Draw(rt, "log2 slots")
		limit := rapid.IntRange(1, slots-1).Draw(rt, "limit")
		q := fakeRecvQueue(rt, slots, limit)
		start := rapid.Uint32Range(0, uint32(slots-1)).Draw(rt, "start")
		q.head.ProducerIndex, q.head.ConsumerIndex = start, start
		q.restart()
		qp := &QP{rq: *q}
		qp.state.Store(uint32(driver.StateInit))
		var model []uint64
		id := uint64(0)
		rt.Repeat(map[string]func(*rapid.T){
			"post": func(rt *rapid.T) {
				wrs := make([]driver.RecvWR, rapid.IntRange(0, slots+2).Draw(rt, "receives"))
				for i := range wrs {
					wrs[i] = driver.RecvWR{ID: id + uint64(i)}
				}
				want, wantErr := len(wrs), error(nil)
				if room := limit - len(model); room < want {
					want, wantErr = room, driver.ErrQueueFull
				}
				if n, err := qp.PostRecv(wrs); n != want || err != wantErr {
					rt.Fatalf("posted %d, %v; want %d, %v", n, err, want, wantErr)
				}
				for range want {
					model = append(model, id)
					id++
				}
			},
			"kernel": func(rt *rapid.T) {
				head := qp.rq.head
				for range rapid.IntRange(0, len(model)).Draw(rt, "taken") {
					if got := qp.rq.recvWQE(head.ConsumerIndex).WRID; got != model[0] {
						rt.Fatalf("the kernel finds receive %d, want %d", got, model[0])
					}
					model = model[1:]
					head.ConsumerIndex = (head.ConsumerIndex + 1) & uint32(slots-1)
				}
			},
			"": func(rt *rapid.T) {
				if got := qp.rq.used(qp.rq.head.ProducerIndex, qp.rq.head.ConsumerIndex); got != len(model) {
					rt.Fatalf("the kernel sees %d receives, want %d", got, len(model))
				}
			},
		})
	})
}

// TestCompModel fills, polls and cleans a CQ of three QPs.
func TestCompModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		slots := 1 << rapid.IntRange(1, 4).Draw(rt, "log2 slots")
		cq := fakeCQ(rt, slots)
		q := &cq.q
		q.cons = rapid.Uint32Range(0, uint32(slots-1)).Draw(rt, "start")
		q.head.ProducerIndex, q.head.ConsumerIndex = q.cons, q.cons
		qpn := rapid.Uint32Range(1, 3)
		var model []driver.WC
		id := uint64(0)
		rt.Repeat(map[string]func(*rapid.T){
			"kernel": func(rt *rapid.T) {
				for range rapid.IntRange(0, slots-1-len(model)).Draw(rt, "completions") {
					e := cqe(id, qpn.Draw(rt, "QP"))
					e.Status = rapid.Uint32Range(0, 1).Draw(rt, "status") * 5
					*q.cqe(q.head.ProducerIndex) = e
					q.head.ProducerIndex = (q.head.ProducerIndex + 1) & uint32(slots-1)
					model = append(model, driver.WC{ID: id, QPN: e.QPNum, Status: driver.Status(e.Status)})
					id++
				}
			},
			"poll": func(rt *rapid.T) {
				wcs := make([]driver.WC, rapid.IntRange(0, slots).Draw(rt, "room"))
				n, err := cq.Poll(wcs)
				want := model[:min(len(wcs), len(model))]
				if !slices.Equal(wcs[:n], want) || err != nil {
					rt.Fatalf("polled %+v, %v; want %+v", wcs[:n], err, want)
				}
				model = model[n:]
			},
			"drop": func(rt *rapid.T) {
				gone := qpn.Draw(rt, "QP")
				before := q.head.ProducerIndex
				q.drop(gone)
				if q.head.ProducerIndex != before {
					rt.Fatal("the kernel's index was moved")
				}
				model = slices.DeleteFunc(slices.Clone(model), func(w driver.WC) bool { return w.QPN == gone })
			},
			"": func(rt *rapid.T) {
				if got := q.used(q.head.ProducerIndex, q.head.ConsumerIndex); got != len(model) {
					rt.Fatalf("%d completions are in the ring, want %d", got, len(model))
				}
			},
		})
	})
}

// TestKernelBeside runs the kernel's end in another goroutine: what it sees of a
// published entry is whole, and what it completes is seen whole.
func TestKernelBeside(t *testing.T) {
	const total = 20000
	qp := &QP{sq: *fakeSendQueue(t, 16, 15), bell: silentBell{}}
	qp.state.Store(uint32(driver.StateRTS))
	cq := fakeCQ(t, 16)
	var wg sync.WaitGroup
	var bad error
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of the slowest machine
	defer cancel()
	wg.Go(func() {
		sq, cons := qp.sq.ring, uint32(0)
		out, prod := cq.q.ring, uint32(0)
		for id := uint64(0); id < total && ctx.Err() == nil; {
			if mmio.LoadAcquire32(&sq.head.ProducerIndex) == cons || out.next(prod) == mmio.LoadAcquire32(&out.head.ConsumerIndex) {
				runtime.Gosched()
				continue
			}
			w := sq.sendWQE(cons)
			if w.WR.WRID != id || w.IOVA != id+1 || w.DMA.Length != uint32(id%1000) || sendSGL(w, 1)[0].Addr != id+2 {
				bad = errors.Join(bad, fmt.Errorf("request %d: %+v", id, *w))
			}
			*w = uapi.RxeSendWQE{}
			cons = sq.next(cons)
			mmio.StoreRelease32(&sq.head.ConsumerIndex, cons)
			e := cqe(id, uint32(id))
			e.ByteLen = uint32(id) + 1
			*out.cqe(prod) = e
			prod = out.next(prod)
			mmio.StoreRelease32(&out.head.ProducerIndex, prod)
			id++
		}
	})
	next, done := uint64(0), uint64(0)
	wcs := make([]driver.WC, 5)
	for done < total && ctx.Err() == nil {
		var wrs [3]driver.SendWR
		for i := range wrs {
			id := next + uint64(i)
			wrs[i] = driver.SendWR{ID: id, Op: driver.OpWrite, SGL: []driver.SGE{{Addr: id + 2, Length: uint32(id % 1000)}}, Remote: driver.Remote{Addr: id + 1}}
		}
		n, err := qp.PostSend(wrs[:min(uint64(len(wrs)), total-next)])
		if err != nil && err != driver.ErrQueueFull {
			t.Fatal(err)
		}
		next += uint64(n)
		got, err := cq.Poll(wcs)
		if err != nil {
			t.Fatal(err)
		}
		for _, wc := range wcs[:got] {
			if wc.ID != done || wc.QPN != uint32(done) || wc.ByteLen != uint32(done)+1 {
				t.Fatalf("completion %d is %+v", done, wc)
			}
			done++
		}
		if n+got == 0 {
			runtime.Gosched()
		}
	}
	wg.Wait()
	if bad != nil || ctx.Err() != nil {
		t.Error(done, bad, ctx.Err())
	}
}

func TestNoAllocations(t *testing.T) {
	qp := &QP{sq: *fakeSendQueue(t, 16, 15), rq: *fakeRecvQueue(t, 16, 15), bell: silentBell{}}
	qp.state.Store(uint32(driver.StateRTS))
	cq := fakeCQ(t, 16)
	send := []driver.SendWR{{Op: driver.OpWrite, SGL: make([]driver.SGE, 4)}, {Op: driver.OpSend, Inline: make([]byte, 64)}}
	recv := []driver.RecvWR{{SGL: make([]driver.SGE, 4)}}
	wcs := make([]driver.WC, 4)
	for name, f := range map[string]func(){
		"PostSend": func() {
			if n, err := qp.PostSend(send); n != 2 || err != nil {
				t.Fatal(n, err)
			}
			qp.sq.head.ConsumerIndex = qp.sq.prod
		},
		"PostSend into a full queue": func() {
			for {
				if n, err := qp.PostSend(send); n < 2 || err != nil {
					break
				}
			}
			qp.sq.head.ConsumerIndex = qp.sq.prod
		},
		"PostRecv": func() {
			if n, err := qp.PostRecv(recv); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			qp.rq.head.ConsumerIndex = qp.rq.prod
		},
		"Poll": func() {
			cq.q.head.ProducerIndex = (cq.q.cons + 3) & cq.q.mask
			for i := range uint32(3) {
				*cq.q.cqe(cq.q.cons + i) = cqe(1, 1)
			}
			if n, err := cq.Poll(wcs); n != 3 || err != nil {
				t.Fatal(n, err)
			}
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

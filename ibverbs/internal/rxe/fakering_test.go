package rxe

import (
	"math/bits"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/offheap"
)

// tester is a *testing.T, *testing.B or *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Error(args ...any)
	Cleanup(f func())
}

// fakeMemory is a ring as the kernel lays it out: slots elements of size bytes,
// both powers of two, full of rubbish.
func fakeMemory(tb tester, slots, size int) offheap.Span {
	tb.Helper()
	mem, err := offheap.Map(headSize+slots*size, offheap.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	b := mem.Bytes()
	for i := range b[headSize:] {
		b[headSize+i] = 0xa5
	}
	head := (*uapi.RxeQueueBuf)(mem.Pointer())
	head.Log2ElemSize = uint32(bits.TrailingZeros(uint(size)))
	head.IndexMask = uint32(slots - 1)
	return mem
}

func fakeRing(tb tester, slots, size, elem int) ring {
	tb.Helper()
	r, err := newRing(fakeMemory(tb, slots, size), elem)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.release(); err != nil {
			tb.Error(err)
		}
	})
	return r
}

func fakeSendQueue(tb tester, slots, limit int) *sendQueue {
	tb.Helper()
	const sge = 4
	q := &sendQueue{ring: fakeRing(tb, slots, 512, sendWQESize+64), ops: opsRC, limit: limit, sge: sge, inline: sge * sgeSize}
	q.free = limit
	return q
}

func fakeRecvQueue(tb tester, slots, limit int) *recvQueue {
	tb.Helper()
	const sge = 4
	q := &recvQueue{ring: fakeRing(tb, slots, 128, recvWQESize+sge*sgeSize), limit: limit, sge: sge}
	q.free = limit
	return q
}

// fakeCQ is of a device without QPs.
func fakeCQ(tb tester, slots int) *CQ {
	tb.Helper()
	return &CQ{q: compQueue{ring: fakeRing(tb, slots, 128, cqeSize)}, dev: &Context{}}
}

// cqe is a completion as the kernel stores it.
func cqe(id uint64, qpn uint32) uapi.WC { return uapi.WC{WRID: id, QPNum: qpn} }

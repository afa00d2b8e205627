package rxe

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// The benchmarks do what ibverbs does around a driver (lock, closed, state, a
// call by interface), and the kernel's side by a store of its index. Their C
// counterparts are in testdata/rings.c; bench/rings runs both by turns.

// poster and poller are the parts of the seam that are measured.
type (
	poster interface {
		PostSend([]driver.SendWR) (int, error)
	}
	poller interface {
		Poll([]driver.WC) (int, error)
	}
)

// front is ibverbs' part.
type front struct {
	sync.Mutex
	closed bool
	state  atomic.Uint32
	qp     poster
	cq     poller
}

func (f *front) post(wrs []driver.SendWR) (n int, err error) {
	f.Lock()
	if f.closed || f.state.Load() < uint32(driver.RTS) {
		err = driver.ErrBadState
	} else {
		n, err = f.qp.PostSend(wrs)
	}
	f.Unlock()
	return n, err
}

func (f *front) poll(wcs []driver.WC) (n int, err error) {
	f.Lock()
	if !f.closed {
		n, err = f.cq.Poll(wcs)
	}
	f.Unlock()
	return n, err
}

type silentBell struct{}

func (silentBell) Ring() error { return nil }

const benchSlots = 128

func benchQP(b *testing.B) (*front, *QP) {
	qp := &QP{sq: *fakeSendQueue(b, benchSlots, benchSlots-1), bell: silentBell{}}
	qp.state.Store(uint32(driver.RTS))
	f := &front{qp: qp}
	f.state.Store(uint32(driver.RTS))
	return f, qp
}

func benchWrites(n int) []driver.SendWR {
	wrs := make([]driver.SendWR, n)
	for i := range wrs {
		wrs[i] = driver.SendWR{ID: uint64(i), Op: driver.OpWrite, Flags: driver.Signaled,
			SGL: []driver.SGE{{Addr: 0x1000, Length: 4096, LKey: 7}}, Remote: driver.Remote{Addr: 0x2000, RKey: 9}}
	}
	return wrs
}

// benchPost posts n writes at a time and lets the kernel take them at once.
func benchPost(b *testing.B, n int) {
	f, qp := benchQP(b)
	wrs := benchWrites(n)
	b.ReportAllocs()
	for b.Loop() {
		if got, err := f.post(wrs); got != n || err != nil {
			b.Fatal(got, err)
		}
		qp.sq.head.ConsumerIndex = qp.sq.prod
	}
}

func BenchmarkPostWrite(b *testing.B)  { benchPost(b, 1) }
func BenchmarkPostList16(b *testing.B) { benchPost(b, 16) }

// BenchmarkPollOne takes one completion, which the kernel has just stored.
func BenchmarkPollOne(b *testing.B) {
	cq := &CQ{q: *fakeCompQueue(b, benchSlots)}
	for i := range uint32(benchSlots) {
		*cq.q.cqe(i) = cqe(uint64(i), 1)
	}
	f := &front{cq: cq}
	wcs := make([]driver.WC, 16)
	b.ReportAllocs()
	for b.Loop() {
		cq.q.head.ProducerIndex = cq.q.next(cq.q.cons)
		if n, err := f.poll(wcs); n != 1 || err != nil {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkPollNone looks at an empty CQ.
func BenchmarkPollNone(b *testing.B) {
	f := &front{cq: &CQ{q: *fakeCompQueue(b, benchSlots)}}
	wcs := make([]driver.WC, 16)
	b.ReportAllocs()
	for b.Loop() {
		if n, err := f.poll(wcs); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}

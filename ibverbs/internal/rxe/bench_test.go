package rxe

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purerdma/purerdma/bench/stats"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/spin"
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
	send   sync.Mutex
	comp   spin.Mutex
	closed bool
	state  atomic.Uint32
	qp     poster
	cq     poller
}

func (f *front) post(wrs []driver.SendWR) (n int, err error) {
	f.send.Lock()
	if f.closed || f.state.Load() < uint32(driver.StateRTS) {
		err = driver.ErrBadState
	} else {
		n, err = f.qp.PostSend(wrs)
	}
	f.send.Unlock()
	return n, err
}

func (f *front) poll(wcs []driver.WC) (n int, err error) {
	f.comp.Lock()
	if !f.closed {
		n, err = f.cq.Poll(wcs)
	}
	f.comp.Unlock()
	return n, err
}

type silentBell struct{}

func (silentBell) Ring() error { return nil }

const benchSlots = 128

func benchQP(b *testing.B) (*front, *QP) {
	qp := &QP{sq: *fakeSendQueue(b, benchSlots, benchSlots-1), bell: silentBell{}}
	qp.state.Store(uint32(driver.StateRTS))
	f := &front{qp: qp}
	f.state.Store(uint32(driver.StateRTS))
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

// median runs call in batches and reports the median batch: on a shared machine
// preemption falls into few of them. Each is short against a time slice and long
// against the clock. call does batch calls.
func median(b *testing.B, call func()) {
	b.ReportAllocs()
	var took []float64
	for b.Loop() {
		start := time.Now()
		call()
		took = append(took, float64(time.Since(start).Nanoseconds())/batch)
	}
	b.ReportMetric(stats.Median(took), "ns/op")
}

const batch = 500

// benchPost posts n writes at a time and lets the kernel take them at once.
func benchPost(b *testing.B, n int) {
	f, qp := benchQP(b)
	wrs := benchWrites(n)
	median(b, func() {
		for range batch {
			if got, err := f.post(wrs); got != n || err != nil {
				b.Fatal(got, err)
			}
			qp.sq.head.ConsumerIndex = qp.sq.prod
		}
	})
}

func BenchmarkPostWrite(b *testing.B)  { benchPost(b, 1) }
func BenchmarkPostList16(b *testing.B) { benchPost(b, 16) }

// benchPoll polls n completions that the kernel has just stored.
func benchPoll(b *testing.B, n int) {
	cq := fakeCQ(b, benchSlots)
	for i := range uint32(benchSlots) {
		*cq.q.cqe(i) = cqe(uint64(i), 1)
	}
	f := &front{cq: cq}
	wcs := make([]driver.WC, 16)
	median(b, func() {
		for range batch {
			cq.q.head.ProducerIndex = (cq.q.cons + uint32(n)) & cq.q.mask
			if got, err := f.poll(wcs); got != n || err != nil {
				b.Fatal(got, err)
			}
		}
	})
}

func BenchmarkPollNone(b *testing.B) { benchPoll(b, 0) }
func BenchmarkPollOne(b *testing.B)  { benchPoll(b, 1) }
func BenchmarkPoll16(b *testing.B)   { benchPoll(b, 16) }

package mlx5model

import (
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/purerdma/purerdma/bench/stats"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	buffers "github.com/purerdma/purerdma/mr"
)

// speedDepth is how many requests are posted before their completions are taken.
const speedDepth = 256

// sleeper is a queue pair on an adapter that executes nothing: the completions of its
// requests are written by complete. bench/mlx5/c/peer.c is the same on libmlx5.
type sleeper struct {
	m       *Model
	qp      *ibverbs.QP
	cq      *ibverbs.CQ
	list    []ibverbs.SendWR
	wcs     []ibverbs.WC
	ring    *cq
	num     uint32
	key     uint32
	written uint32
}

func newSleeper(t testing.TB, list int) *sleeper {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &sleeper{m: New(Config{Asleep: true, Fault: func(s string) { t.Error("model: " + s) }}), wcs: make([]ibverbs.WC, list)}
	dev, err := ibverbs.Open("mlx5_0", ibverbs.WithDrivers(ourDriver(NewLocal(s.m), s.m.config, 0)))
	must(err)
	t.Cleanup(func() { must(dev.Close()) })
	pd, err := dev.AllocPD()
	must(err)
	s.cq, err = dev.CreateCQ(speedDepth)
	must(err)
	buf, err := buffers.Alloc(4096)
	must(err)
	t.Cleanup(func() { must(buf.Close()) })
	mem, err := pd.RegMR(buf, ibverbs.LocalWrite|ibverbs.RemoteWrite)
	must(err)
	s.qp, err = pd.CreateQP(ibverbs.QPConfig{Type: ibverbs.RC, SendCQ: s.cq, RecvCQ: s.cq, Cap: ibverbs.QPCap{SendWR: speedDepth, RecvWR: 1, SendSGE: 1, RecvSGE: 1}})
	must(err)
	connectOurs(t, s.qp, s.qp.Num())
	for i := range list {
		s.list = append(s.list, ibverbs.SendWR{ID: uint64(i), Op: ibverbs.OpWrite, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{mem.SGE(0, 64)}, Remote: mem.Remote(2048)})
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for _, q := range s.m.qps {
		s.ring, s.num, s.key = q.send, q.num, q.key
	}
	return s
}

// complete writes the completions of the next n requests, each of which is one block of
// the queue, into the ring itself: system calls would leave other caches behind.
func (s *sleeper) complete(n int) {
	for range n {
		at := s.ring.buf + uint64(s.written&(s.ring.n-1)*s.ring.stride)
		e := *(**mlx5prm.CQE)(unsafe.Pointer(&at))
		e.SRQNUIdx.Set(s.key)
		e.SOpDropQPN.Set(uint32(mlx5prm.OpWrite)<<24 | s.num)
		e.WQECounter.Set(uint16(s.written))
		e.OpOwn = mlx5prm.CQEReq << 4
		if s.written&s.ring.n != 0 {
			e.OpOwn |= mlx5prm.OwnerMask
		}
		s.written++
	}
}

// post fills the queue, list by list, and poll takes all completions, as many at a time.
func (s *sleeper) post() error {
	for range speedDepth / len(s.list) {
		if _, err := s.qp.PostSend(s.list...); err != nil {
			return err
		}
	}
	return nil
}

func (s *sleeper) poll() error {
	for got := 0; got < speedDepth; {
		n, err := s.cq.Poll(s.wcs)
		if err != nil || n == 0 {
			return fmt.Errorf("%d of %d completions, %v", got, speedDepth, err)
		}
		got += n
	}
	return nil
}

// check is whether the last completion is that of the last request.
func (s *sleeper) check() error {
	if wc := &s.wcs[len(s.wcs)-1]; wc.Status != ibverbs.Success || wc.Op != ibverbs.WCWrite || wc.QPN != s.num || wc.ID != uint64(len(s.list)-1) {
		return fmt.Errorf("completion %+v", *wc)
	}
	return nil
}

var speedLists = []int{1, 16, 64}

// TestSpeedAllocates holds that posts and polls, by themselves and of lists, allocate
// nothing.
func TestSpeedAllocates(t *testing.T) {
	for _, list := range speedLists {
		s := newSleeper(t, list)
		var err error
		if n := testing.AllocsPerRun(20, func() {
			err = errors.Join(err, s.post())
			s.complete(speedDepth)
			err = errors.Join(err, s.poll(), s.check())
		}); n != 0 || err != nil {
			t.Errorf("lists of %d: %v allocations, %v", list, n, err)
		}
	}
}

// BenchmarkSpeed is the side of bench/mlx5 that is ours. It reports the median of sections
// of speedDepth requests: preemption falls into few of them.
func BenchmarkSpeed(b *testing.B) {
	for _, list := range speedLists {
		b.Run(fmt.Sprintf("list%d", list), func(b *testing.B) {
			s := newSleeper(b, list)
			var posts, polls []float64
			calls := float64(speedDepth / list)
			for b.Loop() {
				start := time.Now()
				err := s.post()
				posts = append(posts, float64(time.Since(start).Nanoseconds())/calls)
				s.complete(speedDepth)
				start = time.Now()
				err = errors.Join(err, s.poll())
				polls = append(polls, float64(time.Since(start).Nanoseconds())/calls)
				if err := errors.Join(err, s.check()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(stats.Median(posts), "ns/post")
			b.ReportMetric(stats.Median(polls), "ns/poll")
		})
	}
}

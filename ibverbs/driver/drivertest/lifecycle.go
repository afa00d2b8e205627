package drivertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/offheap"
)

// testSharedCQ has eight QPs complete into one CQ: numbers and order are right.
func testSharedCQ(t *testing.T, cfg Config) {
	const pairs = 8
	a, b := connect(t, cfg, setup{depth: 1024})
	want := setup{}.withDefaults(cfg)
	var as []*side
	for range pairs {
		a2, b2 := a.twin(), b.twin()
		a2.peer, b2.peer = b2, a2
		for _, s := range []*side{a2, b2} {
			s.init(want)
		}
		a2.join(want)
		b2.join(want)
		as = append(as, a2)
	}
	next := map[uint32]uint64{}
	for id := range uint64(8) {
		for _, s := range as {
			next[s.qp.Num()] = 0
			s.postSend(driver.SendWR{ID: id, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)})
		}
	}
	for _, wc := range a.take(8 * pairs) {
		if n, ok := next[wc.QPN]; !ok || wc.ID != n || wc.Status != driver.Success {
			t.Fatalf("completion %+v, QP known: %v, next of it is %d", wc, ok, n)
		}
		next[wc.QPN]++
	}
	a.none()
}

// testTeardown closes objects in all orders that their parents allow.
func testTeardown(t *testing.T, cfg Config) {
	rng := rand.New(rand.NewPCG(cfg.Seed, 5))
	for range min(cfg.Rounds, 20) {
		end, other := cfg.Open(t)
		if other.Context != end.Context {
			check(t, "close context", other.Context.Close())
		}
		pd, err := end.Context.AllocPD()
		must(t, "alloc PD", err)
		ch, err := end.Context.CreateCompChannel()
		must(t, "create completion channel", err)
		cq, err := end.Context.CreateCQ(driver.CQConfig{Depth: 8, Channel: ch})
		must(t, "create CQ", err)
		qp, err := pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: cq, RecvCQ: cq, Cap: driver.QPCap{SendWR: 1, RecvWR: 1, SendSGE: 1, RecvSGE: 1}})
		must(t, "create QP", err)
		mem, err := offheap.Map(4096, offheap.Options{})
		must(t, "map memory", err)
		mr, err := pd.RegMR(mem, mem.Addr(), driver.LocalWrite)
		must(t, "register memory", err)

		left := map[string]func() error{
			"QP": qp.Close, "CQ": cq.Close, "PD": pd.Close, "MR": mr.Close, "channel": ch.Close, "memory": mem.Release,
		}
		before := map[string][]string{"PD": {"QP", "MR"}, "CQ": {"QP"}, "channel": {"CQ"}}
		var order []string
		for len(left) > 0 {
			name := pick(rng, left)
			ready := true
			for _, child := range before[name] {
				if left[child] != nil {
					ready = false
				}
			}
			if !ready {
				continue
			}
			order = append(order, name)
			check(t, fmt.Sprint("close in the order ", order), left[name]())
			delete(left, name)
		}
		check(t, fmt.Sprint("close context after ", order), end.Context.Close())
	}
}

func pick(rng *rand.Rand, left map[string]func() error) string {
	all := []string{"QP", "CQ", "PD", "MR", "channel", "memory"}
	for {
		if name := all[rng.IntN(len(all))]; left[name] != nil {
			return name
		}
	}
}

// testCloseUnderLoad closes QPs, then MRs, while other goroutines post and poll
// on both ends.
func testCloseUnderLoad(t *testing.T, cfg Config) {
	for range min(cfg.Rounds, 10) {
		a, b := connect(t, cfg, setup{})
		var users sync.WaitGroup
		stop := make(chan struct{})
		for _, s := range []*side{a, b} {
			for _, work := range []func(){
				func() {
					_, _ = s.ifOpen(&s.send, func() (int, error) {
						return s.qp.PostSend([]driver.SendWR{{ID: 1, Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{s.sge(0, 512)}},
							{ID: 2, Op: driver.OpWrite, SGL: []driver.SGE{s.sge(0, 2048)}, Remote: s.peer.remote(4096)}})
					})
				},
				func() {
					_, _ = s.ifOpen(&s.recv, func() (int, error) {
						return s.qp.PostRecv([]driver.RecvWR{{ID: 3, SGL: []driver.SGE{s.sge(8192, 512)}}})
					})
				},
				func() { _, _ = s.cq.pollOnce(8) },
			} {
				users.Add(1)
				go func() {
					defer users.Done()
					for {
						select {
						case <-stop:
							return
						default:
							work()
							runtime.Gosched()
						}
					}
				}()
			}
		}
		time.Sleep(cfg.Quiet / 10)
		a.closeQP()
		check(t, "close MR", b.mr.Close()) // b may be using it
		b.closeQP()
		close(stop)
		users.Wait()
	}
}

// ifOpen calls f under the lock mu unless the QP is closed.
func (s *side) ifOpen(mu *sync.Mutex, f func() (int, error)) (int, error) {
	mu.Lock()
	defer mu.Unlock()
	if s.qp == nil {
		return 0, driver.ErrClosed
	}
	n, err := f()
	if err != nil && !errors.Is(err, driver.ErrQueueFull) {
		s.t.Errorf("post: %v", err)
	}
	return n, err
}

// testAllocations counts allocations of posting and polling once things run.
func testAllocations(t *testing.T, cfg Config) {
	if cfg.PostAllocates {
		t.Skip("Config.PostAllocates")
	}
	a, b := connect(t, cfg, setup{})
	sgl := []driver.SGE{a.sge(0, 64)}
	rsgl := []driver.SGE{b.sge(0, 64)}
	inline := make([]byte, 32)
	sends := []driver.SendWR{
		{ID: 1, Op: driver.OpWrite, SGL: sgl, Remote: b.remote(0)},
		{ID: 2, Op: driver.OpSend, Inline: inline},
		{ID: 3, Op: driver.OpRead, Flags: driver.Signaled, SGL: sgl, Remote: b.remote(0)},
	}
	recvs := []driver.RecvWR{{ID: 4, SGL: rsgl}}
	wcs := make([]driver.WC, 4)
	got := testing.AllocsPerRun(cfg.Rounds, func() {
		if n, err := b.qp.PostRecv(recvs); n != 1 || err != nil {
			t.Fatalf("post receive: %d, %v", n, err)
		}
		if n, err := a.qp.PostSend(sends); n != 3 || err != nil {
			t.Fatalf("post send: %d, %v", n, err)
		}
		a.cq.drain(t, cfg, wcs)
		b.cq.drain(t, cfg, wcs)
	})
	if got != 0 {
		t.Errorf("posting and polling allocates %v times a round", got)
	}
}

// drain waits for completions, into wcs, and allocates nothing. It sleeps between: in
// AllocsPerRun there is one processor, which a loop that yields keeps from the
// network.
func (q *queue) drain(t *testing.T, cfg Config, wcs []driver.WC) {
	for start := time.Now(); ; time.Sleep(10 * time.Microsecond) {
		n, err := q.CQ.Poll(wcs)
		if err != nil || n > 0 && wcs[0].Status != driver.Success {
			t.Fatalf("poll: %v, %v", wcs[0].Status, err)
		}
		if n > 0 {
			return
		}
		if time.Since(start) > cfg.Wait {
			t.Fatal("no completion")
		}
	}
}

package mlx5model

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// TestResize has a CQ of ours move between rings, larger and smaller ones, with
// completions in it: none is lost, none comes twice, and they keep their order. A ring with
// no room for them is refused.
func TestResize(t *testing.T) {
	for _, size := range []int{64, 128} {
		m := New(Config{Fault: func(s string) { t.Error("model: " + s) }})
		p := newLoop(t, m, size, 15)
		var want, id uint64
		post := func(n int) {
			for range n {
				id++
				if n, err := p.qp.PostSend([]driver.SendWR{{ID: id, Op: driver.OpWrite, Flags: driver.Signaled}}); n != 1 || err != nil {
					t.Fatalf("%d posted, %v", n, err)
				}
			}
			p.settle(t)
		}
		poll := func(n int) {
			var wcs [1]driver.WC
			for range n {
				if n, err := p.cq.Poll(wcs[:]); n != 1 || err != nil {
					t.Fatalf("%d completions, %v", n, err)
				}
				if want++; wcs[0].ID != want || wcs[0].Status != driver.Success {
					t.Fatalf("%+v, want %d", wcs[0], want)
				}
			}
		}
		for _, s := range []struct{ posts, depth, polls int }{
			{3, 63, 1}, {20, 31, 5}, {9, 100, 26}, {0, 7, 0}, {6, 15, 2}, {4, 63, 8}, {50, 127, 50},
		} {
			post(s.posts)
			if err := p.cq.Resize(s.depth); err != nil {
				t.Fatalf("%+v: %v", s, err)
			}
			if p.cq.Depth() < s.depth {
				t.Errorf("the depth is %d, want %d", p.cq.Depth(), s.depth)
			}
			poll(s.polls)
		}
		post(40)
		if err := p.cq.Resize(31); err == nil || !strings.Contains(err.Error(), "poll first") {
			t.Errorf("40 completions in a ring of 31: %v", err)
		}
		poll(40)
		if n, err := p.cq.Poll(make([]driver.WC, 1)); n != 0 || err != nil {
			t.Errorf("%d completions are left, %v", n, err)
		}
	}
}

// loop is a queue pair that is connected to itself.
type loop struct {
	m  *Model
	cq driver.CQ
	qp driver.QP
}

func newLoop(t *testing.T, m *Model, size, depth int) *loop {
	t.Helper()
	dev := openOurs(t, NewLocal(m), m.config, size)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pd, err := dev.AllocPD()
	must(err)
	p := &loop{m: m}
	p.cq, err = dev.CreateCQ(driver.CQConfig{Depth: depth})
	must(err)
	p.qp, err = pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: p.cq, RecvCQ: p.cq, Cap: driver.QPCap{SendWR: 128, RecvWR: 4, SendSGE: 1, RecvSGE: 1}})
	must(err)
	t.Cleanup(func() {
		if err := p.qp.Close(); err != nil {
			t.Error(err)
		}
		p.qp.Purge()
		for _, o := range []interface{ Close() error }{p.cq, pd, dev} {
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	for _, s := range []struct {
		a    driver.QPAttr
		mask driver.QPMask
	}{
		{driver.QPAttr{State: driver.StateInit, Port: 1, Access: driver.RemoteWrite}, driver.QPPort | driver.QPPKeyIndex | driver.QPAccessFlags},
		{driver.QPAttr{State: driver.StateRTR, PathMTU: driver.MTU1024, DestQPN: p.qp.Num(), AH: driver.AHAttr{DLID: lid, Port: 1}},
			driver.QPAV | driver.QPPathMTU | driver.QPDestQPN | driver.QPRQPSN | driver.QPMaxDestRdAtomic | driver.QPMinRNRTimer},
		{driver.QPAttr{State: driver.StateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7},
			driver.QPSQPSN | driver.QPTimeout | driver.QPRetryCnt | driver.QPRNRRetry | driver.QPMaxQPRdAtomic},
	} {
		must(p.qp.Modify(&s.a, s.mask|driver.QPStateMask))
	}
	return p
}

// settle waits until the adapter has done what is posted.
func (p *loop) settle(t *testing.T) {
	t.Helper()
	for done, end := false, time.Now().Add(time.Minute); !done; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("the adapter has not done what is posted")
		}
		p.m.mu.Lock()
		q := p.m.qps[p.qp.Num()]
		posted, ok := counter(q.c.mem, q.db+4)
		done = ok && posted == q.sqCI
		p.m.mu.Unlock()
	}
}

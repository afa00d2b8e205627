package drivertest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// testSRQ is receive queues that several QPs share. Whether a place is free again
// when its receive is taken or when its completion is polled is the device's choice,
// and so is what becomes of a mark that is armed when fewer receives are left
// already, and whether a QP in error tells that it takes no more.
func testSRQ(t *testing.T, cfg Config) {
	if _, b := open(t, cfg); !b.hasSRQ() {
		if _, err := b.otherPD().CreateSRQ(driver.SRQConfig{WR: 1, SGE: 1}); !cfg.NoSRQ && !errors.Is(err, driver.ErrNotSupported) {
			t.Errorf("CreateSRQ, which Probe says is not there: error %v, want %v", err, driver.ErrNotSupported)
		}
		t.Skip("the device has no SRQ")
	}
	for _, part := range []struct {
		name string
		run  func(*testing.T, Config)
	}{
		{"Sizes", testSRQSizes},
		{"Taken", testSRQTaken},
		{"Empty", testSRQEmpty},
		{"Full", testSRQFull},
		{"Limit", testSRQLimit},
		{"Resize", testSRQResize},
		{"Flush", testSRQFlush},
		{"InUse", testSRQInUse},
		{"Load", testSRQLoad},
		{"Allocations", testSRQAllocations},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, cfg) })
	}
}

func (s *side) hasSRQ() bool { return !s.cfg.NoSRQ && s.Context.Probe(driver.FeatureSRQ) == nil }

// srqCookie comes back in the events of SRQs.
const srqCookie = 1<<33 + 5

// sharedQueue is an SRQ with its lock.
type sharedQueue struct {
	driver.SRQ
	s  *side
	mu sync.Mutex
}

func (s *side) newSRQ(c driver.SRQConfig) *sharedQueue {
	c.Cookie = srqCookie
	d, err := s.pd.CreateSRQ(c)
	must(s.t, "create SRQ", err)
	q := &sharedQueue{SRQ: d, s: s}
	s.t.Cleanup(func() { check(s.t, "close SRQ", q.SRQ.Close()) })
	return q
}

func (q *sharedQueue) tryRecv(wrs ...driver.RecvWR) (int, error) {
	q.mu.Lock()
	n, err := q.PostRecv(wrs)
	q.mu.Unlock()
	for i := range wrs {
		scribble(wrs[i].SGL)
		wrs[i] = driver.RecvWR{ID: ^uint64(0)}
	}
	return n, err
}

func (q *sharedQueue) postRecv(wrs ...driver.RecvWR) {
	q.s.t.Helper()
	want := len(wrs)
	if n, err := q.tryRecv(wrs...); err != nil || n != want {
		q.s.t.Fatalf("post receive to SRQ: %d of %d, %v", n, want, err)
	}
}

// post posts n receives, the first with the ID from, each into the slot of its ID.
func (q *sharedQueue) post(from, n int) {
	q.s.t.Helper()
	for id := from; id < from+n; id++ {
		q.postRecv(driver.RecvWR{ID: uint64(id), SGL: []driver.SGE{q.s.slot(id)}})
	}
}

// slot is where receive id of an SRQ goes.
func (s *side) slot(id int) driver.SGE { return s.sge(id*8, 8) }

func (q *sharedQueue) control(what string, f func() error) {
	q.s.t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	must(q.s.t, what, f())
}

// sharing gives QPs of a connected to QPs of b that share a queue. All of an end
// have one CQ.
func sharing(t *testing.T, cfg Config, pairs int, c driver.SRQConfig) (as, bs []*side, q *sharedQueue) {
	a, b := open(t, cfg)
	want := setup{depth: 256}.withDefaults(cfg)
	a.build(want)
	b.build(want)
	q = b.newSRQ(c)
	for range pairs {
		x, y := a.twin(), b.twinOn(q.SRQ)
		x.peer, y.peer = y, x
		x.init(want)
		y.init(want)
		x.join(want)
		y.join(want)
		as, bs = append(as, x), append(bs, y)
	}
	return as, bs, q
}

// number sends v, which takes a receive of the peer.
func (s *side) number(v uint64) {
	s.t.Helper()
	binary.LittleEndian.PutUint64(s.bytes(0, 8), v)
	s.postSend(driver.SendWR{ID: v, Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{s.sge(0, 8)}})
	s.one(v, driver.Success)
}

// got waits for the receive id, of a message to s that carried v.
func (s *side) got(id int, v uint64) {
	s.t.Helper()
	wc := s.one(uint64(id), driver.Success)
	if got := binary.LittleEndian.Uint64(s.bytes(id*8, 8)); got != v || wc.ByteLen != 8 {
		s.t.Errorf("receive %d is %+v and holds %d, want %d", id, wc, got, v)
	}
}

func testSRQSizes(t *testing.T, cfg Config) {
	_, b := open(t, cfg)
	b.build(setup{}.withDefaults(cfg))
	for _, bad := range []driver.SRQConfig{
		{WR: b.attr.MaxSRQWR + 1, SGE: 1}, {WR: 8, SGE: b.attr.MaxSRQSGE + 1}, {WR: 1 << 30, SGE: 1},
	} {
		if q, err := b.pd.CreateSRQ(bad); err == nil {
			t.Errorf("an SRQ of %+v was made", bad)
			_ = q.Close()
		}
	}
	q := b.newSRQ(driver.SRQConfig{WR: 7, SGE: 2, Limit: 3})
	c := q.Cap()
	if c.WR < 7 || c.SGE < 2 {
		t.Errorf("asked for 7 receives of 2 entries, got %+v", c)
	}
	a, err := q.Query()
	must(t, "query SRQ", err)
	if a.WR < 7 || a.SGE < 2 || a.Limit != 3 {
		t.Errorf("query says %+v", a)
	}
	q.post(0, 5)
	q.control("set limit", func() error { return q.SetLimit(5) })
	if a, err = q.Query(); err != nil || a.Limit != 5 {
		t.Errorf("query says %+v, %v after the limit was set to 5", a, err)
	}
	q.control("set limit", func() error { return q.SetLimit(0) })
	if a, err = q.Query(); err != nil || a.Limit != 0 {
		t.Errorf("query says %+v, %v after the limit was taken away", a, err)
	}
	if q.SetLimit(1<<30) == nil {
		t.Error("a limit of 2^30 was taken")
	}
	if n, err := q.tryRecv(driver.RecvWR{ID: 1}, driver.RecvWR{ID: 2, SGL: make([]driver.SGE, c.SGE+1)}); n != 1 || !errors.Is(err, driver.ErrTooManySGE) {
		t.Errorf("a receive of %d entries: %d of 2 posted, %v", c.SGE+1, n, err)
	}
}

// testSRQTaken has messages to different QPs take the oldest receive each.
func testSRQTaken(t *testing.T, cfg Config) {
	as, bs, q := sharing(t, cfg, 3, driver.SRQConfig{WR: 16, SGE: 1})
	q.post(0, 9)
	for i := range 9 {
		k := (i * 2) % 3
		as[k].number(uint64(1000 + i))
		bs[k].got(i, uint64(1000+i))
	}
	// A write with immediate data takes one too, and no memory of it.
	q.postRecv(driver.RecvWR{ID: 77})
	as[1].postSend(driver.SendWR{ID: 5, Op: driver.OpWriteWithImm, Flags: driver.Signaled, Imm: 0xabcd, SGL: []driver.SGE{as[1].sge(0, 8)}, Remote: bs[1].remote(4096)})
	as[1].one(5, driver.Success)
	if wc := bs[1].one(77, driver.Success); wc.Op != driver.WCRecvWriteWithImm || wc.Imm != 0xabcd || wc.ByteLen != 8 {
		t.Errorf("%+v", wc)
	}
	// A message of several packets into several entries.
	n := 3*as[0].mtu().Bytes() + 5
	fill(as[0].bytes(0, n), 0x5a)
	q2 := bs[0].newSRQ(driver.SRQConfig{WR: 2, SGE: 2})
	x, y := as[0].twin(), bs[0].twinOn(q2.SRQ)
	x.peer, y.peer = y, x
	want := setup{}.withDefaults(cfg)
	x.init(want)
	y.init(want)
	x.join(want)
	y.join(want)
	q2.postRecv(driver.RecvWR{ID: 9, SGL: []driver.SGE{y.sge(1000, 301), y.sge(20000, n-301)}})
	x.postSend(driver.SendWR{ID: 6, Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{x.sge(0, n)}})
	x.one(6, driver.Success)
	if wc := y.one(9, driver.Success); wc.ByteLen != uint32(n) {
		t.Errorf("%+v, want %d bytes", wc, n)
	}
	for _, p := range []piece{{1000, 301}, {20000, n - 301}} {
		for i, v := range y.bytes(p.at, p.n) {
			if v != 0x5a {
				t.Fatalf("byte %d of %+v is %#x", i, p, v)
			}
		}
	}
}

// testSRQEmpty has two senders wait until there are receives.
func testSRQEmpty(t *testing.T, cfg Config) {
	as, bs, q := sharing(t, cfg, 2, driver.SRQConfig{WR: 4, SGE: 1})
	for i, a := range as {
		a.postSend(driver.SendWR{ID: uint64(i), Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}})
	}
	as[0].none()
	bs[0].none()
	q.post(0, 2)
	seen := map[uint32]bool{}
	for _, wc := range bs[0].take(2) {
		if wc.Status != driver.Success || wc.ID > 1 {
			t.Errorf("%+v", wc)
		}
		seen[wc.QPN] = true
	}
	if !seen[bs[0].qp.Num()] || !seen[bs[1].qp.Num()] {
		t.Errorf("QPs %v received, want one message each", seen)
	}
	for _, wc := range as[0].take(2) {
		if wc.Status != driver.Success {
			t.Errorf("%+v", wc)
		}
	}
}

func testSRQFull(t *testing.T, cfg Config) {
	as, bs, q := sharing(t, cfg, 1, driver.SRQConfig{WR: 8, SGE: 1})
	n := 0
	for ; ; n++ {
		got, err := q.tryRecv(driver.RecvWR{ID: uint64(n), SGL: []driver.SGE{bs[0].slot(n)}})
		if err != nil {
			if got != 0 || !errors.Is(err, driver.ErrQueueFull) {
				t.Fatalf("post to a full SRQ: %d, %v", got, err)
			}
			break
		}
		if n > 4096 {
			t.Fatalf("an SRQ of 8 took %d receives", n)
		}
	}
	if n < 8 || n < q.Cap().WR {
		t.Errorf("full after %d receives, its size is %d", n, q.Cap().WR)
	}
	for i := range n {
		as[0].number(uint64(i))
		bs[0].got(i, uint64(i))
	}
	q.post(0, min(n, 8))
	as[0].number(1)
	bs[0].got(0, 1)
}

// limitEvents waits for n events of a limit and sees that there are no more.
func (q *sharedQueue) limitEvents(n int) {
	q.s.t.Helper()
	for got := 0; ; {
		wait := q.s.cfg.Wait
		if got == n {
			wait = q.s.cfg.Quiet
		}
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		e, err := q.s.Context.NextEvent(ctx)
		cancel()
		switch {
		case err != nil && got == n && errors.Is(err, context.DeadlineExceeded):
			return
		case err != nil:
			q.s.t.Fatalf("%d events of a limit, want %d: %v", got, n, err)
		case e.Type != driver.EventSRQLimitReached:
			continue
		case e.Cookie != srqCookie:
			q.s.t.Fatalf("event %+v, want the cookie of the SRQ", e)
		}
		if got++; got > n {
			q.s.t.Fatalf("%d events of a limit, want %d", got, n)
		}
	}
}

// testSRQLimit has one event each time that the mark was armed and passed.
func testSRQLimit(t *testing.T, cfg Config) {
	as, bs, q := sharing(t, cfg, 2, driver.SRQConfig{WR: 16, SGE: 1, Limit: 3})
	next := 0
	use := func(n int) {
		t.Helper()
		for range n {
			k := next % 2
			as[k].number(uint64(next))
			bs[k].got(next, uint64(next))
			next++
		}
	}
	q.post(0, 8)
	use(5) // 3 are left
	q.limitEvents(0)
	use(1) // 2
	q.limitEvents(1)
	if a, err := q.Query(); err != nil || a.Limit != 0 {
		t.Errorf("query says %+v, %v after the event: the limit is not armed any more", a, err)
	}
	use(1)
	q.limitEvents(0)
	q.post(8, 8) // 9
	q.control("set limit", func() error { return q.SetLimit(8) })
	use(1) // 8
	q.limitEvents(0)
	use(1) // 7
	q.limitEvents(1)
	use(2)
	q.limitEvents(0)
	// Taken away before it was passed.
	q.control("set limit", func() error { return q.SetLimit(4) })
	q.control("set limit", func() error { return q.SetLimit(0) })
	use(5)
	q.limitEvents(0)
}

// testSRQResize makes a queue larger that is in use. That it can be made smaller is
// not asked for: Linux 6.1 loses a queue of Soft-RoCE if that is refused.
func testSRQResize(t *testing.T, cfg Config) {
	as, bs, q := sharing(t, cfg, 2, driver.SRQConfig{WR: 4, SGE: 1})
	if bs[0].Context.Probe(driver.FeatureResizeSRQ) != nil {
		wantErr(t, "Resize", q.Resize(8), driver.ErrNotSupported)
		t.Skip("the device does not resize SRQs")
	}
	q.post(0, 4)
	as[0].number(0)
	bs[0].got(0, 0)
	as[1].number(1)
	bs[1].got(1, 1)
	q.control("resize SRQ", func() error { return q.Resize(60) })
	if c := q.Cap(); c.WR < 60 || c.SGE < 1 {
		t.Errorf("sizes %+v after a resize to 60", c)
	}
	q.post(4, 58)
	for i := 2; i < 62; i++ {
		as[i%2].number(uint64(i))
		bs[i%2].got(i, uint64(i))
	}
	if q.Resize(1<<30) == nil {
		t.Error("a size of 2^30 was taken")
	}
}

// testSRQFlush has one QP go, in three ways: the receives are there for the other.
func testSRQFlush(t *testing.T, cfg Config) {
	for _, how := range []string{"error", "reset", "close"} {
		t.Run(how, func(t *testing.T) {
			as, bs, q := sharing(t, cfg, 2, driver.SRQConfig{WR: 8, SGE: 1})
			q.post(0, 6)
			for i, v := range []uint64{10, 11} {
				as[i].number(v)
				bs[i].got(i, v)
			}
			// This one lies in the CQ while its QP goes.
			as[1].number(12)
			switch how {
			case "error":
				bs[0].state(driver.StateErr)
			case "reset":
				bs[0].state(driver.StateReset)
			case "close":
				bs[0].closeQP()
			}
			bs[1].got(2, 12)
			bs[1].none()
			for i := 3; i < 6; i++ {
				as[1].number(uint64(i))
				bs[1].got(i, uint64(i))
			}
			bs[1].none()
		})
	}
}

func testSRQInUse(t *testing.T, cfg Config) {
	as, bs, q := sharing(t, cfg, 1, driver.SRQConfig{WR: 8, SGE: 1})
	wantErr(t, "close an SRQ that a QP uses", q.SRQ.Close(), driver.ErrBusy)
	q.post(0, 1)
	as[0].number(3)
	bs[0].got(0, 3)
	q.post(1, 4) // these have no completion
}

// testSRQLoad has one goroutine post while several QPs take, mostly from a queue
// that is empty: each receive is used once, and each message arrives once and in
// the order of its QP.
func testSRQLoad(t *testing.T, cfg Config) {
	const pairs, slots = 3, 6
	as, bs, q := sharing(t, cfg, pairs, driver.SRQConfig{WR: slots, SGE: 1})
	free := make(chan int, slots)
	failed := make(chan error, 1)
	var poster sync.WaitGroup
	poster.Go(func() {
		for id := range free {
			for {
				n, err := q.tryRecv(driver.RecvWR{ID: uint64(id), SGL: []driver.SGE{bs[0].slot(id)}})
				if n == 1 {
					break
				}
				if !errors.Is(err, driver.ErrQueueFull) {
					failed <- err
					return
				}
				runtime.Gosched()
			}
		}
	})
	defer func() { close(free); poster.Wait() }()
	for id := range slots {
		free <- id
	}
	index, next := map[uint32]int{}, [pairs]uint64{}
	for i, b := range bs {
		index[b.qp.Num()] = i
	}
	posted, inFlight, arrived := [pairs]uint64{}, [pairs]int{}, 0
	sender := map[uint32]int{}
	for i, a := range as {
		sender[a.qp.Num()] = i
	}
	total := pairs * cfg.Rounds
	eventually(t, cfg, func() (bool, string) {
		select {
		case err := <-failed:
			t.Fatalf("post receive to SRQ: %v", err)
		default:
		}
		for i, a := range as {
			for inFlight[i] < 4 && posted[i] < uint64(cfg.Rounds) {
				// Inline, so that nothing has to stay until it is sent.
				v := binary.LittleEndian.AppendUint64(nil, posted[i]*pairs+uint64(i))
				a.postSend(driver.SendWR{ID: posted[i], Op: driver.OpSend, Flags: driver.Signaled, Inline: v})
				posted[i]++
				inFlight[i]++
			}
		}
		wcs, err := as[0].cq.pollOnce(16)
		must(t, "poll", err)
		for _, wc := range wcs {
			if wc.Status != driver.Success {
				t.Fatalf("send ended in %+v", wc)
			}
			inFlight[sender[wc.QPN]]--
		}
		wcs, err = bs[0].cq.pollOnce(16)
		must(t, "poll", err)
		for _, wc := range wcs {
			i, ok := index[wc.QPN]
			if wc.Status != driver.Success || !ok || wc.ID >= slots {
				t.Fatalf("receive ended in %+v", wc)
			}
			if got, want := binary.LittleEndian.Uint64(bs[0].bytes(int(wc.ID)*8, 8)), next[i]*pairs+uint64(i); got != want {
				t.Fatalf("QP %d received message %d, want %d", i, got, want)
			}
			next[i]++
			arrived++
			free <- int(wc.ID)
		}
		return arrived == total && inFlight == [pairs]int{}, fmt.Sprintf("%d messages of %d arrived", arrived, total)
	})
	bs[0].none()
}

// testSRQAllocations counts allocations of posting to an SRQ and taking from it.
func testSRQAllocations(t *testing.T, cfg Config) {
	if cfg.PostAllocates {
		t.Skip("Config.PostAllocates")
	}
	as, bs, q := sharing(t, cfg, 1, driver.SRQConfig{WR: 16, SGE: 2})
	a, b := as[0], bs[0]
	sends := []driver.SendWR{{ID: 1, Op: driver.OpSend, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 64)}}}
	recvs := []driver.RecvWR{{ID: 4, SGL: []driver.SGE{b.sge(0, 64)}}}
	wcs := make([]driver.WC, 4)
	got := testing.AllocsPerRun(cfg.Rounds, func() {
		if n, err := q.PostRecv(recvs); n != 1 || err != nil {
			t.Fatalf("post receive: %d, %v", n, err)
		}
		if n, err := a.qp.PostSend(sends); n != 1 || err != nil {
			t.Fatalf("post send: %d, %v", n, err)
		}
		a.cq.drain(t, cfg, wcs)
		b.cq.drain(t, cfg, wcs)
	})
	if got != 0 {
		t.Errorf("posting to an SRQ and polling allocates %v times a round", got)
	}
}

package drivertest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/offheap"
)

// side is one end of a connection: a PD, a CQ, a QP and a buffer. Its methods
// hold the locks that package ibverbs holds.
type side struct {
	t   testing.TB
	cfg Config
	End
	attr driver.DeviceAttr
	port driver.PortAttr
	gid  driver.GID

	pd      driver.PD
	cq      *queue
	qp      driver.QP
	mem     driver.Span
	mr      driver.MR
	access  driver.Access
	control sync.Mutex
	send    sync.Mutex
	recv    sync.Mutex
	peer    *side
}

// queue is a CQ with its locks.
type queue struct {
	driver.CQ
	poll    sync.Mutex
	control sync.Mutex
}

// setup is what a test wants of both ends.
type setup struct {
	typ      driver.QPType // 0 is RC
	cap      driver.QPCap
	depth    int // of the CQ, enough for both queues if 0
	memory   int // bytes of the buffer
	access   driver.Access
	qpAccess driver.Access
	signal   bool // QPConfig.SignalAll
	rnrRetry uint8
	psn      uint32
	mtu      driver.MTU
	channels [2]driver.CompChannel
}

const allAccess = driver.LocalWrite | driver.RemoteWrite | driver.RemoteRead

func (s setup) qpType() driver.QPType { return cmp.Or(s.typ, driver.RC) }

func (s setup) withDefaults(cfg Config) setup {
	if s.cap == (driver.QPCap{}) {
		s.cap = driver.QPCap{SendWR: 16, RecvWR: 16, SendSGE: 4, RecvSGE: 4, Inline: 64}
	}
	if s.depth == 0 {
		s.depth = 2 * (s.cap.SendWR + s.cap.RecvWR)
	}
	if s.memory == 0 {
		s.memory = 64 << 10
	}
	if s.rnrRetry == 0 {
		s.rnrRetry = 7
	}
	return s
}

// open gives both ends with nothing made yet, and closes their contexts at the
// end, which fails if something is left in them.
func open(t testing.TB, cfg Config) (a, b *side) {
	ea, eb := cfg.Open(t)
	a, b = &side{t: t, cfg: cfg, End: ea}, &side{t: t, cfg: cfg, End: eb}
	a.peer, b.peer = b, a
	t.Cleanup(func() {
		check(t, "close context", ea.Context.Close())
		if eb.Context != ea.Context {
			check(t, "close context", eb.Context.Close())
		}
	})
	for _, s := range []*side{a, b} {
		var err error
		s.attr, err = s.Context.QueryDevice()
		must(t, "query device", err)
		s.port, err = s.Context.QueryPort(s.Port)
		must(t, "query port", err)
		gids, err := s.Context.GIDs(s.Port)
		must(t, "query GIDs", err)
		found := false
		for _, g := range gids {
			if g.Index == s.GIDIndex {
				s.gid, found = g.GID, true
			}
		}
		if !found {
			t.Fatalf("port %d has no GID with the index %d", s.Port, s.GIDIndex)
		}
	}
	return a, b
}

// connect gives two ends in RTS, torn down at the end.
func connect(t testing.TB, cfg Config, want setup) (a, b *side) {
	a, b = open(t, cfg)
	want = want.withDefaults(cfg)
	a.build(want)
	b.build(want)
	a.join(want)
	b.join(want)
	return a, b
}

// rights is what MRs and QPs grant unless a test says otherwise.
func (s *side) rights() driver.Access {
	if s.atomics() {
		return allAccess | driver.RemoteAtomic
	}
	return allAccess
}

func (s *side) atomics() bool {
	return !s.cfg.NoAtomics && s.attr.AtomicCap > 0 && s.Context.Probe(driver.FeatureAtomics) == nil
}

// build makes the objects, with the QP in Init, and their tear-down.
func (s *side) build(want setup) {
	t := s.t
	var err error
	s.pd, err = s.Context.AllocPD()
	must(t, "alloc PD", err)
	t.Cleanup(func() { check(t, "close PD", s.pd.Close()) })

	s.mem = alloc(t, want.memory)
	s.access = want.access
	if s.access == 0 {
		s.access = s.rights()
	}
	s.mr = s.reg(s.pd, s.mem, s.access)

	s.cq = s.newCQ(driver.CQConfig{Depth: want.depth, Channel: s.channelOf(want)})
	s.qp, err = s.pd.CreateQP(driver.QPConfig{Type: want.qpType(), SendCQ: s.cq.CQ, RecvCQ: s.cq.CQ, Cap: want.cap, SignalAll: want.signal, Cookie: 77})
	must(t, "create QP", err)
	t.Cleanup(func() { s.closeQP() })
	s.init(want)
}

func (s *side) channelOf(want setup) driver.CompChannel {
	if s.peer.qp == nil {
		return want.channels[0]
	}
	return want.channels[1]
}

func (s *side) newCQ(c driver.CQConfig) *queue {
	cq, err := s.Context.CreateCQ(c)
	must(s.t, "create CQ", err)
	q := &queue{CQ: cq}
	s.t.Cleanup(func() { q.close(s.t) })
	return q
}

func (q *queue) close(t testing.TB) {
	q.control.Lock()
	defer q.control.Unlock()
	q.poll.Lock()
	defer q.poll.Unlock()
	if q.CQ != nil {
		check(t, "close CQ", q.CQ.Close())
		q.CQ = nil
	}
}

func alloc(t testing.TB, n int) driver.Span {
	mem, err := offheap.Map(n, offheap.Options{})
	must(t, "map memory", err)
	t.Cleanup(func() { _ = mem.Release() }) // a test may have done so
	return mem
}

func (s *side) reg(pd driver.PD, mem driver.Span, a driver.Access) driver.MR {
	mr, err := pd.RegMR(mem, mem.Addr(), a)
	must(s.t, "register memory", err)
	m := &closeOnce{MR: mr}
	s.t.Cleanup(func() { check(s.t, "close MR", m.Close()) })
	return m
}

// closeOnce lets a test close an MR before its end.
type closeOnce struct {
	driver.MR
	once sync.Once
}

func (m *closeOnce) Close() (err error) {
	m.once.Do(func() { err = m.MR.Close() })
	return err
}

func (s *side) lkey() uint32 { l, _ := s.mr.Keys(); return l }

func (s *side) rkey() uint32 { _, r := s.mr.Keys(); return r }

// sge is bytes off to off+n of the buffer.
func (s *side) sge(off, n int) driver.SGE {
	return driver.SGE{Addr: s.mem.Addr() + uint64(off), Length: uint32(n), LKey: s.lkey()}
}

func (s *side) remote(off int) driver.Remote {
	return driver.Remote{Addr: s.mem.Addr() + uint64(off), RKey: s.rkey()}
}

func (s *side) bytes(off, n int) []byte { return s.mem.Bytes()[off : off+n] }

func (s *side) modify(a driver.QPAttr, mask driver.QPMask) error {
	s.control.Lock()
	defer s.control.Unlock()
	reset := mask&driver.QPStateMask != 0 && a.State == driver.StateReset
	if reset {
		s.send.Lock()
		defer s.send.Unlock()
		s.recv.Lock()
		defer s.recv.Unlock()
	}
	err := s.qp.Modify(&a, mask)
	if reset && err == nil {
		s.purge()
	}
	return err
}

func (s *side) purge() {
	s.cq.poll.Lock()
	defer s.cq.poll.Unlock()
	s.qp.Purge()
}

func (s *side) state(to driver.QPState) {
	s.t.Helper()
	must(s.t, "modify to "+to.String(), s.modify(driver.QPAttr{State: to}, driver.QPStateMask))
}

func (s *side) init(want setup) {
	if want.qpType() == driver.UD {
		must(s.t, "modify to INIT", s.initUD())
		return
	}
	access := want.qpAccess
	if access == 0 {
		access = s.rights()
	}
	must(s.t, "modify to INIT", s.modify(driver.QPAttr{State: driver.StateInit, Port: s.Port, Access: access},
		driver.QPStateMask|driver.QPPort|driver.QPPKeyIndex|driver.QPAccessFlags))
}

// mtu is the largest that both ports carry.
func (s *side) mtu() driver.MTU { return min(s.port.ActiveMTU, s.peer.port.ActiveMTU) }

func (s *side) rdAtomic() uint8 {
	return uint8(max(1, min(s.attr.MaxQPRdAtomic, s.attr.MaxQPInitRdAtom, s.peer.attr.MaxQPRdAtomic, s.peer.attr.MaxQPInitRdAtom, 8)))
}

func (s *side) toRTR(want setup) {
	mtu := want.mtu
	if mtu == 0 {
		mtu = s.mtu()
	}
	mask := driver.QPStateMask | driver.QPAV | driver.QPPathMTU | driver.QPDestQPN | driver.QPRQPSN
	switch want.qpType() {
	case driver.RC:
		mask |= driver.QPMaxDestRdAtomic | driver.QPMinRNRTimer
	case driver.UD:
		mask = driver.QPStateMask
	}
	must(s.t, "modify to RTR", s.modify(driver.QPAttr{
		State: driver.StateRTR, PathMTU: mtu, DestQPN: s.peer.qp.Num(), RQPSN: want.psn, MaxDestRdAtomic: s.rdAtomic(), MinRNRTimer: 1,
		AH: s.toPeer(),
	}, mask))
}

// toPeer is the way to the peer's port.
func (s *side) toPeer() driver.AHAttr {
	return driver.AHAttr{DGID: s.peer.gid, SGIDIndex: s.GIDIndex, Port: s.Port, HopLimit: 64, IsGlobal: true, DLID: s.peer.port.LID}
}

func (s *side) toRTS(want setup) {
	mask := driver.QPStateMask | driver.QPSQPSN
	if want.qpType() == driver.RC {
		mask |= driver.QPTimeout | driver.QPRetryCnt | driver.QPRNRRetry | driver.QPMaxQPRdAtomic
	}
	must(s.t, "modify to RTS", s.modify(driver.QPAttr{
		State: driver.StateRTS, SQPSN: want.psn, Timeout: s.cfg.Timeout, RetryCnt: 3, RNRRetry: want.rnrRetry, MaxRdAtomic: s.rdAtomic(),
	}, mask))
}

func (s *side) join(want setup) {
	s.toRTR(want)
	s.toRTS(want)
}

func (s *side) closeQP() {
	s.t.Helper()
	s.control.Lock()
	defer s.control.Unlock()
	s.send.Lock()
	defer s.send.Unlock()
	s.recv.Lock()
	defer s.recv.Unlock()
	if s.qp != nil {
		check(s.t, "close QP", s.qp.Close())
		s.purge()
		s.qp = nil
	}
}

// trySend posts wrs and then overwrites them and all they point to.
func (s *side) trySend(wrs ...driver.SendWR) (int, error) {
	for i := range wrs {
		if wrs[i].Inline != nil {
			wrs[i].Inline = append([]byte{}, wrs[i].Inline...)
		}
	}
	s.send.Lock()
	n, err := s.qp.PostSend(wrs)
	s.send.Unlock()
	for i := range wrs {
		scribble(wrs[i].SGL)
		for j := range wrs[i].Inline {
			wrs[i].Inline[j] = 0xd7
		}
		if wrs[i].Bind != nil {
			*wrs[i].Bind = driver.BindMW{Addr: 0xd7d7, Length: 0xd7d7}
		}
		wrs[i] = driver.SendWR{ID: ^uint64(0), Op: 99, Remote: driver.Remote{Addr: 99, RKey: 99}}
	}
	return n, err
}

func (s *side) tryRecv(wrs ...driver.RecvWR) (int, error) {
	s.recv.Lock()
	n, err := s.qp.PostRecv(wrs)
	s.recv.Unlock()
	for i := range wrs {
		scribble(wrs[i].SGL)
		wrs[i] = driver.RecvWR{ID: ^uint64(0)}
	}
	return n, err
}

func scribble(sgl []driver.SGE) {
	for i := range sgl {
		sgl[i] = driver.SGE{Addr: 0xd7d7_d7d7, Length: 0xd7, LKey: 0xd7d7}
	}
}

func (s *side) postSend(wrs ...driver.SendWR) {
	s.t.Helper()
	want := len(wrs)
	if n, err := s.trySend(wrs...); err != nil || n != want {
		s.t.Fatalf("post send: %d of %d, %v", n, want, err)
	}
}

func (s *side) postRecv(wrs ...driver.RecvWR) {
	s.t.Helper()
	want := len(wrs)
	if n, err := s.tryRecv(wrs...); err != nil || n != want {
		s.t.Fatalf("post receive: %d of %d, %v", n, want, err)
	}
}

// poll asks once for up to n completions.
func (q *queue) pollOnce(n int) ([]driver.WC, error) {
	wcs := make([]driver.WC, n)
	for i := range wcs {
		wcs[i] = driver.WC{ID: ^uint64(0), Imm: ^uint32(0), QPN: ^uint32(0), Status: 255, Op: 255, Flags: 255}
	}
	q.poll.Lock()
	got, err := q.CQ.Poll(wcs)
	q.poll.Unlock()
	return wcs[:got], err
}

// take waits for n completions.
func (s *side) take(n int) []driver.WC {
	s.t.Helper()
	return s.cq.take(s.t, s.cfg, n)
}

func (q *queue) take(t testing.TB, cfg Config, n int) []driver.WC {
	t.Helper()
	var all []driver.WC
	eventually(t, cfg, func() (bool, string) {
		wcs, err := q.pollOnce(n - len(all))
		must(t, "poll", err)
		all = append(all, wcs...)
		return len(all) == n, fmt.Sprintf("%d completions of %d came: %+v", len(all), n, all)
	})
	return all
}

// one waits for a completion with this ID and status.
func (s *side) one(id uint64, status driver.Status) driver.WC {
	s.t.Helper()
	return s.oneOf(id, status)
}

// oneOf waits for a completion with this ID and one of these statuses.
func (s *side) oneOf(id uint64, allowed ...driver.Status) driver.WC {
	s.t.Helper()
	wc := s.take(1)[0]
	if wc.ID != id || !slices.Contains(allowed, wc.Status) {
		s.t.Fatalf("completion %+v (%v), want ID %#x and one of %v", wc, wc.Status, id, allowed)
	}
	if wc.QPN != s.qp.Num() {
		s.t.Fatalf("completion of QP %#x, want %#x", wc.QPN, s.qp.Num())
	}
	return wc
}

// none sees that no completion comes.
func (s *side) none() {
	s.t.Helper()
	for end := time.Now().Add(s.cfg.Quiet); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if wcs, err := s.cq.pollOnce(1); err != nil || len(wcs) > 0 {
			s.t.Fatalf("completion %+v or error %v where none is due", wcs, err)
		}
	}
}

// awaitState waits until the device has put the QP into this state.
func (s *side) awaitState(want driver.QPState) {
	s.t.Helper()
	eventually(s.t, s.cfg, func() (bool, string) {
		s.control.Lock()
		defer s.control.Unlock()
		a, err := s.qp.Query()
		must(s.t, "query QP", err)
		return a.State == want, fmt.Sprintf("QP is in %v, want %v", a.State, want)
	})
}

// eventually asks until the answer is yes or Config.Wait is over.
func eventually(t testing.TB, cfg Config, ask func() (bool, string)) {
	t.Helper()
	for start, n := time.Now(), 0; ; n++ {
		ok, why := ask()
		if ok {
			return
		}
		if time.Since(start) > cfg.Wait {
			t.Fatalf("after %v: %s", cfg.Wait, why)
		}
		time.Sleep(min(time.Duration(n), 100) * 10 * time.Microsecond)
	}
}

func must(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func check(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

//go:build hw && linux

package rxe

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/kernel"
	"github.com/purerdma/purerdma/internal/offheap"
)

// patience is how long a completion may take in the lab's emulation.
const patience = 20 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// random is a source whose seed is printed; PURERDMA_SEED repeats it.
func random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("PURERDMA_SEED"); s != "" {
		seed = get(strconv.ParseUint(s, 0, 64))(t)
	}
	t.Logf("PURERDMA_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// place is a port of a Soft-RoCE device and one of its GIDs.
type place struct {
	dev driver.Device
	gid driver.GIDEntry
	mtu driver.MTU
}

func (p place) String() string {
	return fmt.Sprintf("%s, GID %d (%v), MTU %v", p.dev.Info().Name, p.gid.Index, p.gid.GID, p.mtu)
}

func places(t testing.TB) (ps []place) {
	t.Helper()
	devs, err := kernel.New(kernel.Default(), New()).Devices()
	if err != nil {
		t.Logf("some devices could not be listed: %v", err)
	}
	for _, d := range devs {
		if d.Info().Driver != "rxe" {
			continue
		}
		c := get(d.Open())(t)
		port := get(c.QueryPort(1))(t)
		for _, g := range get(c.GIDs(1))(t) {
			if port.State == driver.PortActive {
				ps = append(ps, place{d, g, port.ActiveMTU})
			}
		}
		must(t, c.Close())
	}
	if len(ps) == 0 {
		t.Skipf("needs a Soft-RoCE device (rdma link add … type rxe) whose port is active, found none among %d devices", len(devs))
	}
	return ps
}

// pair is two places that reach each other: of two devices if there are two and
// across is set, else twice the same.
func pair(t testing.TB, r *rand.Rand, across bool) (a, b place) {
	t.Helper()
	ps := places(t)
	a = ps[r.IntN(len(ps))]
	b = a
	if across {
		others := slices.DeleteFunc(ps, func(p place) bool {
			x, y := p.gid.GID.Addr(), a.gid.GID.Addr()
			return p.dev.Info().Name == a.dev.Info().Name || x.Is4() != y.Is4() || x.IsLinkLocalUnicast() != y.IsLinkLocalUnicast()
		})
		if len(others) == 0 {
			t.Skipf("needs two Soft-RoCE devices on one link, found only %v", a)
		}
		b = others[r.IntN(len(others))]
	}
	t.Logf("between %v and %v", a, b)
	return a, b
}

// end is one end of a connection with all that it needs.
type end struct {
	t    testing.TB
	at   place
	dev  *Context
	ch   driver.CompChannel
	pd   *PD
	cq   *CQ
	qp   *QP
	mem  offheap.Span
	mr   driver.MR
	lkey uint32
	rkey uint32
}

// shape is the sizes of an end; zeros are defaults.
type shape struct {
	depth, cq, sge, inline, mem int
	events                      bool
}

// open makes an end with its QP in RESET, closed at the end of the test.
func open(t testing.TB, at place, s shape) *end {
	t.Helper()
	e := &end{t: t, at: at}
	or := func(v, d int) int {
		if v == 0 {
			return d
		}
		return v
	}
	depth := or(s.depth, 32)
	e.dev = get(at.dev.Open())(t).(*Context)
	config := driver.CQConfig{Depth: or(s.cq, 2*depth), Cookie: 77}
	if s.events {
		e.ch = get(e.dev.CreateCompChannel())(t)
		config.Channel = e.ch
	}
	e.pd = get(e.dev.AllocPD())(t).(*PD)
	e.cq = get(e.dev.CreateCQ(config))(t).(*CQ)
	e.qp = get(e.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: e.cq, RecvCQ: e.cq, Cookie: 78,
		Cap: driver.QPCap{SendWR: depth, RecvWR: depth, SendSGE: or(s.sge, 1), RecvSGE: or(s.sge, 1), Inline: s.inline}}))(t).(*QP)
	e.mem = get(offheap.Map(or(s.mem, 64<<10), offheap.Options{}))(t)
	e.mr = get(e.pd.RegMR(e.mem, e.mem.Addr(), driver.LocalWrite|driver.RemoteWrite|driver.RemoteRead|driver.RemoteAtomic))(t)
	e.lkey, e.rkey = e.mr.Keys()
	t.Cleanup(e.close)
	return e
}

// close takes everything apart. A test may have closed the QP.
func (e *end) close() {
	var errs []error
	if e.qp != nil {
		errs = append(errs, e.qp.Close())
	}
	errs = append(errs, e.mr.Close(), e.mem.Release(), e.cq.Close(), e.pd.Close())
	if e.ch != nil {
		errs = append(errs, e.ch.Close())
	}
	if err := errors.Join(append(errs, e.dev.Close())...); err != nil {
		e.t.Error(err)
	}
}

// toInit, toRTR and toRTS are the steps of a QP.
func (q *QP) toInit() error {
	return q.Modify(&driver.QPAttr{State: driver.StateInit, Port: 1, Access: driver.LocalWrite | driver.RemoteWrite | driver.RemoteRead | driver.RemoteAtomic},
		driver.QPStateMask|driver.QPPKeyIndex|driver.QPPort|driver.QPAccessFlags)
}

func (e *end) rtr(peer *end) (*driver.QPAttr, driver.QPMask) {
	return &driver.QPAttr{State: driver.StateRTR, PathMTU: min(e.at.mtu, peer.at.mtu), DestQPN: peer.qp.Num(), MaxDestRdAtomic: 16, MinRNRTimer: 12,
			AH: driver.AHAttr{DGID: peer.at.gid.GID, SGIDIndex: e.at.gid.Index, Port: 1, HopLimit: 64, IsGlobal: true}},
		driver.QPStateMask | driver.QPAV | driver.QPPathMTU | driver.QPDestQPN | driver.QPRQPSN | driver.QPMaxDestRdAtomic | driver.QPMinRNRTimer
}

// toRTS waits a second for an answer: the lab may be on a busy machine.
func (q *QP) toRTS() error {
	return q.Modify(&driver.QPAttr{State: driver.StateRTS, Timeout: 18, RetryCnt: 6, RNRRetry: 7, MaxRdAtomic: 16},
		driver.QPStateMask|driver.QPTimeout|driver.QPRetryCnt|driver.QPRNRRetry|driver.QPSQPSN|driver.QPMaxQPRdAtomic)
}

// to brings a QP from RESET to a state.
func (e *end) to(state driver.QPState, peer *end) {
	e.t.Helper()
	must(e.t, e.qp.toInit())
	if state >= driver.StateRTR {
		must(e.t, e.qp.Modify(e.rtr(peer)))
	}
	if state >= driver.StateRTS {
		must(e.t, e.qp.toRTS())
	}
}

// connected is two ends in RTS.
func connected(t testing.TB, at, there place, s shape) (a, b *end) {
	t.Helper()
	a, b = open(t, at, s), open(t, there, s)
	a.to(driver.StateRTS, b)
	b.to(driver.StateRTS, a)
	return a, b
}

func (e *end) sge(off, n int) driver.SGE {
	return driver.SGE{Addr: e.mem.Addr() + uint64(off), Length: uint32(n), LKey: e.lkey}
}

func (e *end) remote(off int) driver.Remote {
	return driver.Remote{Addr: e.mem.Addr() + uint64(off), RKey: e.rkey}
}

func (e *end) send(wrs ...driver.SendWR) {
	e.t.Helper()
	if n, err := e.qp.PostSend(wrs); n != len(wrs) || err != nil {
		e.t.Fatalf("posted %d of %d requests: %v", n, len(wrs), err)
	}
}

func (e *end) recv(wrs ...driver.RecvWR) {
	e.t.Helper()
	if n, err := e.qp.PostRecv(wrs); n != len(wrs) || err != nil {
		e.t.Fatalf("posted %d of %d receives: %v", n, len(wrs), err)
	}
}

// wait polls until n completions came.
func (e *end) wait(n int) []driver.WC {
	e.t.Helper()
	wcs := make([]driver.WC, n)
	got := 0
	for end := time.Now().Add(patience); got < n; {
		k, err := e.cq.Poll(wcs[got:])
		must(e.t, err)
		if got += k; k == 0 {
			runtime.Gosched()
			if time.Now().After(end) {
				e.t.Fatalf("%d of %d completions in %v: %+v", got, n, patience, wcs[:got])
			}
		}
	}
	return wcs
}

// one is the next completion, which must have this status.
func (e *end) one(want driver.Status) driver.WC {
	e.t.Helper()
	wc := e.wait(1)[0]
	if wc.Status != want {
		e.t.Fatalf("completion of %d is %v, want %v", wc.ID, wc.Status, want)
	}
	return wc
}

// filled waits until n completions are in the CQ, and takes none.
func (e *end) filled(n int) {
	e.t.Helper()
	for end := time.Now().Add(patience); e.cq.q.used(e.cq.q.produced(), e.cq.q.cons) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			e.t.Fatalf("%d completions came, want %d", e.cq.q.used(e.cq.q.produced(), e.cq.q.cons), n)
		}
	}
}

// none sees that nothing completes for a while.
func (e *end) none() {
	e.t.Helper()
	var wcs [1]driver.WC
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); runtime.Gosched() {
		if n, err := e.cq.Poll(wcs[:]); n != 0 || err != nil {
			e.t.Fatalf("unexpected completion %+v, %v", wcs[0], err)
		}
	}
}

func fill(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// eachWay runs a test on one device and across the link.
func eachWay(t *testing.T, f func(t *testing.T, r *rand.Rand, a, b place)) {
	for _, across := range []bool{false, true} {
		name := "one device"
		if across {
			name = "across the link"
		}
		t.Run(name, func(t *testing.T) {
			r := random(t)
			a, b := pair(t, r, across)
			f(t, r, a, b)
		})
	}
}

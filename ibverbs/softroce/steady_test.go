package softroce

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/drivertest"
	"github.com/purerdma/purerdma/ibverbs/internal/softdev"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/internal/offheap"
	"github.com/purerdma/purerdma/internal/racetest"
)

// udpEnd is an end of a connection over sockets.
type udpEnd struct {
	t   *testing.T
	end drivertest.End
	pd  driver.PD
	cq  driver.CQ
	q   driver.QP
	mem driver.Span
	mr  driver.MR
}

func newUDPEnd(t *testing.T, end drivertest.End) *udpEnd {
	e := &udpEnd{t: t, end: end}
	var err error
	must := func(err error) {
		if t.Helper(); err != nil {
			t.Fatal(err)
		}
	}
	e.pd, err = end.Context.AllocPD()
	must(err)
	e.cq, err = end.Context.CreateCQ(driver.CQConfig{Depth: 64})
	must(err)
	e.mem, err = offheap.Map(1<<20, offheap.Options{})
	must(err)
	e.mr, err = e.pd.RegMR(e.mem, e.mem.Addr(), everything)
	must(err)
	e.q, err = e.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: e.cq, RecvCQ: e.cq, Cap: driver.QPCap{SendWR: 16, RecvWR: 16, SendSGE: 1, RecvSGE: 1, Inline: 64}})
	must(err)
	must(e.q.Modify(&driver.QPAttr{State: driver.StateInit, Port: 1, Access: everything}, driver.QPStateMask|softdev.Required(driver.RC, driver.StateReset, driver.StateInit)))
	t.Cleanup(func() {
		_, _, _, _ = e.q.Close(), e.mr.Close(), e.mem.Release(), e.cq.Close()
		_ = e.pd.Close()
		if err := end.Context.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (e *udpEnd) connect(peer *udpEnd) {
	e.t.Helper()
	gids, err := peer.end.Context.GIDs(1)
	if err == nil {
		err = e.q.Modify(&driver.QPAttr{State: driver.StateRTR, PathMTU: driver.MTU1024, DestQPN: peer.q.Num(), RQPSN: 5, MaxDestRdAtomic: 4, MinRNRTimer: 12,
			AH: driver.AHAttr{DGID: gids[0].GID, Port: 1, IsGlobal: true, HopLimit: 64},
		}, driver.QPStateMask|softdev.Required(driver.RC, driver.StateInit, driver.StateRTR))
	}
	if err == nil {
		err = e.q.Modify(&driver.QPAttr{State: driver.StateRTS, SQPSN: 5, Timeout: 18, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 4},
			driver.QPStateMask|softdev.Required(driver.RC, driver.StateRTR, driver.StateRTS))
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

func udpPair(t *testing.T) (a, b *udpEnd) {
	base := netip.MustParseAddr("127.47.91.1")
	drv := New(Config{Addrs: []netip.Addr{base, base.Next()}})
	ea, eb := openDevices(t, drv, "soft0", "soft1")
	a, b = newUDPEnd(t, ea), newUDPEnd(t, eb)
	a.connect(b)
	b.connect(a)
	return a, b
}

// finished polls until a completion came.
func (e *udpEnd) finished(wcs []driver.WC) {
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		n, err := e.cq.Poll(wcs)
		if err != nil {
			e.t.Fatal(err)
		}
		if n > 0 {
			if wcs[0].Status != driver.Success {
				e.t.Fatalf("ended in %v", wcs[0].Status)
			}
			return
		}
		if time.Now().After(deadline) {
			e.t.Fatal("no completion in a minute")
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	a, b := udpPair(t)
	akey, _ := a.mr.Keys()
	_, bkey := b.mr.Keys()
	wrs := []driver.SendWR{{ID: 1, Op: driver.OpWrite, Flags: driver.Signaled,
		SGL: []driver.SGE{{Addr: a.mem.Addr(), Length: 64 << 10, LKey: akey}}, Remote: driver.Remote{Addr: b.mem.Addr(), RKey: bkey}}}
	wcs := make([]driver.WC, 4)
	step := func() {
		if n, err := a.q.PostSend(wrs); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		a.finished(wcs)
	}
	for range 100 {
		step()
	}
	// The pools of buffers are emptied by collections, which other tests cause.
	if n := testing.AllocsPerRun(500, step); n >= 1 && !racetest.Enabled {
		t.Errorf("%v allocations for a write", n)
	}
}

// Polls on both sides move a connection; a program that stops to poll has its ACKs
// sent all the same.
func TestPollsCarryAConnection(t *testing.T) {
	a, b := udpPair(t)
	_, bkey := b.mr.Keys()
	data := make([]byte, 8)
	wcs := make([]driver.WC, 4)
	seen := (*uint64)(b.mem.Pointer())
	for i := range uint64(2000) {
		data[0], data[1] = byte(i), byte(i>>8)
		want := i + 1
		data[0], data[1] = byte(want), byte(want>>8)
		if n, err := a.q.PostSend([]driver.SendWR{{ID: i, Op: driver.OpWrite, Flags: driver.Signaled, Inline: data,
			Remote: driver.Remote{Addr: b.mem.Addr(), RKey: bkey}}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		for mmio.LoadAcquire64(seen) != want {
			if _, err := b.cq.Poll(wcs); err != nil {
				t.Fatal(err)
			}
			runtime.Gosched()
		}
		// Nobody polls at b now.
		a.finished(wcs)
	}
}

//go:build hw && linux

package qp_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/lab"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
)

// hwEnd is one end on a real device.
type hwEnd struct {
	dev *ibverbs.Context
	pd  *ibverbs.PD
	cq  *ibverbs.CQ
	buf *mr.Buffer
	mem *ibverbs.MR
}

func openEnd(t *testing.T, at hwtest.Place) hwEnd {
	t.Helper()
	var e hwEnd
	e.dev = must(ibverbs.Open(at.Device))
	e.pd, e.cq, e.buf = must(e.dev.AllocPD()), must(e.dev.CreateCQ(16)), must(mr.Alloc(8192))
	e.mem = must(e.pd.RegMR(e.buf, ibverbs.LocalWrite|ibverbs.RemoteWrite))
	t.Cleanup(func() {
		if err := errors.Join(e.buf.Close(), e.dev.Close()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// TestHWConnect connects two ends with attributes of chance, asks the kernel
// what it took, and moves data.
func TestHWConnect(t *testing.T) {
	for _, same := range []bool{true, false} {
		near, far := hwtest.Pair(t, same)
		r := hwtest.Rand(t)
		a, b := openEnd(t, near), openEnd(t, far)
		label, class := r.Uint32N(1<<20), uint8(r.UintN(64)<<2)
		q := must(qp.New(a.pd, a.cq, a.cq, qp.WithPort(near.Port), qp.WithGIDIndex(near.GID.Index), qp.WithFlowLabel(label),
			qp.WithTrafficClass(class), qp.WithRandomPSN(r.Uint32)))
		p := must(qp.New(b.pd, b.cq, b.cq, qp.WithPort(far.Port), qp.WithGIDIndex(far.GID.Index), qp.WithRandomPSN(r.Uint32)))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		check(q.ConnectContext(ctx, p.Info()))
		check(p.ConnectContext(ctx, q.Info()))
		t.Logf("%v", q.Path())

		got := must(q.Query())
		way := got.AH.DGID == far.GID.GID && got.AH.SGIDIndex == near.GID.Index && got.AH.FlowLabel == label && got.AH.TrafficClass == class
		if near.Link == ibverbs.LinkInfiniBand { // in one subnet the LID is all
			way = !got.AH.IsGlobal && got.AH.DLID == p.Info().LID
		}
		if got.State != ibverbs.StateRTS || got.PathMTU != min(near.MTU, far.MTU) || got.DestQPN != p.Num() || got.RQPSN != p.Info().PSN ||
			got.SQPSN != q.Info().PSN || got.Timeout != 20 || got.RetryCnt != 7 || got.RNRRetry != 7 || got.MinRNRTimer != 12 ||
			!way || got.AH.Port != near.Port {
			t.Errorf("the kernel has %+v", got)
		}
		copy(a.buf.Bytes(), "across")
		must(q.PostSend(ibverbs.SendWR{Op: ibverbs.OpWrite, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{a.mem.SGE(0, 6)}, Remote: b.mem.Remote(4096)}))
		var wcs [1]ibverbs.WC
		must(a.cq.Wait(ctx, wcs[:]))
		check(a.cq.Err(&wcs[0]))
		if s := string(b.buf.Bytes()[4096:4102]); s != "across" {
			t.Errorf("%q arrived", s)
		}
	}
}

// TestHWChooseGID chooses from the tables that there are.
func TestHWChooseGID(t *testing.T) {
	for _, at := range hwtest.Places(t) {
		dev := must(ibverbs.Open(at.Device))
		table := must(dev.GIDs(at.Port))
		p := qp.Defaults()
		c, err := p.ChooseGID(at.Link, table)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v: %s; not %v", at, c.Reason, c.Rejected)
		if len(c.Rejected) != len(table)-1 {
			t.Errorf("%d reasons for %d others", len(c.Rejected), len(table)-1)
		}
		if lab.Inside() && !c.GID.Addr().Is4() {
			t.Errorf("index %d, %v, where there is an IPv4 address", c.Index, c.GID)
		}
		check(dev.Close())
	}
}

// TestHWNoAnswer connects to an address that nobody has: the kernel gives up,
// the error says why, and the QP is as before.
func TestHWNoAnswer(t *testing.T) {
	if !lab.Inside() {
		t.Skip("needs the lab, whose network has addresses that nobody has")
	}
	at, _ := hwtest.Pair(t, true)
	e := openEnd(t, at)
	q := must(qp.New(e.pd, e.cq, e.cq, qp.WithPort(at.Port), qp.WithGID(qp.GIDWant{Family: qp.IPv4}), qp.WithRTRRetries(1, time.Millisecond)))
	nobody := q.Info()
	nobody.GID = netip.MustParseAddr("10.9.0.77").As16()
	began := time.Now()
	err := q.Connect(nobody)
	t.Logf("after %v: %v", time.Since(began), err)
	if !errors.Is(err, unix.ETIMEDOUT) && !errors.Is(err, unix.EHOSTUNREACH) || !strings.Contains(err.Error(), "10.9.0.77") {
		t.Error(err)
	}
	if s := must(q.Query()).State; s != ibverbs.StateInit {
		t.Errorf("the QP is in %v", s)
	}
	check(q.Connect(q.Info()))
}

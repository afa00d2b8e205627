//go:build hw && linux

package interop

import (
	"net/netip"
	"testing"
	"time"

	"github.com/purerdma/purerdma/bench/stats"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/lab"
	"github.com/purerdma/purerdma/mr"
)

// cableNetwork opens a link at either host of a cable.
type cableNetwork struct{ *lab.Cable }

func (n cableNetwork) Open(addr netip.Addr) (l softroce.Link, err error) {
	i := 0
	if addr == n.Addrs[1] {
		i = 1
	}
	there := func(f func() error) error { return n.Do(i, f) }
	err = there(func() error {
		u, err := link.ListenUDP(link.UDPConfig{Addr: addr})
		l = farLink{u, there}
		return err
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

const (
	benchWrite    = 64 << 10
	benchInFlight = 8
	benchMTU      = 1500
	benchTimeout  = 18 // 1 s: slower than any guest
)

// writer is an end of a connection that writes to the other.
type writer struct {
	b    *testing.B
	dev  *ibverbs.Context
	addr netip.Addr
	qp   *ibverbs.QP
	cq   *ibverbs.CQ
	mem  *ibverbs.MR
	gid  ibverbs.GIDEntry
}

func newWriter(b *testing.B, dev *ibverbs.Context, addr netip.Addr) *writer {
	b.Helper()
	w := &writer{b: b, dev: dev, addr: addr}
	buf, err := mr.Alloc(benchInFlight * benchWrite)
	must(b, err)
	b.Cleanup(func() {
		must(b, dev.Close())
		must(b, buf.Close())
	})
	gids, err := dev.GIDs(1)
	must(b, err)
	for _, g := range gids {
		if g.GID.Addr() == addr {
			w.gid = g
		}
	}
	pd, err := dev.AllocPD()
	must(b, err)
	w.cq, err = dev.CreateCQ(4*benchInFlight, ibverbs.WithEvents())
	must(b, err)
	w.mem, err = pd.RegMR(buf, ibverbs.LocalWrite|ibverbs.RemoteWrite)
	must(b, err)
	w.qp, err = pd.CreateQP(ibverbs.QPConfig{Type: ibverbs.RC, SendCQ: w.cq, RecvCQ: w.cq,
		Cap: ibverbs.QPCap{SendWR: benchInFlight, RecvWR: 1, SendSGE: 1, RecvSGE: 1}})
	must(b, err)
	must(b, w.qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit, Port: 1, Access: ibverbs.LocalWrite | ibverbs.RemoteWrite},
		ibverbs.QPStateMask|ibverbs.QPPKeyIndex|ibverbs.QPPort|ibverbs.QPAccessFlags))
	return w
}

func (w *writer) connect(to *writer) {
	w.b.Helper()
	must(w.b, w.qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTR, PathMTU: ibverbs.MTU1024, DestQPN: to.qp.Num(), MaxDestRdAtomic: 1, MinRNRTimer: 12,
		AH: ibverbs.AHAttr{DGID: to.gid.GID, IsGlobal: true, SGIDIndex: w.gid.Index, Port: 1, HopLimit: 64}},
		ibverbs.QPStateMask|ibverbs.QPAV|ibverbs.QPPathMTU|ibverbs.QPDestQPN|ibverbs.QPRQPSN|ibverbs.QPMaxDestRdAtomic|ibverbs.QPMinRNRTimer))
	must(w.b, w.qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTS, Timeout: benchTimeout, RetryCnt: 6, RNRRetry: 6, MaxRdAtomic: 1},
		ibverbs.QPStateMask|ibverbs.QPSQPSN|ibverbs.QPTimeout|ibverbs.QPRetryCnt|ibverbs.QPRNRRetry|ibverbs.QPMaxQPRdAtomic))
}

// write writes n times, with some in flight, and says how long each took in ns.
func (w *writer) write(to *writer, n int) float64 {
	w.b.Helper()
	start := time.Now()
	wcs := make([]ibverbs.WC, benchInFlight)
	for posted, done := 0, 0; done < n; {
		for ; posted < n && posted-done < benchInFlight; posted++ {
			at := posted % benchInFlight * benchWrite
			_, err := w.qp.PostSend(ibverbs.SendWR{ID: uint64(posted), Op: ibverbs.OpWrite, Flags: ibverbs.Signaled,
				SGL: []ibverbs.SGE{w.mem.SGE(at, benchWrite)}, Remote: to.mem.Remote(at)})
			must(w.b, err)
		}
		got, err := w.cq.Wait(w.b.Context(), wcs)
		must(w.b, err)
		for i := range wcs[:got] {
			must(w.b, w.cq.Err(&wcs[i]))
		}
		done += got
	}
	return float64(time.Since(start).Nanoseconds()) / float64(n)
}

// BenchmarkWritesBesideKernel writes 64 KiB from softroce to softroce, between two
// network namespaces, and by turns from the kernel's rxe0 to rxe1, over cables that
// are alike. The path MTU is 1024 at both.
//
//	go test -tags hw -c -o /tmp/interop.test ./ibverbs/softroce/internal/interop
//	lab/vm /tmp/interop.test -test.run '^$' -test.bench WritesBesideKernel -test.benchtime 9x
//
// soft/rxe is the bandwidth of softroce over the kernel's: the median of the turns,
// of which -benchtime says how many.
func BenchmarkWritesBesideKernel(b *testing.B) {
	cable := lab.NewCable(b, benchMTU)
	drv := softroce.New(softroce.Config{Addrs: cable.Addrs[:], Network: cableNetwork{cable}})
	var soft, kernel [2]*writer
	for i, name := range []string{"rxe0", "rxe1"} {
		s, err := ibverbs.Open(cable.Addrs[i].String(), ibverbs.WithDrivers(drv))
		must(b, err)
		soft[i] = newWriter(b, s, cable.Addrs[i])
		k, err := ibverbs.Open(name)
		must(b, err)
		kernel[i] = newWriter(b, k, netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)}))
	}
	for _, p := range [][2]*writer{soft, kernel} {
		p[0].connect(p[1])
		p[1].connect(p[0])
		p[0].write(p[1], benchInFlight) // what is made on first use is there then
	}
	const n = 48
	var ours, theirs []float64
	order := hwtest.Rand(b)
	for b.Loop() {
		if order.IntN(2) == 0 {
			ours = append(ours, soft[0].write(soft[1], n))
			theirs = append(theirs, kernel[0].write(kernel[1], n))
		} else {
			theirs = append(theirs, kernel[0].write(kernel[1], n))
			ours = append(ours, soft[0].write(soft[1], n))
		}
	}
	b.ReportMetric(benchWrite/stats.Median(ours)*1e3, "soft-MB/s")
	b.ReportMetric(benchWrite/stats.Median(theirs)*1e3, "rxe-MB/s")
	b.ReportMetric(stats.Median(stats.Ratios(theirs, ours)), "soft/rxe")
}

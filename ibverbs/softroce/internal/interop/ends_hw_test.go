//go:build hw && linux

package interop

import (
	"context"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/lab"
	"github.com/purerdma/purerdma/mr"
)

const (
	// netMTU is large enough for the largest path MTU.
	netMTU = 4400
	// memory is the bytes that an end registers: room for the largest message, or
	// for the depth of a queue of the small ones, what lies between messages, and
	// the markers of unreliable transports.
	memory = 1<<20 + 64<<10
	depth  = 32
	// patience is how long a row may take. The kernel's end repeats for ever.
	patience = 30 * time.Second
)

// network opens softroce's links in the namespace of the second host.
type network struct {
	host *lab.Host
	// unsegmented sends each packet by itself, so that a loss of 1 % is one of
	// packets; otherwise netem loses runs of up to 64.
	unsegmented netip.Addr
}

func (n network) Open(addr netip.Addr) (l softroce.Link, err error) {
	err = n.host.Do(func() error {
		u, err := link.ListenUDP(link.UDPConfig{Addr: addr, Unsegmented: addr == n.unsegmented})
		l = farLink{u, n.host.Do}
		return err
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// farLink opens the sockets of flows there as well, where it was opened itself.
type farLink struct {
	*link.UDP
	there func(func() error) error
}

func (l farLink) Source(hash uint32) (from netip.AddrPort) {
	_ = l.there(func() error { from = l.UDP.Source(hash); return nil })
	return from
}

// end is a device with one of its addresses, and what all its connections share.
type end struct {
	name   string
	kernel bool
	place  hwtest.Place
	dev    *ibverbs.Context
	pd     *ibverbs.PD
	cq     *ibverbs.CQ
	buf    *mr.Buffer
	mem    *ibverbs.MR
	left   []ibverbs.WC // polled and not yet taken
}

// pair is the two ends of an IP version.
type pair struct{ kernel, soft, unsegmented *end }

// fixture is the second host and the ends on both.
type fixture struct {
	host   *lab.Host
	v4, v6 pair
}

// open opens the devices until the test ends.
func open(t *testing.T, host *lab.Host) *fixture {
	f := &fixture{host: host}
	f.v4 = f.pair(t, host.Kernel[0], host.Addrs[0], host.Addrs[1])
	f.v6 = f.pair(t, host.Kernel[1], host.Addrs[2], host.Addrs[3])
	return f
}

// enlarge raises the limit of receive buffers until the test ends. Unreliable
// transports have no flow control: what is to arrive must find room.
func enlarge(t *testing.T) {
	t.Helper()
	const file = "/proc/sys/net/core/rmem_max"
	before, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, []byte("8388608"), 0))
	t.Cleanup(func() { must(t, os.WriteFile(file, before, 0)) })
}

func (f *fixture) pair(t *testing.T, kernel, soft, unsegmented netip.Addr) pair {
	t.Helper()
	drv := softroce.New(softroce.Config{Addrs: []netip.Addr{soft, unsegmented}, Network: network{f.host, unsegmented}})
	k, err := ibverbs.Open(f.host.Device)
	must(t, err)
	s, err := ibverbs.Open(soft.String(), ibverbs.WithDrivers(drv))
	must(t, err)
	u, err := ibverbs.Open(unsegmented.String(), ibverbs.WithDrivers(drv))
	must(t, err)
	return pair{newEnd(t, "kernel", k, kernel), newEnd(t, "softroce", s, soft), newEnd(t, "softroce, unsegmented", u, unsegmented)}
}

func newEnd(t *testing.T, name string, dev *ibverbs.Context, addr netip.Addr) *end {
	t.Helper()
	e := &end{name: name, kernel: dev.Info().Driver == "rxe", dev: dev}
	t.Cleanup(func() {
		must(t, dev.Close())
		if e.buf != nil {
			must(t, e.buf.Close())
		}
	})
	gids, err := dev.GIDs(1)
	must(t, err)
	port, err := dev.Port(1)
	must(t, err)
	for _, g := range gids {
		if g.GID.Addr() == addr {
			e.place = hwtest.Place{Device: dev.Info().Name, Port: 1, GID: g, MTU: port.ActiveMTU, Link: port.LinkLayer}
		}
	}
	if e.place.Port == 0 || port.ActiveMTU != ibverbs.MTU4096 {
		t.Fatalf("%s has no GID of %v, or not the MTU: %v, %+v", dev.Info().Name, addr, gids, port)
	}
	e.pd, err = dev.AllocPD()
	must(t, err)
	e.cq, err = dev.CreateCQ(8*depth, ibverbs.WithEvents())
	must(t, err)
	e.buf, err = mr.Alloc(memory)
	must(t, err)
	e.mem, err = e.pd.RegMR(e.buf, ibverbs.LocalWrite|ibverbs.RemoteWrite|ibverbs.RemoteRead|ibverbs.RemoteAtomic|ibverbs.MWBind)
	must(t, err)
	return e
}

// disturb has the cable lose packets both ways for the rest of the test.
func (f *fixture) disturb(t *testing.T) {
	t.Helper()
	lab.Disturb(t, f.host.Near, "loss", "1%")
	f.host.Disturb(t, "loss", "1%")
}

// ends is who sends and who receives in a row.
func (f *fixture) ends(r row) (from, to *end) {
	p := f.v4
	if r.v6 {
		p = f.v6
	}
	from, to = p.kernel, p.soft
	if r.loss {
		to = p.unsegmented
	}
	if r.softSends {
		from, to = to, from
	}
	return from, to
}

// explain has a row that fails say what its devices counted until then.
func (f *fixture) explain(t *testing.T, r row) {
	from, to := f.ends(r)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, e := range []*end{from, to} {
			counters, err := e.dev.Counters(1)
			t.Logf("%s counted %+v, %v", e.name, counters, err)
		}
		stat, err := os.ReadFile("/proc/net/softnet_stat")
		t.Logf("packets that processors took, and (second column) threw away:\n%s%v", stat, err)
	})
}

// take waits for the next n completions, whosever they are. All have succeeded.
func (e *end) take(t *testing.T, n int) []ibverbs.WC {
	t.Helper()
	wcs := e.takeAny(t, n)
	for i := range wcs {
		if err := e.cq.Err(&wcs[i]); err != nil {
			t.Fatalf("%s, completion %d of %d: %v", e.name, i, n, err)
		}
	}
	return wcs
}

// takeAny is take of completions that may have failed.
func (e *end) takeAny(t *testing.T, n int) []ibverbs.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []ibverbs.WC
	for len(got) < n {
		wcs, err := e.wait(ctx)
		if err != nil {
			t.Fatalf("%s: %d of %d completions: %v", e.name, len(got), n, err)
		}
		got = append(got, wcs...)
	}
	e.left = got[n:]
	return got[:n:n]
}

// wait is the completions that there are, at least one.
func (e *end) wait(ctx context.Context) ([]ibverbs.WC, error) {
	if wcs := e.left; len(wcs) > 0 {
		e.left = nil
		return wcs, nil
	}
	wcs := make([]ibverbs.WC, depth)
	n, err := e.cq.Wait(ctx, wcs)
	return wcs[:n], err
}

// idle sees that there is no completion that nobody expects.
func (e *end) idle(t *testing.T) {
	t.Helper()
	var wcs [depth]ibverbs.WC
	n, err := e.cq.Poll(wcs[:])
	must(t, err)
	if left := append(e.left, wcs[:n]...); len(left) > 0 {
		t.Errorf("%s: %d completions too many: %+v", e.name, len(left), left)
	}
	e.left = nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

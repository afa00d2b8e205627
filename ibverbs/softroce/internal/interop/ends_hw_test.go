//go:build hw && linux

package interop

import (
	"context"
	"net/netip"
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
	// for the depth of a queue of the small ones, and what lies between messages.
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
		l = farLink{u, n.host}
		return err
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// farLink opens the sockets of flows there as well.
type farLink struct {
	*link.UDP
	host *lab.Host
}

func (l farLink) Source(hash uint32) (from netip.AddrPort) {
	_ = l.host.Do(func() error { from = l.UDP.Source(hash); return nil })
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

func newFixture(t *testing.T) *fixture {
	f := &fixture{host: lab.NewHost(t, netMTU)}
	f.v4 = f.pair(t, f.host.Kernel[0], f.host.Addrs[0], f.host.Addrs[1])
	f.v6 = f.pair(t, f.host.Kernel[1], f.host.Addrs[2], f.host.Addrs[3])
	return f
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
	rights := ibverbs.LocalWrite | ibverbs.RemoteWrite | ibverbs.RemoteRead | ibverbs.RemoteAtomic
	if dev.Probe(ibverbs.FeatureMW2) == nil {
		rights |= ibverbs.MWBind
	}
	e.mem, err = e.pd.RegMR(e.buf, rights)
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

// take waits for the next n completions, whosever they are.
func (e *end) take(t *testing.T, n int) []ibverbs.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(e.left) < n {
		var wcs [depth]ibverbs.WC
		got, err := e.cq.Wait(ctx, wcs[:])
		if err != nil {
			t.Fatalf("%s: %d of %d completions: %v", e.name, len(e.left), n, err)
		}
		e.left = append(e.left, wcs[:got]...)
	}
	wcs := e.left[:n:n]
	e.left = e.left[n:]
	for i := range wcs {
		if err := e.cq.Err(&wcs[i]); err != nil {
			t.Fatalf("%s, completion %d of %d: %v", e.name, i, n, err)
		}
	}
	return wcs
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

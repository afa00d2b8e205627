//go:build linux

package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/bench/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Both ends in one process, all modes, forwards and backwards.
func TestBothEnds(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // two ends that spin
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o := orders{Slice: time.Millisecond, QPs: 120, CPU: noCPU, Modes: modesOf(rows)}
	a, b := net.Pipe()
	followed := make(chan error, 1)
	go func() { followed <- session(ctx, b, o, where{}, false, following) }()
	figures := map[mode][]float64{}
	err := session(ctx, a, o, where{}, true, func(ctx context.Context, e *end, ctl *control.Conn) error {
		return leading(ctx, e, ctl, 2, func(_ int, m mode, figure float64) { figures[m] = append(figures[m], figure) })
	})
	if err := errors.Join(err, <-followed); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		v := judge(r, figures)
		if len(figures[r.Ours]) != 2 || len(figures[r.Ref]) != 2 || !(v.Ratio.Low > 0) || !(v.OursMedian > 0) || !(v.RefMedian > 0) {
			t.Errorf("%s: %+v", r.What, v)
		}
	}
}

func TestTargets(t *testing.T) {
	least, most := row{Target: 0.9, AtLeast: true}, row{Target: 1.3}
	if !least.met(0.9) || least.met(0.89) || !most.met(1.3) || most.met(1.31) {
		t.Error("a target is on the wrong side")
	}
	for only, want := range map[string]int{"": 14, bandwidth: 6, latency: 6, scale: 2, "both poll": 2, "speed": 0} {
		if n := len(modesOf(selected(only))); n != want {
			t.Errorf("%q: %d modes, want %d", only, n, want)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, bad := range []tool{
		{rounds: 0, orders: orders{Slice: time.Second, QPs: 1}},
		{rounds: 1, orders: orders{Slice: 0, QPs: 1}},
		{rounds: 1, orders: orders{Slice: time.Second, QPs: 0}},
		{rounds: 1, orders: orders{Slice: time.Second, QPs: 1}, group: "speed"},
	} {
		var usage *cli.UsageError
		if err := bad.check(); !errors.As(err, &usage) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestHostilePlace(t *testing.T) {
	good := place{Addr: 1, RKey: 1, Len: memory, QPs: special + 3, Ports: ports{netip.AddrFrom4([4]byte{127, 0, 0, 1}), 1, 2, 3}}
	o := orders{QPs: 3}
	if err := good.check(o); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*place){
		func(p *place) { p.Len-- }, func(p *place) { p.RKey = 0 }, func(p *place) { p.Addr = 0 }, func(p *place) { p.QPs = 1 << 30 },
		func(p *place) { p.Ports.Addr = netip.Addr{} }, func(p *place) { p.Ports.Polled = 0 }, func(p *place) { p.Ports.Waited = 1 << 16 },
	} {
		p := good
		change(&p)
		if err := p.check(o); !errors.Is(err, control.ErrProtocol) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestText(t *testing.T) {
	tl := tool{rounds: 5, figures: map[mode][]float64{write1024: {2, 2, 2, 2, 2}, crc1024: {2, 2, 1, 2, 2}}}
	var b strings.Builder
	tl.out.Text = &b
	tl.verdicts = []verdict{judge(rows[0], tl.figures)}
	if err := tl.print(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{rows[0].What, "1.00", "≥ 0.920", "met"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Both ends over a fabric in memory, in one process.
func TestBothEnds(t *testing.T) {
	d := memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{{}, {}}})
	find := ibverbs.WithDrivers(d)
	for _, j := range []job{
		{Test: bandwidth, Size: 64 << 10, Iters: 500, Depth: 128, CQMod: 1, Timeout: 14},
		{Test: bandwidth, Size: 1, Iters: 333, Depth: 16, CQMod: 5, Timeout: 14},
		{Test: bandwidth, Size: 100, Iters: 7, Depth: 1, CQMod: 1, Timeout: 14},
		{Test: latency, Size: 8, Iters: 200, Depth: 1, CQMod: 1, Timeout: 14},
		{Test: latency, Size: 1024, Iters: 50, Depth: 1, CQMod: 1, Timeout: 14},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		j.GIDIndex = 1
		a, b := net.Pipe()
		followed := make(chan error, 1)
		go func() { followed <- following(ctx, b, orders{Job: j, Device: "mem1"}, find) }()
		f, err := leading(ctx, a, orders{Job: j, Device: "mem0"}, find)
		if err := errors.Join(err, <-followed); err != nil {
			t.Fatalf("%+v: %v", j, err)
		}
		if !(f.main(j.Test) > 0) || j.Test == latency && !(f.P99 >= f.Typical) {
			t.Errorf("%+v: %+v", j, f)
		}
		cancel()
	}
}

func TestBadEnd(t *testing.T) {
	d := memdriver.New(memdriver.Config{})
	j := job{Test: latency, Size: 8, Iters: 10, Depth: 1, CQMod: 1, Timeout: 14, GIDIndex: 1}
	a, b := net.Pipe()
	followed := make(chan error, 1)
	go func() {
		followed <- following(t.Context(), b, orders{Job: j, Device: "mem7"}, ibverbs.WithDrivers(d))
	}()
	_, err := leading(t.Context(), a, orders{Job: j, Device: "mem0"}, ibverbs.WithDrivers(d))
	for _, err := range []error{err, <-followed} {
		if err == nil || !strings.Contains(err.Error(), "there are mem0") {
			t.Errorf("%v", err)
		}
	}
}

const bwText = ` local address: LID 0000 QPN 0x0011 PSN 0x47ffef RKey 0x000211 VAddr 0x0056462ef59000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:09:00:01
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      200              0.00               1.82   		   0.000029
---------------------------------------------------------------------------------------
`

const latText = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 8       1000          43.10          5210.33      53.15              81.20        310.11		489.07			5210.33
`

func TestParse(t *testing.T) {
	if f, err := parse(bandwidth, bwText); err != nil || f.MiBps != 1.82 {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := parse(latency, latText); err != nil || f.Typical != 53.15 || f.P99 != 489.07 || f.Mean != 81.20 {
		t.Errorf("%+v, %v", f, err)
	}
	for name, text := range map[string]string{
		"nothing":       "",
		"an error":      "Unable to init the socket connection",
		"a header only": " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]",
		"other units":   strings.ReplaceAll(bwText, "MB/sec", "Gb/sec"),
		"no number":     strings.ReplaceAll(bwText, "1.82", "inf."),
		"the other one": latText,
	} {
		if f, err := parse(bandwidth, text); err == nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestInTurn(t *testing.T) {
	var order strings.Builder
	program := func(name string, value float64) measureFunc {
		return func(context.Context, test) (figures, error) {
			order.WriteString(name)
			return figures{MiBps: value}, nil
		}
	}
	shown := 0
	pairs, err := inTurn(t.Context(), bandwidth, 3, program("o", 19), program("t", 20), func(int, neighbours) { shown++ })
	if err != nil || len(pairs) != 3 || shown != 3 || order.String() != "ottoot" {
		t.Errorf("%v, %d pairs in the order %s, %d shown", err, len(pairs), order.String(), shown)
	}
	v := judge(bandwidth, pairs)
	if v.Ratio.Mid != 0.95 || !v.Target.met(v.Ratio.Mid) {
		t.Errorf("%+v", v)
	}
	broken := func(context.Context, test) (figures, error) { return figures{}, errors.New("no link") }
	pairs, err = inTurn(t.Context(), latency, 3, program("o", 1), broken, func(int, neighbours) {})
	if err == nil || !strings.Contains(err.Error(), "pair 1 of 3, perftest: no link") || len(pairs) != 0 {
		t.Errorf("%v, %v", pairs, err)
	}
}

func TestTargets(t *testing.T) {
	for _, test := range []struct {
		t     test
		ratio float64
		met   bool
	}{{bandwidth, 0.95, true}, {bandwidth, 0.94, false}, {latency, 1.35, true}, {latency, 1.36, false}, {latency, 0.9, true}} {
		if got := targets[test.t].met(test.ratio); got != test.met {
			t.Errorf("%s %v: %v", test.t, test.ratio, got)
		}
	}
}

// A run for which perftest found no clock is made again; one that never finds it ends the comparison.
func TestClock(t *testing.T) {
	_, err := parse(latency, "#bytes #iterations t_min[usec] t_max t_typical[usec]\n 8  1000   inf   inf   inf   inf   -nan   inf   inf \n")
	if !errors.Is(err, errClock) {
		t.Fatalf("infinity is %v", err)
	}
	for failures, ok := range map[int]bool{0: true, tries - 1: true, tries: false} {
		left := failures
		fast := func(context.Context, test) (figures, error) { return figures{Typical: 1}, nil }
		stumbling := func(context.Context, test) (figures, error) {
			if left--; left >= 0 {
				return figures{}, errClock
			}
			return figures{Typical: 1}, nil
		}
		_, err := inTurn(t.Context(), latency, 1, fast, stumbling, func(int, neighbours) {})
		if (err == nil) != ok {
			t.Errorf("after %d runs without a clock: %v", failures, err)
		}
	}
}

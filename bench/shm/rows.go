//go:build linux

package main

import (
	"fmt"

	"github.com/purerdma/purerdma/bench/report"
)

// kind is how messages move.
type kind string

const (
	latency kind = "latency" // half a round trip
	stream  kind = "stream"  // one Send after the other
	batched kind = "batch"   // in batches of batchSize
)

const batchSize = 64

// unit is what a result is told in, and what its target is a limit of.
type unit string

const (
	perC     unit = "x C"     // times half a cache line's round trip; at most
	perM     unit = "x M"     // times one copy; at most
	fraction unit = "of copy" // of a copy's bandwidth; at least
	rate     unit = "M/s"     // messages; at least
)

const (
	million  = 1e6
	ucxBy    = 1.5     // how much better than UCX each row should be
	agree    = 4.0 / 3 // how far two probes may be apart
	nearFrom = 90e-9   // seconds of a line's round trip
	farFrom  = 190e-9  // likewise
)

// row is one measurement. Counts are messages of a sample, some milliseconds long.
type row struct {
	Kind      kind
	Size      int
	Unit      unit
	Near, Far float64 // targets
	Count     int
	// rivalCount is the messages of a rival's run.
	rivalCount int
}

var rows = []row{
	{latency, 8, perC, 1.4, 1.3, 20_000, 50_000},
	{latency, 4 << 10, perC, 7, 5, 4_000, 20_000},
	{latency, 64 << 10, perM, 2.8, 6.5, 300, 3_000},
	{latency, 1 << 20, perM, 2.0, 3.4, 30, 200},
	{stream, 8, rate, 50, 18, 300_000, 200_000},
	{batched, 8, rate, 120, 40, 600_000, 200_000},
	{stream, 4 << 10, fraction, 0.17, 0.10, 16_000, 20_000},
	{stream, 64 << 10, fraction, 0.52, 0.20, 1_000, 3_000},
	{stream, 1 << 20, fraction, 0.65, 0.32, 64, 300},
}

func (r row) name() string { return fmt.Sprintf("%s %s", report.Bytes(r.Size), r.Kind) }

// atLeast tells whether more is better.
func (u unit) atLeast() bool { return u == fraction || u == rate }

// regime is how far apart the two processors are.
type regime string

const (
	near regime = "near"
	far  regime = "far"
	none regime = "" // none that counts: one core, or it changed in between
)

// level is the regime of one round trip in seconds.
func level(rtt float64) regime {
	switch {
	case rtt < nearFrom:
		return none
	case rtt < farFrom:
		return near
	}
	return far
}

// sample is one measurement with what was probed around it. Times are seconds: of a message, of a round trip of a line, of a copy.
type sample struct {
	Each   float64
	Probes [2]float64
	Copies [2]float64
}

// regime is none if the probes do not agree.
func (s sample) regime() regime { return agreed(s.Probes[0], s.Probes[1]) }

func agreed(a, b float64) regime {
	if a > b*agree || b > a*agree || level(a) != level(b) {
		return none
	}
	return level(a)
}

// in is the sample in the unit of its row.
func (s sample) in(r row) float64 {
	line, copied := (s.Probes[0]+s.Probes[1])/4, (s.Copies[0]+s.Copies[1])/2
	switch r.Unit {
	case perC:
		return s.Each / line
	case perM:
		return s.Each / copied
	case fraction:
		return copied / s.Each
	}
	return 1 / s.Each / million
}

func (r row) target(g regime) float64 {
	if g == near {
		return r.Near
	}
	return r.Far
}

// met says whether a value is as it should be.
func (r row) met(g regime, v float64) bool {
	if r.Unit.atLeast() {
		return v >= r.target(g)
	}
	return v <= r.target(g)
}

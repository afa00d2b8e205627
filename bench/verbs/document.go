package main

import (
	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/bench/stats"
)

const (
	schemaName    = "purerdma.verbs"
	schemaVersion = 1
)

// document is what --json prints.
type document struct {
	report.Head
	Devices []string  `json:"devices"`
	Tests   []testDoc `json:"tests"`
}

type testDoc struct {
	Test       test      `json:"test"`
	Program    string    `json:"compared_with"`
	Size       int       `json:"size_bytes"`
	Iterations int       `json:"iterations"`
	Depth      int       `json:"depth"`
	CQMod      int       `json:"cq_moderation"`
	Timeout    int       `json:"qp_timeout"` // 4.096 µs × 2^this
	Pairs      []pairDoc `json:"pairs"`
	// Ratio is of bw_avg_mibps or lat_typical_us, ours over theirs.
	Ratio    ratioDoc      `json:"ratio"`
	P99Ratio *ratioDoc     `json:"p99_ratio"`
	Target   report.Number `json:"target_ratio"`
	AtLeast  bool          `json:"target_is_least"`
	Met      bool          `json:"target_met"`
}

type pairDoc struct {
	Ours   figuresDoc `json:"purerdma"`
	Theirs figuresDoc `json:"perftest"`
}

// figuresDoc has null for what the other test measures.
type figuresDoc struct {
	Bandwidth *report.Number `json:"bw_avg_mibps"`
	Typical   *report.Number `json:"lat_typical_us"`
	P99       *report.Number `json:"lat_p99_us"`
	Mean      *report.Number `json:"lat_avg_us"`
}

type ratioDoc struct {
	Median     report.Number `json:"median"`
	Low        report.Number `json:"low"`
	High       report.Number `json:"high"`
	Confidence report.Number `json:"confidence"`
}

func (t *tool) document(h report.Head) any {
	d := document{Head: h, Devices: append([]string{}, t.devices...), Tests: []testDoc{}}
	for _, v := range t.verdicts {
		j := t.job(v.Test)
		x := testDoc{Test: v.Test, Program: j.program(), Size: j.Size, Iterations: j.Iters, Depth: j.Depth, CQMod: j.CQMod, Timeout: j.Timeout, Pairs: []pairDoc{},
			Ratio: ratio(v.Ratio), Target: report.Number(v.Target.Value), AtLeast: v.Target.AtLeast, Met: v.Target.met(v.Ratio.Mid)}
		for _, p := range v.Pairs {
			x.Pairs = append(x.Pairs, pairDoc{p.Ours.document(v.Test), p.Theirs.document(v.Test)})
		}
		if v.Test == latency {
			r := ratio(v.P99Ratio)
			x.P99Ratio = &r
		}
		d.Tests = append(d.Tests, x)
	}
	return d
}

func ratio(iv stats.Interval) ratioDoc {
	return ratioDoc{report.Number(iv.Mid), report.Number(iv.Low), report.Number(iv.High), report.Number(iv.Confidence)}
}

func (f figures) document(t test) figuresDoc {
	number := func(f float64) *report.Number { n := report.Number(f); return &n }
	if t == bandwidth {
		return figuresDoc{Bandwidth: number(f.MiBps)}
	}
	return figuresDoc{Typical: number(f.Typical), P99: number(f.P99), Mean: number(f.Mean)}
}

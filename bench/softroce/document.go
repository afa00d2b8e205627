package main

import (
	"github.com/purerdma/purerdma/bench/report"
)

const (
	schemaName    = "purerdma.softroce"
	schemaVersion = 1
)

// document is what --json prints.
type document struct {
	report.Head
	Processor string        `json:"processor"`
	Rounds    int           `json:"rounds"`
	Slice     report.Number `json:"slice_s"`
	QPs       int           `json:"queue_pairs"`
	Rows      []rowDoc      `json:"rows"`
}

type rowDoc struct {
	Group   string  `json:"group"`
	What    string  `json:"what"`
	Unit    string  `json:"unit"`
	Ours    sideDoc `json:"softroce"`
	Ref     sideDoc `json:"reference"`
	Ratio   ratio   `json:"ratio"`
	Target  float64 `json:"target_ratio"`
	AtLeast bool    `json:"target_is_least"`
	Met     bool    `json:"target_met"`
}

type sideDoc struct {
	Mode   mode            `json:"mode"`
	Median report.Number   `json:"median"`
	Rounds []report.Number `json:"rounds"`
}

type ratio struct {
	Median     report.Number `json:"median"`
	Low        report.Number `json:"low"`
	High       report.Number `json:"high"`
	Confidence report.Number `json:"confidence"`
}

func (t *tool) document(h report.Head) any {
	d := document{Head: h, Processor: t.processor, Rounds: t.rounds, Slice: report.Number(t.orders.Slice.Seconds()), QPs: t.orders.QPs, Rows: []rowDoc{}}
	for _, v := range t.verdicts {
		side := func(m mode, median float64) sideDoc {
			return sideDoc{m, report.Number(median), report.Numbers(t.figures[m])}
		}
		d.Rows = append(d.Rows, rowDoc{Group: v.Group, What: v.What, Unit: v.Unit, Ours: side(v.Ours, v.OursMedian), Ref: side(v.Ref, v.RefMedian),
			Ratio:  ratio{report.Number(v.Ratio.Mid), report.Number(v.Ratio.Low), report.Number(v.Ratio.High), report.Number(v.Ratio.Confidence)},
			Target: v.Target, AtLeast: v.AtLeast, Met: v.met(v.Ratio.Mid)})
	}
	return d
}

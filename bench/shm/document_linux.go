package main

import (
	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/bench/stats"
)

const (
	schemaName    = "purerdma.shm"
	schemaVersion = 2
)

// document is what --json prints.
type document struct {
	report.Head
	CPUs   [2]int         `json:"cpus"`
	Cells  int            `json:"cells"`
	Data   int            `json:"data_bytes"`
	Rounds int            `json:"rounds"`
	Rows   []rowDoc       `json:"rows"`
	Late   map[string]int `json:"rival_runs_given_up"`
}

// rowDoc is a row in one regime; null where nothing was measured.
type rowDoc struct {
	Kind    kind                `json:"kind"`
	Size    int                 `json:"size_bytes"`
	Regime  regime              `json:"regime"`
	Unit    unit                `json:"unit"`
	Target  report.Number       `json:"target"`
	AtLeast bool                `json:"target_is_least"`
	Met     bool                `json:"target_met"`
	Median  report.Number       `json:"median"`
	Each    report.Number       `json:"each_median_s"`
	Values  []report.Number     `json:"values"`
	Times   []report.Number     `json:"each_s"`
	Lines   []report.Number     `json:"lines_s"` // round trips of a line, two for each sample
	Rivals  map[string]rivalDoc `json:"rivals"`
}

// rivalDoc is how many times faster than a rival ours is.
type rivalDoc struct {
	Median report.Number   `json:"times_better"`
	Ratios []report.Number `json:"ratios"`
}

func (t *tool) document(h report.Head) any {
	d := document{Head: h, CPUs: t.cpus, Cells: t.cells, Data: t.data, Rounds: t.rounds, Rows: []rowDoc{}, Late: t.late}
	for _, r := range t.results {
		for _, g := range []regime{near, far} {
			values, times := r.of(g)
			lines := r.lines(g)
			mid := stats.Median(values)
			d.Rows = append(d.Rows, rowDoc{Kind: r.Row.Kind, Size: r.Row.Size, Regime: g, Unit: r.Row.Unit, Target: report.Number(r.Row.target(g)),
				AtLeast: r.Row.Unit.atLeast(), Met: len(values) > 0 && r.Row.met(g, mid), Median: report.Number(mid), Each: report.Number(stats.Median(times)),
				Values: report.Numbers(values), Times: report.Numbers(times), Lines: report.Numbers(lines), Rivals: map[string]rivalDoc{}})
			for _, name := range t.rivals {
				better := r.against(name, g)
				d.Rows[len(d.Rows)-1].Rivals[name] = rivalDoc{report.Number(stats.Median(better)), report.Numbers(better)}
			}
		}
	}
	return d
}

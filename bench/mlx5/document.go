package main

import (
	"fmt"
	"strconv"

	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/bench/stats"
)

const (
	schemaName    = "purerdma.mlx5"
	schemaVersion = 1
)

// document is what --json prints.
type document struct {
	report.Head
	Rounds int           `json:"rounds"`
	Slice  report.Number `json:"slice_s"`
	Rows   []rowDoc      `json:"rows"`
}

// rowDoc is the figures of one call. Times are of a call for the whole list.
type rowDoc struct {
	Call    string  `json:"call"`
	List    int     `json:"list"`
	Libmlx5 sideDoc `json:"libmlx5"`
	Ours    sideDoc `json:"purerdma"`
	Ratio   ratio   `json:"ratio"`
	Target  float64 `json:"target_ratio"`
	Met     bool    `json:"target_met"`
	// Of libmlx5 through cgo, against libmlx5; null if it was not measured.
	ByCgo    *sideDoc `json:"cgo"`
	CgoRatio *ratio   `json:"cgo_ratio"`
}

type sideDoc struct {
	Median report.Number   `json:"median_ns"`
	Rounds []report.Number `json:"rounds_ns"`
}

type ratio struct {
	Median     report.Number `json:"median"`
	Low        report.Number `json:"low"`
	High       report.Number `json:"high"`
	Confidence report.Number `json:"confidence"`
}

const confidence = 0.95

// ratio is the interval of the ratios of a side to libmlx5, round by round.
func (t *tool) ratio(r row, s side) stats.Interval {
	return stats.MedianInterval(stats.Ratios(t.figures[r][s], t.figures[r][libmlx5]), confidence)
}

func (t *tool) document(h report.Head) any {
	d := document{Head: h, Rounds: t.rounds, Slice: report.Number(t.slice.Seconds()), Rows: []rowDoc{}}
	figures := func(r row, s side) sideDoc {
		return sideDoc{report.Number(stats.Median(t.figures[r][s])), report.Numbers(t.figures[r][s])}
	}
	against := func(r row, s side) ratio {
		i := t.ratio(r, s)
		return ratio{report.Number(i.Mid), report.Number(i.Low), report.Number(i.High), report.Number(i.Confidence)}
	}
	for _, r := range t.rows() {
		doc := rowDoc{Call: r.call, List: r.list, Libmlx5: figures(r, libmlx5), Ours: figures(r, ours), Ratio: against(r, ours), Target: target,
			Met: t.ratio(r, ours).Mid <= target}
		if len(t.figures[r][byCgo]) > 0 {
			s, ratio := figures(r, byCgo), against(r, byCgo)
			doc.ByCgo, doc.CgoRatio = &s, &ratio
		}
		d.Rows = append(d.Rows, doc)
	}
	return d
}

// print writes the table.
func (t *tool) print() error {
	table := report.Table{Header: []string{"call", "list", "libmlx5 ns", "purerdma ns", "ratio", "most likely", "cgo ns", "ratio", "target"}, Left: []int{0, 8}}
	for _, r := range t.rows() {
		i := t.ratio(r, ours)
		cgo, cgoRatio := "", ""
		if len(t.figures[r][byCgo]) > 0 {
			cgo, cgoRatio = fmt.Sprintf("%.1f", stats.Median(t.figures[r][byCgo])), fmt.Sprintf("%.2f", t.ratio(r, byCgo).Mid)
		}
		met := "met"
		if !(i.Mid <= target) {
			met = fmt.Sprintf("at most %.2f: missed", target)
		}
		table.Rows = append(table.Rows, []string{r.call, strconv.Itoa(r.list), fmt.Sprintf("%.1f", stats.Median(t.figures[r][libmlx5])),
			fmt.Sprintf("%.1f", stats.Median(t.figures[r][ours])), fmt.Sprintf("%.2f", i.Mid), fmt.Sprintf("%.2f–%.2f", i.Low, i.High), cgo, cgoRatio, met})
	}
	_, err := fmt.Fprintf(t.out.Text, "%s\nTimes are of a call for the whole list; ratios are to libmlx5, the medians of %d rounds.\n", table, t.rounds)
	return err
}

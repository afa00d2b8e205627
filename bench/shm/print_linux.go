package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/bench/stats"
)

// print writes the results for people.
func (t *tool) print() error {
	var b strings.Builder
	for _, g := range []regime{near, far} {
		table := report.Table{Header: []string{"row", "samples", "each", "median", "quartiles", "unit", "target", "", "UCX runs", "times better than UCX", ""}, Left: []int{0, 5, 7, 10}}
		var lines []float64
		for _, r := range t.results {
			values, times, better := r.of(g)
			for _, s := range r.Samples {
				if s.regime() == g {
					lines = append(lines, s.Probes[:]...)
				}
			}
			if len(values) == 0 {
				continue
			}
			mid, ratio := stats.Median(values), stats.Median(better)
			word := "at most "
			if r.Row.Unit.atLeast() {
				word = "at least "
			}
			table.Rows = append(table.Rows, []string{r.Row.name(), strconv.Itoa(len(values)), seconds(stats.Median(times)), report.Digits(mid),
				report.Digits(stats.Quantile(values, 0.25)) + " to " + report.Digits(stats.Quantile(values, 0.75)), string(r.Row.Unit),
				word + report.Digits(r.Row.target(g)), verdict(true, r.Row.met(g, mid)), strconv.Itoa(len(better)), report.Digits(ratio), verdict(len(better) > 0, ratio >= ucxBy)})
		}
		if len(table.Rows) == 0 {
			fmt.Fprintf(&b, "\n%s: no sample\n", g)
			continue
		}
		fmt.Fprintf(&b, "\n%s: a cache line's round trip takes %s ns\n%s", g, report.Digits(1e9*stats.Median(lines)), table)
	}
	if t.late > 0 {
		fmt.Fprintf(&b, "\n%d runs were given up: %v\n", t.late, errLate)
	}
	_, err := t.out.Text.Write([]byte(b.String()))
	return err
}

// seconds is a time as people write it.
func seconds(s float64) string {
	switch {
	case s < 1e-6:
		return report.Digits(s*1e9) + " ns"
	case s < 1e-3:
		return report.Digits(s*1e6) + " µs"
	}
	return report.Digits(s*1e3) + " ms"
}

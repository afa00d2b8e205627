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
		table := report.Table{Header: []string{"row", "samples", "each", "median", "quartiles", "unit", "target", ""}, Left: []int{0, 5, 7}}
		for _, name := range t.rivals {
			table.Header = append(table.Header, "times "+name, "runs")
		}
		var lines []float64
		for _, r := range t.results {
			values, times := r.of(g)
			lines = append(lines, r.lines(g)...)
			if len(values) == 0 {
				continue
			}
			mid := stats.Median(values)
			word := "at most "
			if r.Row.Unit.atLeast() {
				word = "at least "
			}
			cells := []string{r.Row.name(), strconv.Itoa(len(values)), seconds(stats.Median(times)), report.Digits(mid),
				report.Digits(stats.Quantile(values, 0.25)) + " to " + report.Digits(stats.Quantile(values, 0.75)), string(r.Row.Unit),
				word + report.Digits(r.Row.target(g)), verdict(true, r.Row.met(g, mid))}
			for _, name := range t.rivals {
				better := r.against(name, g)
				ratio := "-"
				if len(better) > 0 {
					ratio = report.Digits(stats.Median(better))
					if name == ucxName {
						ratio += " " + verdict(true, stats.Median(better) >= ucxBy)
					}
				}
				cells = append(cells, ratio, strconv.Itoa(len(better)))
			}
			table.Rows = append(table.Rows, cells)
		}
		if len(table.Rows) == 0 {
			fmt.Fprintf(&b, "\n%s: no sample\n", g)
			continue
		}
		fmt.Fprintf(&b, "\n%s: a cache line's round trip takes %s ns\n%s", g, report.Digits(1e9*stats.Median(lines)), table)
	}
	for _, name := range t.rivals {
		if n := t.late[name]; n > 0 {
			fmt.Fprintf(&b, "\n%d runs of %s were given up: %v\n", n, name, errLate)
		}
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

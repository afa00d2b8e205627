package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/bench/stats"
)

// pairText is a pair as it is shown while the others run.
func pairText(x test, i, n int, p neighbours) string {
	if x == bandwidth {
		return fmt.Sprintf("%s, pair %d of %d: purerdma %s, perftest %s MiB/s", x, i+1, n, report.Digits(p.Ours.MiBps), report.Digits(p.Theirs.MiBps))
	}
	return fmt.Sprintf("%s, pair %d of %d: typical %s, perftest %s µs; p99 %s, %s µs", x, i+1, n,
		report.Digits(p.Ours.Typical), report.Digits(p.Theirs.Typical), report.Digits(p.Ours.P99), report.Digits(p.Theirs.P99))
}

// print writes the results for people.
func (t *tool) print() error {
	var b strings.Builder
	for _, v := range t.verdicts {
		b.WriteString(t.text(v))
	}
	_, err := t.out.Text.Write([]byte(b.String()))
	return err
}

func (t *tool) text(v verdict) string {
	var b strings.Builder
	j := t.job(v.Test)
	fmt.Fprintf(&b, "\n%s of RDMA_WRITE, %s, %s to %s, against %s, %d times each in turn\n", v.Test, report.Bytes(j.Size),
		t.lead.Device, t.follow.Device, j.program(), len(v.Pairs))
	table := report.Table{Header: []string{"pair", "purerdma MiB/s", "perftest MiB/s", "ratio"}}
	if v.Test == latency {
		table.Header = []string{"pair", "purerdma µs", "perftest µs", "ratio", "purerdma p99 µs", "perftest p99 µs", "ratio p99"}
	}
	for i, p := range v.Pairs {
		row := []string{strconv.Itoa(i + 1), report.Digits(p.Ours.main(v.Test)), report.Digits(p.Theirs.main(v.Test)),
			report.Digits(p.Ours.main(v.Test) / p.Theirs.main(v.Test))}
		if v.Test == latency {
			row = append(row, report.Digits(p.Ours.P99), report.Digits(p.Theirs.P99), report.Digits(p.Ours.P99/p.Theirs.P99))
		}
		table.Rows = append(table.Rows, row)
	}
	b.WriteString(table.String())
	word, result := "at most", "met"
	if v.Target.AtLeast {
		word = "at least"
	}
	if !v.Target.met(v.Ratio.Mid) {
		result = "not met"
	}
	fmt.Fprintf(&b, "ratio: %s; target %s %s: %s\n", interval(v.Ratio), word, report.Digits(v.Target.Value), result)
	if v.Test == latency {
		fmt.Fprintf(&b, "ratio of p99: %s\n", interval(v.P99Ratio))
	}
	return b.String()
}

func interval(iv stats.Interval) string {
	return fmt.Sprintf("median %s, with %.0f %% confidence %s to %s", report.Digits(iv.Mid), 100*iv.Confidence, report.Digits(iv.Low), report.Digits(iv.High))
}

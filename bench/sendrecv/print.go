package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/bench/stats"
)

// print writes the results for people, in the way of nccl-tests.
func (t *tool) print() error {
	var b strings.Builder
	fmt.Fprintf(&b, "# ranks %d pattern %s channels %d rounds %d check %v seed %d\n", t.ranks, t.pattern, t.channels, t.rounds, t.check, t.seed)
	b.WriteString("# ways from rank to rank:")
	for _, name := range slices.Sorted(maps.Keys(t.results.Links)) {
		fmt.Fprintf(&b, " %d over %s", t.results.Links[name], name)
	}
	b.WriteString("\n")
	told := map[string]bool{}
	for _, c := range t.results.Choices {
		if !told[c.Why] {
			told[c.Why] = true
			fmt.Fprintf(&b, "# rank 0 to %d: %s\n", c.Peer, c.Why)
		}
	}
	switch r := t.results; {
	case r.Idle != nil:
		fmt.Fprintf(&b, "# idle for %s s: %s s of processor time, %s %% of one core\n", report.Digits(r.Idle.Time), report.Digits(r.Idle.Used), report.Digits(r.Idle.core()))
	case r.Mesh != nil:
		fmt.Fprintf(&b, "# %d messages of %d to %d bytes, %d bytes in all, in %s s: %s GB/s\n", r.Mesh.Messages, r.Mesh.Smallest, r.Mesh.Largest, r.Mesh.Bytes,
			report.Digits(r.Mesh.Time), report.Digits(float64(r.Mesh.Bytes)/r.Mesh.Time/1e9))
	default:
		t.table(&b)
	}
	if t.check && t.results.Idle == nil {
		verdict := "OK"
		if t.results.Wrong > 0 {
			verdict = "FAILED"
		}
		fmt.Fprintf(&b, "# Wrong bytes: %d %s\n", t.results.Wrong, verdict)
	}
	_, err := t.out.Text.Write([]byte(b.String()))
	return err
}

func (t *tool) table(b *strings.Builder) {
	const line = "%12s  %12s  %8s  %10s  %8s  %8s  %8s\n"
	fmt.Fprintf(b, line, "#       size", "count", "type", "time", "algbw", "busbw", "#wrong")
	fmt.Fprintf(b, line, "#        (B)", "(elements)", "", "(us)", "(GB/s)", "(GB/s)", "")
	var bus []float64
	for _, r := range t.results.Rows {
		bad := "N/A"
		if t.check {
			bad = fmt.Sprint(r.Wrong)
		}
		fmt.Fprintf(b, line, fmt.Sprint(r.Size), fmt.Sprint(r.Size), "byte", report.Digits(1e6*r.time()), report.Digits(r.algbw()), report.Digits(r.busbw()), bad)
		bus = append(bus, r.busbw())
	}
	fmt.Fprintf(b, "# Median bus bandwidth: %s GB/s\n", report.Digits(stats.Median(bus)))
}

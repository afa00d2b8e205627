package main

import (
	"fmt"
	"strings"

	"github.com/purerdma/purerdma/bench/advise"
	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/bench/stats"
	"github.com/purerdma/purerdma/bench/tune"
	"github.com/purerdma/purerdma/qp"
)

const width = 120

// print writes the results for people.
func (t *tool) print() error {
	r := *t.result
	var b strings.Builder
	fmt.Fprintf(&b, "\nfrom %s\nto   %s\n\n", describeEnd(r.Sender), describeEnd(r.Receiver))
	b.WriteString(pathText(r))
	fmt.Fprintf(&b, "\n%d rounds, medians; latency is half of a round trip, over all rounds\n%s\n", r.Rounds, resultTable(r))
	for _, n := range r.Notes {
		fmt.Fprintln(&b, report.Wrap("note: "+n, width, "  "))
	}
	b.WriteString(adviceText(r, t.advice))
	_, err := t.out.Text.Write([]byte(b.String()))
	return err
}

func describeEnd(d tune.Description) string {
	s := fmt.Sprintf("%s/%d, %s, MTU %d, GID %s (index %d, %s", d.Device, d.Port, d.LinkLayer, d.MTU, d.GID, d.GIDIndex, d.GIDType)
	if d.NetDev != "" {
		s += ", " + d.NetDev
	}
	return s + ")"
}

// pathText is the way of each queue pair: what they have in common once, then the numbers in which they differ.
func pathText(r tune.Result) string {
	var b strings.Builder
	var last string
	for i, paths := range r.Paths {
		common := commonPath(paths)
		if common != last {
			fmt.Fprintln(&b, report.Wrap("paths "+common, width, "      "))
			last = common
		}
		var each []string
		for _, p := range paths {
			s := fmt.Sprintf("%#x>%#x", p.LocalQPN, p.RemoteQPN)
			if p.UDPSourcePort != 0 {
				s += fmt.Sprintf(" UDP %d", p.UDPSourcePort)
			}
			each = append(each, s)
		}
		label := fmt.Sprintf("  %-14s", settingName(r, i))
		lines := report.Wrap(strings.Join(each, ", "), width-len(label), "")
		b.WriteString(label + strings.ReplaceAll(lines, "\n", "\n"+strings.Repeat(" ", len(label))) + "\n")
	}
	return b.String()
}

func commonPath(paths []qp.Path) string {
	p := paths[0]
	s := fmt.Sprintf("%s/%d %v (GID index %d) > %v, MTU %v, traffic class %d, service level %d, flow label ", p.Device, p.Port, p.Local, p.GIDIndex,
		p.Remote, p.MTU, p.TrafficClass, p.ServiceLevel)
	if p.FlowLabel == 0 {
		return s + "by the device"
	}
	return s + fmt.Sprintf("%#x", p.FlowLabel)
}

func settingName(r tune.Result, i int) string {
	return advise.Candidate{QPs: r.Settings[i].QPs, Split: r.Settings[i].Split}.Name()
}

func resultTable(r tune.Result) string {
	t := report.Table{Header: []string{"size", "setting", "Gb/s", "MB/s", "low - high", "msg/s", "p50 µs", "p99 µs"}, Left: []int{1}, Groups: map[int]bool{}}
	for i, c := range r.Cases {
		if i > 0 && c.Size != r.Cases[i-1].Size {
			t.Groups[i] = true
		}
		iv := stats.MedianInterval(c.Bandwidth, advise.Confidence)
		t.Rows = append(t.Rows, []string{report.Bytes(c.Size), settingName(r, c.Setting), report.Digits(gbps(iv.Mid)), report.Digits(iv.Mid / 1e6),
			report.Digits(gbps(iv.Low)) + " - " + report.Digits(gbps(iv.High)), report.Digits(iv.Mid / float64(c.Size)),
			report.Digits(stats.Quantile(c.Half, 0.5) / 1e3), report.Digits(stats.Quantile(c.Half, 0.99) / 1e3)})
	}
	return t.String()
}

func adviceText(r tune.Result, a *advice) string {
	var b strings.Builder
	pick := r.Settings[a.overall.Pick]
	fmt.Fprintf(&b, "recommended: %s (%s)\n", settingName(r, a.overall.Pick), environment(pick))
	fmt.Fprintln(&b, "  "+report.Wrap("because over all sizes "+a.overall.Why, width-2, "  "))
	for _, s := range a.bySize {
		line := fmt.Sprintf("%s alone: %s; %s", report.Bytes(s.size), settingName(r, s.Pick), s.Why)
		fmt.Fprintln(&b, "  "+report.Wrap(line, width-2, "    "))
	}
	return b.String()
}

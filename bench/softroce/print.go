package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/purerdma/purerdma/bench/report"
)

// progress tells where a long run is.
func (t *tool) progress(round int, m mode) {
	if t.out.Terminal {
		fmt.Fprintf(t.out.Err, "\rround %d of %d: %-30s\r", round+1, t.rounds, m)
	}
}

// print writes the results for people.
func (t *tool) print() error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d processors, %s, %d rounds\n", t.processor, runtime.NumCPU(), runtime.Version(), t.rounds)
	table := report.Table{Header: []string{"softroce / reference", "unit", "softroce", "reference", "ratio", "between", "target", ""},
		Left: []int{0, 1, 7}, Groups: map[int]bool{}}
	for i, v := range t.verdicts {
		table.Groups[i] = i > 0 && t.verdicts[i-1].Group != v.Group
		target, result := "≤ ", "met"
		if v.AtLeast {
			target = "≥ "
		}
		if !v.met(v.Ratio.Mid) {
			result = "not met"
		}
		table.Rows = append(table.Rows, []string{v.What, v.Unit, report.Digits(v.OursMedian), report.Digits(v.RefMedian), report.Digits(v.Ratio.Mid),
			report.Digits(v.Ratio.Low) + "–" + report.Digits(v.Ratio.High), target + report.Digits(v.Target), result})
	}
	b.WriteString(table.String())
	if len(t.verdicts) > 0 {
		fmt.Fprintf(&b, "Ratios are medians over the rounds; with %.0f %% confidence the true one lies where said.\n", 100*t.verdicts[0].Ratio.Confidence)
	}
	_, err := t.out.Text.Write([]byte(b.String()))
	return err
}

// processor is what the system calls the processor.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	family := map[string]string{}
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok {
			if k = strings.TrimSpace(k); family[k] == "" {
				family[k] = strings.TrimSpace(v)
			}
		}
	}
	if family["model name"] == "" {
		return runtime.GOARCH
	}
	return fmt.Sprintf("%s (family %s, model %s)", family["model name"], family["cpu family"], family["model"])
}

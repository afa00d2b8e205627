//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/bench/pair"
	"github.com/purerdma/purerdma/bench/pin"
	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/internal/leaktest"
)

func TestMain(m *testing.M) {
	if pair.Second() {
		os.Exit(second())
	}
	leaktest.Main(m)
}

func TestParseUCX(t *testing.T) {
	const text = `
|     Test     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
                      100000      0.536    24.979    90.050        0.31       0.08       40034       20000
`
	for _, c := range []struct {
		row  row
		want float64
	}{{row{Kind: latency}, 0.536e-6}, {row{Kind: stream}, 50e-6}, {row{Kind: batched}, 50e-6}} {
		for _, s := range []string{text, strings.Replace(text, "                      100000", "Final:                100000", 1)} {
			if got, err := parseUCX(c.row, s); err != nil || math.Abs(got/c.want-1) > 1e-9 {
				t.Errorf("%s: %v, %v; want %v", c.row.Kind, got, err, c.want)
			}
		}
	}
	for _, s := range []string{"", "1 2 3 4 5 6 7", "a b c d e f g h", "1 0 0 0 0 0 0 0"} {
		if got, err := parseUCX(row{Kind: latency}, s); err == nil {
			t.Errorf("%q gives %v", s, got)
		}
	}
}

func TestParseOthers(t *testing.T) {
	const fabric = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n8       1k      =1k      15k         0.07s      0.22      36.33       0.03\n"
	if got, err := parseFabric(fabric); err != nil || math.Abs(got/36.33e-6-1) > 1e-9 {
		t.Errorf("libfabric: %v, %v", got, err)
	}
	if got, err := parsePair("a warning\nseconds a message: 0.000000250000\n"); err != nil || math.Abs(got/250e-9-1) > 1e-9 {
		t.Errorf("Open MPI: %v, %v", got, err)
	}
	for _, s := range []string{"", "seconds a message: none", "1 2 3 4 5 6 x 8"} {
		_, err1 := parseFabric(s)
		_, err2 := parsePair(s)
		if err1 == nil || err2 == nil {
			t.Errorf("%q has figures", s)
		}
	}
}

// Each rival that is installed runs.
func TestRivals(t *testing.T) {
	a, b, ok := pin.Processors()
	if !ok {
		t.Skip("two processors are needed: each end spins on its own")
	}
	dir := t.TempDir()
	for _, v := range rivals {
		t.Run(v.name, func(t *testing.T) {
			if missing := v.lacks(); len(missing) > 0 {
				t.Skip("not installed: ", missing)
			}
			for _, k := range []kind{latency, stream, batched} {
				r := row{Kind: k, Size: 4096, rivalCount: 200}
				if !v.covers(r) {
					continue
				}
				each, err := v.time(t.Context(), r, [2]int{a, b}, dir)
				if errors.Is(err, errLate) {
					t.Skip(err)
				}
				if err != nil || each <= 0 || each > 1 {
					t.Errorf("%s: %v s, %v", k, each, err)
				}
			}
		})
	}
}

// A sample counts only if the probes around it agree on the regime, and is told in its row's unit.
func TestSamples(t *testing.T) {
	for _, c := range []struct {
		before, after float64
		want          regime
	}{{100e-9, 120e-9, near}, {100e-9, 140e-9, none}, {180e-9, 200e-9, none}, {240e-9, 260e-9, far}, {85e-9, 95e-9, none}, {400e-9, 440e-9, far}, {42e-9, 44e-9, none}, {600e-9, 420e-9, none}} {
		if got := (sample{Probes: [2]float64{c.before, c.after}}).regime(); got != c.want {
			t.Errorf("%v and %v are %q, want %q", c.before, c.after, got, c.want)
		}
	}
	s := sample{Each: 150e-9, Probes: [2]float64{100e-9, 100e-9}, Copies: [2]float64{60e-9, 90e-9}}
	for u, want := range map[unit]float64{perC: 3, perM: 2, fraction: 0.5, rate: 1 / 0.15} {
		if got := s.in(row{Unit: u}); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%s: %v, want %v", u, got, want)
		}
	}
	d := duel{Before: s, Theirs: 300e-9, After: s}
	if d.better() != 2 || d.regime() != near {
		t.Errorf("%v, %q", d.better(), d.regime())
	}
	if d.After.Probes = [2]float64{400e-9, 400e-9}; d.regime() != none {
		t.Errorf("a line that got slower while a rival ran counts as %q", d.regime())
	}
	latencyRow, streamRow := row{Unit: perC, Near: 1.4, Far: 1.3}, row{Unit: rate, Near: 50, Far: 18}
	if !latencyRow.met(near, 1.4) || latencyRow.met(far, 1.4) || !streamRow.met(far, 20) || streamRow.met(near, 49) {
		t.Error("targets are misjudged")
	}
}

// The two processes, every row, and the document.
func TestRun(t *testing.T) {
	if _, _, ok := pin.Processors(); !ok {
		t.Skip("two processors are needed: each end spins on its own")
	}
	whole := rows
	defer func() { rows = whole }()
	rows = append([]row(nil), rows...)
	for i := range rows {
		rows[i].Count = max(rows[i].Count/100, 20) / batchSize * batchSize
		if rows[i].Count == 0 {
			rows[i].Count = 10
		}
	}
	var text, errs bytes.Buffer
	tl := &tool{}
	c := tl.cobra(cli.IO{Text: &text, Err: &errs})
	c.SetArgs([]string{"--rounds", "2", "--samples", "1", "--rivals="})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, &errs)
	}
	for _, r := range tl.results {
		if len(r.Samples) != 2 {
			t.Errorf("%s: %d samples", r.Row.name(), len(r.Samples))
		}
		for _, s := range r.Samples {
			if s.Each <= 0 || s.Probes[0] <= 0 || s.Copies[1] <= 0 {
				t.Errorf("%s: %+v", r.Row.name(), s)
			}
		}
	}
	doc, err := json.Marshal(tl.document(report.NewHead(schemaName, schemaVersion, report.OK, nil, time.Now())))
	if err != nil || !bytes.Contains(doc, []byte(`"size_bytes":1048576`)) {
		t.Errorf("%s, %v", doc, err)
	}
	if !strings.Contains(text.String(), "near") || !strings.Contains(text.String(), "far") {
		t.Errorf("printed %q", text.String())
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--rounds", "0"}, {"--samples", "0"}, {"--only", "nothing"}, {"more"}, {"--rivals", "nobody"}, {"--cells", "3"}, {"--cells", "-1"},
		{"--cells", "131072"}, {"--data", "0"}, {"--data", "4096"}} {
		c := (&tool{}).cobra(cli.IO{Text: &bytes.Buffer{}, Err: &bytes.Buffer{}})
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(args)
		var usage *cli.UsageError
		if err := c.ExecuteContext(t.Context()); !errors.As(err, &usage) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// The sizes of --cells and --data are those of the connection, which the second process makes.
func TestSizes(t *testing.T) {
	_, cpu, ok := pin.Processors()
	if !ok {
		t.Skip("two processors are needed: each end spins on its own")
	}
	for _, data := range []int{64 << 10, 1 << 20} {
		e, err := start(t.Context(), cpu, os.Stderr, 16, data)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.conn.MaxAcquire(); got != data/4 {
			t.Errorf("with %d bytes of data at most %d are acquired", data, got)
		}
		if err := e.close(); err != nil {
			t.Error(err)
		}
	}
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
)

// ran runs the command on a machine of the test and gives its document.
func ran(t *testing.T, d gpu.Driver, gpus int, args ...string) (doc document, text string, code int) {
	t.Helper()
	t.Setenv(gpusVariable, strconv.Itoa(gpus))
	dir := t.TempDir()
	stdout, stderr := create(t, filepath.Join(dir, "out")), create(t, filepath.Join(dir, "err"))
	args = append([]string{"--json", "--samples", "1", "--channels", "2", "--slot", "65536", "--bytes", "100000", "--rounds", "20", "--seed", "7"}, args...)
	code = (&tool{driver: d}).command().Main(args, stdout, stderr)
	b, err := os.ReadFile(stdout.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	b, err = os.ReadFile(stderr.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stdout.Close(), stderr.Close()); err != nil {
		t.Fatal(err)
	}
	return doc, string(b), code
}

func create(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// All numbers of ranks, ways and modes run on any number of GPUs, in one process and in several; what they move comes whole.
func TestAllPairs(t *testing.T) {
	for _, c := range []struct {
		gpus, scenarios, connections int
		args                         []string
		short                        bool
	}{
		{1, 2, 4, []string{"--most", "140000", "--ways", "CUMEM"}, true},
		{1, 4, 8, []string{"--most", "140000", "--ways", "DIRECT,IPC"}, false},
		{2, 2, 4, []string{"--most", "4096", "--ways", "DIRECT", "--ranks", "2"}, true},
		{3, 4, 16, []string{"--most", "4096", "--ways", "CUMEM"}, false},
	} {
		if testing.Short() && !c.short {
			continue
		}
		t.Run(fmt.Sprintf("%d GPUs, %v", c.gpus, c.args), func(t *testing.T) {
			d := machine(c.gpus, nil)
			doc, text, code := ran(t, d, c.gpus, c.args...)
			if code != 0 {
				t.Fatalf("exit %d\n%s", code, text)
			}
			t.Log(text)
			if len(doc.Checked) != c.scenarios || len(doc.Connections) != c.connections || len(doc.GPUs) != c.gpus {
				t.Errorf("%d scenarios, %d connections, %d GPUs", len(doc.Checked), len(doc.Connections), len(doc.GPUs))
			}
			for _, k := range doc.Checked {
				if k.Messages < 9*k.Ranks*(k.Ranks-1) {
					t.Errorf("%+v", k)
				}
			}
			for i, k := range doc.Connections {
				if w := doc.Connections[i].Reason; k.By != "P2P" || !slices.ContainsFunc(ways, func(v way) bool { return strings.HasPrefix(w, v.Name) }) {
					t.Errorf("%+v", k)
				}
			}
			seen := map[string]bool{}
			for _, r := range doc.Rows {
				if r.Value <= 0 || len(r.Samples) != 1 {
					t.Errorf("%+v", r)
				}
				seen[r.What] = true
			}
			for _, what := range []string{"stream by copies", "8 B, a launch each", "8 B by LL, half a round trip", "8 B by copies, half a round trip", "all pairs at once by copies"} {
				if !seen[what] {
					t.Errorf("no row %q: %v", what, seen)
				}
			}
			if left := d.Left(); len(left) > 0 {
				t.Errorf("left on the GPUs: %v", left)
			}
		})
	}
}

// Two processes that take turns on a GPU have no kernels that wait for each other.
func TestTurns(t *testing.T) {
	if testing.Short() {
		t.Skip("other tests of this command go the same ways")
	}
	d := machine(1, map[gpu.Attribute]int{gpu.SharedByProcesses: 0})
	doc, text, code := ran(t, d, 1, "--most", "4096", "--ways", "CUMEM")
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, text)
	}
	for _, r := range doc.Rows {
		if strings.Contains(r.What, "kernels") || strings.Contains(r.What, "launch") || strings.Contains(r.What, "LL") {
			t.Errorf("%+v", r)
		}
	}
}

// A GPU that fails ends the ranks of all processes, and says why.
func TestFailure(t *testing.T) {
	for _, way := range []string{"DIRECT", "CUMEM"} {
		d := machine(2, nil)
		d.Fail("Copy", 2, &gpu.Error{Call: "cuMemcpyAsync", Name: "CUDA_ERROR_LAUNCH_FAILED", Code: 719})
		doc, _, code := ran(t, d, 2, "--most", "4096", "--ways", way)
		if code != 1 || doc.Error == nil || !strings.Contains(*doc.Error, "cuMemcpyAsync") || !strings.Contains(*doc.Error, "2 ranks, "+way) {
			t.Errorf("exit %d, %+v", code, doc.Head)
		}
	}
}

// metered counts as NVML would, one byte more at each look.
type metered struct {
	*gputest.Driver
	looks uint64
}

func (m *metered) LinkTraffic(device int) (gpu.LinkTraffic, error) {
	m.looks++
	return gpu.LinkTraffic{Sent: m.looks, Received: 2 * m.looks}, nil
}

func TestCounters(t *testing.T) {
	if testing.Short() {
		t.Skip("other tests of this command go the same ways")
	}
	doc, text, code := ran(t, &metered{Driver: machine(2, nil)}, 2, "--most", "4096", "--ways", "DIRECT")
	if code != 0 || len(doc.Links) != 4 {
		t.Fatalf("exit %d, %+v\n%s", code, doc.Links, text)
	}
	for _, l := range doc.Links {
		if l.Sent != 2 || l.Received != 4 || l.Moved == 0 || l.Why != "" {
			t.Errorf("%+v", l)
		}
	}
	if doc, _, _ = ran(t, machine(1, nil), 1, "--most", "8", "--ways", "DIRECT"); doc.Links[0].Why == "" || doc.Links[0].Moved != 0 {
		t.Errorf("%+v", doc.Links)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--samples", "0"}, {"--ways", "NVLS"}, {"x"}, {"--channels", "33"}, {"--slot", "1"}} {
		if doc, _, code := ran(t, machine(1, nil), 1, args...); code != 2 || doc.Status != "usage" {
			t.Errorf("%v: exit %d, %s", args, code, doc.Status)
		}
	}
	if doc, _, code := ran(t, machine(1, nil), 1, "--most", "8", "--ways", "DIRECT", "--nccl", "/nowhere"); code != 1 || !strings.Contains(*doc.Error, "load NCCL") {
		t.Errorf("exit %d, %+v", code, doc.Head)
	}
}

func TestScenarios(t *testing.T) {
	for gpus, want := range map[int][]int{0: nil, 1: {2}, 2: {2}, 4: {2, 3, 4}} {
		var counts []int
		for _, s := range scenarios(gpus) {
			n := len(s.Devices)
			if !slices.Contains(counts, n) {
				counts = append(counts, n)
			}
			if s.shared() != (gpus == 1) || s.Each != (n == max(gpus, 2)) {
				t.Errorf("%d GPUs: %+v", gpus, s)
			}
		}
		if !reflect.DeepEqual(counts, want) {
			t.Errorf("%d GPUs: %v ranks, want %v", gpus, counts, want)
		}
	}
}

func TestSMI(t *testing.T) {
	const four = "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n" +
		"GPU0\t X \tNV18\tPIX\t0-47\t0\t\tN/A\nGPU1\tNV18\t X \tSYS\t48-95\t1\t\tN/A\nNIC0\tPIX\tSYS\t X \n\nLegend:\n\n  X    = Self\n  GPU0 = no row\n"
	want := [][]string{{"X", "NV18"}, {"NV18", "X"}}
	got := parseSMI(four)
	if !reflect.DeepEqual(got[:2], want) {
		t.Errorf("%v", got)
	}
	if d := difference(want, want); d != "" {
		t.Error(d)
	}
	for _, other := range [][][]string{nil, {{"X", "SYS"}, {"SYS", "X"}}, {{"X"}, {"X"}}} {
		if difference(want, other) == "" {
			t.Errorf("%v is the same", other)
		}
	}
}

func TestRow(t *testing.T) {
	r := &rank{plan: plan{Scenario: scenario{Way: ways[1], Read: true}}, n: 2}
	if w := r.row("0→1", "x", "GB/s", 8, []float64{2, 4, 3}, []float64{1, 4, 6}); w.Value != 3 || w.NCCL != 4 || w.Ratio != 1 || w.Mode != "read" || w.Way != "CUMEM" {
		t.Errorf("%+v", w)
	}
	if w := r.row("0→1", "x", "µs", 8, []float64{2}, []float64{4}); w.Ratio != 2 {
		t.Errorf("%+v", w)
	}
}

func TestVerdict(t *testing.T) {
	b := &tool{}
	if v := b.verdict(); v != "" {
		t.Errorf("without NCCL: %q", v)
	}
	add := func(pair, what string, bytes int, ratio report.Number) {
		b.doc.Rows = append(b.doc.Rows, row{Pair: pair, Ranks: 2, Way: "CUMEM", What: what, Bytes: bytes, NCCL: 1, Ratio: ratio})
	}
	add("0→1", "stream by kernels", 64<<20, 0.5)
	add("0→1", "stream by copies", 64<<20, 1.1)
	add("1→0", "stream by kernels", 64<<20, 0.97)
	add("1→0", "stream by copies", 64<<20, 0.96)
	add("1→0", "stream by copies", 1<<20, 0.2)
	if v, want := b.verdict(), "at least 0.97 (2 ranks, CUMEM, 1→0, 64 MiB)"; !strings.Contains(v, want) {
		t.Errorf("%q, want %q", v, want)
	}
}

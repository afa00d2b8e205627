package mlx5model

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// scriptTraces names where the traces of our driver go, by the name of the scene.
const scriptTraces = "PURERDMA_SCRIPT_TRACES"

// TestTraceAsLibmlx5 compares what libmlx5 and our driver do for the same calls of verbs:
// the ioctls and their attributes, the entries of queues, the doorbell records and each
// store into a register, in order. Stores are caught as they are made: those of libmlx5 by
// the preload library, those of our driver by a package mmio that tells of them, which sees
// the fences too.
func TestTraceAsLibmlx5(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the driver anew")
	}
	file := filepath.Join(t.TempDir(), "traces")
	if out, err := runTraced(t, nil, file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var ours map[string][]string
	if err := json.Unmarshal(b, &ours); err != nil {
		t.Fatal(err)
	}
	links := map[bool]*lab{false: newLab(t, false), true: newLab(t, true)}
	if found, _ := filepath.Glob("/usr/lib/*/libibverbs.so.1.14.44.*"); len(found) == 0 {
		t.Skip("the table of differences is that of rdma-core 44")
	}
	program := buildC(t, "testdata/script")
	t.Setenv("MLX5MODEL_TRAP", "1")
	for name, s := range scenes {
		t.Run(name, func(t *testing.T) {
			if s.cqe != 0 {
				t.Setenv("MLX5_CQE_SIZE", strconv.Itoa(s.cqe))
			}
			l := links[s.ethernet]
			theirs := l.m.recorded(func() { l.run(t, program, name) })
			compare(t, name, theirs, ours[name])
		})
	}
}

// buildC compiles the C program of a directory against libibverbs.
func buildC(t *testing.T, dir string) string {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(dir, "*.c"))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-Wall", "-Werror", "-O1", "-o", program}, append(sources, "-libverbs")...)
	if out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// compare holds the differences of two traces of a scene against those that are meant.
func compare(t *testing.T, name string, theirs, ours []string) {
	t.Helper()
	have := differences(theirs, ours)
	want := maps.Clone(opening)
	for _, meant := range scenes[name].meant {
		for s, n := range meant {
			want[s] += n
		}
	}
	for s, n := range have {
		if want[s] != n {
			t.Errorf("%d times, not %d: %s", n, want[s], s)
		}
	}
	for s, n := range want {
		if have[s] == 0 {
			t.Errorf("no longer, not %d times: %s", n, s)
		}
	}
	if t.Failed() {
		t.Logf("libmlx5:\n%s\n\nours:\n%s", strings.Join(theirs, "\n"), strings.Join(ours, "\n"))
	}
}

// recorded is what programs do while f runs.
func (m *Model) recorded(f func()) (lines []string) {
	record := func(to func(string)) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.config.Trace = to
	}
	record(func(s string) { lines = append(lines, s) })
	f()
	record(nil)
	return lines
}

// differences are the lines that are not of the longest common subsequence.
func differences(a, b []string) map[string]int {
	common := make([][]int, len(a)+1) // of what is behind two places
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	lines := map[string]int{}
	for len(a) > 0 || len(b) > 0 {
		i, j := len(common)-1-len(a), len(common[0])-1-len(b)
		switch {
		case len(a) > 0 && len(b) > 0 && a[0] == b[0]:
			a, b = a[1:], b[1:]
		case len(b) == 0 || len(a) > 0 && common[i+1][j] >= common[i][j+1]:
			lines["- "+a[0]]++
			a = a[1:]
		default:
			lines["+ "+b[0]]++
			b = b[1:]
		}
	}
	return lines
}

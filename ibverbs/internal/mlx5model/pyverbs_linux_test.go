package mlx5model

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Where Debian's python3-pyverbs has rdma-core's own tests, the interpreter that it is for, and what we
// know of them.
const (
	pyverbsTests  = "/usr/share/doc/rdma-core/tests"
	pyverbsPython = "/usr/bin/python3"
	pyverbsTable  = "testdata/pyverbs.txt"
)

// Which modules of tests are run: all but those that are about another device or library, those of
// every day, and the short way. PURERDMA_PYVERBS is all or update, which writes the table anew.
var (
	pyverbsNever = regexp.MustCompile(`efa|cuda|rdmacm|vfio`)
	pyverbsDaily = strings.Fields("test_addr test_atomic test_cq_events test_mr test_parent_domain test_pd test_qp test_qpex test_shared_pd")
	pyverbsShort = strings.Fields("test_atomic test_mr test_shared_pd")
)

// pyverbsRow is a test of rdma-core's with its results, by link layer, and why they are not both a pass.
type pyverbsRow struct {
	status [2]string
	reason string
}

var pyverbsLinks = [2]string{"InfiniBand", "Ethernet"}

// TestPyverbs runs the tests that rdma-core has of itself, in Python, on libmlx5 and the model. A test that the
// table has as passed must pass, unless the machine lacks something for it.
func TestPyverbs(t *testing.T) {
	how := os.Getenv("PURERDMA_PYVERBS")
	folder := pyverbsFolder(t)
	modules, together := pyverbsDaily, len(pyverbsDaily)
	switch {
	case how == "all" || how == "update":
		modules, together = pyverbsModules(t, folder), 1
	case how != "":
		t.Fatalf("PURERDMA_PYVERBS is all or update, not %q", how)
	case testing.Short():
		modules = pyverbsShort
	}
	b, err := os.ReadFile(pyverbsTable)
	if err != nil {
		t.Fatal(err)
	}
	table := parsePyverbs(string(b))
	now := map[string]pyverbsRow{}
	for i, link := range pyverbsLinks {
		if i > 0 && testing.Short() {
			break
		}
		t.Run(link, func(t *testing.T) {
			for name, r := range newLab(t, i == 1).pyverbs(t, folder, together, modules) {
				row := now[name]
				row.status[i] = r.status
				switch {
				case r.reason == row.reason, r.reason == "":
				case row.reason == "":
					row.reason = r.reason
				default:
					row.reason += "; " + link + ": " + r.reason
				}
				now[name] = row
				if how != "update" {
					table[name].holds(t, i, name, r)
				}
			}
			for name, row := range table {
				module, _, _ := strings.Cut(name, ".")
				if how != "update" && row.status[i] == "pass" && slices.Contains(modules, module) && now[name].status[i] == "" {
					t.Errorf("%s has not run", name)
				}
			}
		})
	}
	if how == "update" && !t.Failed() {
		if err := os.WriteFile(pyverbsTable, []byte(formatPyverbs(now, table)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// pyverbsResult is how a test went, and in its own words why, if it did not pass.
type pyverbsResult struct{ status, reason string }

// lacking is the reasons of tests that the machine has not what they need for.
var lacking = regexp.MustCompile(`(?i)\broot\b|huge ?page|permission|not permitted|/dev/dri|renderD`)

// holds checks a result against what the table has.
func (row pyverbsRow) holds(t *testing.T, link int, name string, r pyverbsResult) {
	t.Helper()
	switch want := row.status[link]; {
	case want == r.status:
	case want != "pass", r.status == "skip" && lacking.MatchString(r.reason):
		t.Logf("%s: %s, %q in the table: %s", name, r.status, want, r.reason)
	default:
		t.Errorf("%s: %s: %s", name, r.status, r.reason)
	}
}

// pyverbs runs modules of tests, so many in a program, and is how each of their tests went.
func (l *lab) pyverbs(t *testing.T, folder string, together int, modules []string) map[string]pyverbsResult {
	t.Helper()
	results := map[string]pyverbsResult{}
	for some := range slices.Chunk(modules, together) {
		maps.Copy(results, l.pyverbsModules(t, folder, some))
	}
	return results
}

func (l *lab) pyverbsModules(t *testing.T, folder string, modules []string) map[string]pyverbsResult {
	t.Helper()
	file := filepath.Join(t.TempDir(), "results")
	e := l.begin(t, pyverbsPython, append([]string{"testdata/pyverbs/run.py", file, folder, "mlx5_0"}, modules...)...)
	failed := <-e.exited
	b, _ := os.ReadFile(file)
	results := map[string]pyverbsResult{}
	last := ""
	for line := range strings.Lines(string(b)) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3); len(f) == 3 {
			last = f[0]
			if results[f[0]].status != "fail" {
				results[f[0]] = pyverbsResult{f[1], f[2]}
			}
		}
	}
	if failed != nil {
		t.Errorf("%v in %s\n%s", failed, last, &e.said)
	}
	return results
}

// pyverbsFolder is a folder with the tests, unpacked. The test is skipped where they are not installed.
func pyverbsFolder(t *testing.T) string {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), pyverbsPython, "-c", "import pyverbs.device").CombinedOutput(); err != nil {
		t.Skipf("needs Debian's python3-pyverbs: %v %s", err, out)
	}
	files, _ := filepath.Glob(filepath.Join(pyverbsTests, "*.py*"))
	if len(files) == 0 {
		t.Skipf("needs the documentation of Debian's python3-pyverbs, which has the tests: %s has none", pyverbsTests)
	}
	if found, _ := filepath.Glob("/usr/lib/*/libibverbs.so.1.14.44.*"); len(found) == 0 {
		t.Skip("the table of results is that of rdma-core 44")
	}
	dir := t.TempDir()
	for _, f := range files {
		if err := unpack(f, dir); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// unpack copies a file, and unpacks it if it ends with .gz.
func unpack(file, dir string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	name, packed := strings.CutSuffix(filepath.Base(file), ".gz")
	if packed {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if b, err = io.ReadAll(z); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return os.WriteFile(filepath.Join(dir, name), b, 0o600)
}

func pyverbsModules(t *testing.T, folder string) (modules []string) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(folder, "test_*.py"))
	for _, f := range files {
		if m := strings.TrimSuffix(filepath.Base(f), ".py"); !pyverbsNever.MatchString(m) {
			modules = append(modules, m)
		}
	}
	return modules
}

// parsePyverbs reads a table. Lines with # are comments.
func parsePyverbs(text string) map[string]pyverbsRow {
	table := map[string]pyverbsRow{}
	for line := range strings.Lines(text) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 4); len(f) == 4 && !strings.HasPrefix(line, "#") {
			table[f[0]] = pyverbsRow{[2]string{f[1], f[2]}, f[3]}
		}
	}
	return table
}

// formatPyverbs is a table. A reason stays as it was worded as long as the results do.
func formatPyverbs(now, before map[string]pyverbsRow) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(now)) {
		row := now[name]
		if row.status == before[name].status {
			row.reason = before[name].reason
		}
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", name, row.status[0], row.status[1], row.reason)
	}
	return b.String()
}

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/cmd/purerdma/internal/doctor"
	"github.com/purerdma/purerdma/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// run runs the command and gives what it wrote.
func run(t *testing.T, args ...string) (code int, out, problems string) {
	t.Helper()
	dir := t.TempDir()
	stdout, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	stderr, err := os.Create(filepath.Join(dir, "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	code = (&tool{}).command().Main(args, stdout, stderr)
	a, _ := os.ReadFile(stdout.Name())
	b, _ := os.ReadFile(stderr.Name())
	return code, string(a), string(b)
}

// Every way to end gives one document.
func TestJSON(t *testing.T) {
	for _, c := range []struct {
		args   string
		codes  []int
		status []string
		key    string
	}{
		{"devices", []int{0}, []string{"ok"}, "devices"},
		{"devices -v", []int{0}, []string{"ok"}, "devices"},
		{"devices nobody", []int{1}, []string{"failed"}, "devices"},
		{"topo", []int{0}, []string{"ok"}, "topology"},
		{"doctor", []int{0, 1}, []string{"ok", "failed"}, "findings"},
		{"monitor --for 10ms soft0", []int{0}, []string{"ok"}, "events"},
		{"monitor nobody", []int{1}, []string{"failed"}, "events"},
		{"monitor --for -1s", []int{2}, []string{"usage"}, ""},
		{"monitor --interval -1s", []int{2}, []string{"usage"}, ""},
		{"monitor --for soon", []int{2}, []string{"usage"}, ""},
		{"nonsense", []int{2}, []string{"usage"}, ""},
		{"variables", []int{0}, []string{"ok"}, "variables"},
		{"topo nonsense", []int{2}, []string{"usage"}, ""},
		{"--nonsense", []int{2}, []string{"usage"}, ""},
		{"--help", []int{0}, []string{"help"}, ""},
		{"doctor --help", []int{0}, []string{"help"}, ""},
		{"", []int{0}, []string{"help"}, ""},
	} {
		code, out, problems := run(t, append(strings.Fields(c.args), "--json")...)
		var doc map[string]any
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			t.Errorf("%q: %v\n%s\n%s", c.args, err, out, problems)
			continue
		}
		ok := false
		for i := range c.codes {
			ok = ok || code == c.codes[i] && doc["status"] == c.status[i]
		}
		if !ok || doc["schema"] != "purerdma" {
			t.Errorf("%q: exit %d, status %v, schema %v, error %v", c.args, code, doc["status"], doc["schema"], doc["error"])
		}
		if _, has := doc[c.key]; c.key != "" && !has {
			t.Errorf("%q: no %s in %s", c.args, c.key, out)
		}
	}
}

// A newcomer's machine: the command fails, and each problem comes with what to do.
func TestDoctorWithoutDevices(t *testing.T) {
	if entries, _ := os.ReadDir("/sys/class/infiniband"); len(entries) > 0 {
		t.Skip("this machine has RDMA devices")
	}
	code, out, problems := run(t, "doctor")
	if code != 1 || !strings.Contains(problems, "problems") {
		t.Errorf("exit %d: %s", code, problems)
	}
	for _, step := range []string{"modprobe ib_uverbs", "rdma link add rxe0 type rxe netdev eth0", "->"} {
		if !strings.Contains(out, step) {
			t.Errorf("no word of %q in\n%s", step, out)
		}
	}
}

func TestText(t *testing.T) {
	for args, want := range map[string][]string{
		"devices":          {"soft0", "softroce", "ACTIVE"},
		"devices -v soft0": {"hca_id:\tsoft0", "max_qp:", "RoCE v2", "INDEX"},
		"doctor":           {"devices", "memlock", "MTU"},
		"completion bash":  {"purerdma"},
		"variables":        {"NCCL_SHM_DISABLE", "NCCL_IB_TIMEOUT", "no host memory is shared"},
		"devices --help":   {"purerdma devices -v mlx5_0", "--json"},
		"--version":        {"purerdma version"},
	} {
		_, out, problems := run(t, strings.Fields(args)...)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s does not show %q:\n%s%s", args, w, out, problems)
			}
		}
	}
}

// A shell offers names of devices where names are taken, each once, and never files.
func TestCompletion(t *testing.T) {
	for args, offers := range map[string]bool{"devices": true, "monitor": true, "devices soft0": false, "topo": false, "doctor": false, "variables": false} {
		_, out, problems := run(t, append(append([]string{"__complete"}, strings.Fields(args)...), "")...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		names, last := lines[:len(lines)-1], lines[len(lines)-1]
		if last != ":4" || slices.Contains(names, "soft0") != offers {
			t.Errorf("%s: %q, %s", args, lines, problems)
		}
	}
}

// Every level has its mark, in colour on terminals alone.
func TestFindings(t *testing.T) {
	for level, mark := range map[doctor.Level]string{doctor.Fine: "ok", doctor.Hint: "hint", doctor.Problem: "PROBLEM", doctor.Unknown: "?"} {
		found := []doctor.Finding{{Check: "memlock", Level: level, On: "eth0", Text: "too little", Remedy: "more"}}
		plain, coloured := findings(found, false), findings(found, true)
		if want := fmt.Sprintf("%-7s  memlock        eth0: too little\n%24s -> more\n", mark, ""); plain != want {
			t.Errorf("%s: %q", level, plain)
		}
		if !strings.HasPrefix(coloured, "\x1b[") || !strings.Contains(coloured, "m"+mark) || strings.Count(coloured, "\x1b") != 2 {
			t.Errorf("%s: %q", level, coloured)
		}
	}
}

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every way to end gives one document: on a machine without a GPU the benchmark fails and says why.
func TestJSON(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status map[string]int
	}{
		{[]string{"--json", "--samples", "1"}, map[string]int{"ok": 0, "failed": 1}},
		{[]string{"--json", "--samples", "0"}, map[string]int{"usage": 2}},
		{[]string{"--json", "x"}, map[string]int{"usage": 2}},
		{[]string{"--json", "--help"}, map[string]int{"help": 0}},
	} {
		stdout, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		code := (&tool{}).command().Main(c.args, stdout, os.Stderr)
		b, err := os.ReadFile(stdout.Name())
		if err != nil {
			t.Fatal(err)
		}
		_ = stdout.Close()
		var doc struct {
			Status string
			Error  *string
			Rows   []row
		}
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Errorf("%v: %v\n%s", c.args, err, b)
		}
		if want, ok := c.status[doc.Status]; !ok || want != code || (code != 0) != (doc.Error != nil) || doc.Rows == nil {
			t.Errorf("%v: exit %d, %+v", c.args, code, doc)
		}
	}
}

// The script says of each test program whether it has passed, shows the log of one that has not, and fails then.
func TestRunScript(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"good.test": "echo '--- PASS: TestHWOne'; echo '--- SKIP: TestHWTwo'", "bad.test": "echo 'x_hw_test.go:1: no'; exit 1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		tests []string
		want  string
		fails bool
	}{
		{[]string{"good.test"}, "passed  good.test            without MPS: 1 tests, 1 skipped\n", false},
		{[]string{"bad.test", "good.test"}, "FAILED  bad.test             without MPS\nx_hw_test.go:1: no\npassed  good.test ", true},
	} {
		var paths []string
		for _, name := range c.tests {
			paths = append(paths, filepath.Join(dir, name))
		}
		cmd := exec.Command("./run")
		cmd.Env = []string{"PATH=/usr/bin:/bin", "PURERDMA_GPUBENCH=none", "PURERDMA_GPUTESTS=" + strings.Join(paths, " ")}
		out, err := cmd.CombinedOutput()
		if !strings.HasPrefix(string(out), c.want) || (err != nil) != c.fails {
			t.Errorf("%v: %v\n%s", c.tests, err, out)
		}
	}
}

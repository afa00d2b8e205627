package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/purerdma/purerdma/bench/pair"
)

// TestMain is the second process too.
func TestMain(m *testing.M) {
	if pair.Second() {
		os.Exit(second())
	}
	os.Exit(m.Run())
}

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

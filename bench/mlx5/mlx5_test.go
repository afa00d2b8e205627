package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestFigures has figures of two rounds become a table and a document.
func TestFigures(t *testing.T) {
	var text strings.Builder
	m := &tool{out: cli.IO{Text: &text}, rounds: 2, slice: time.Second, figures: map[row]map[side][]float64{
		{post, 16}: {libmlx5: {100, 200}, ours: {110, 240}, byCgo: {150, 300}},
		{poll, 16}: {libmlx5: {100, 100}, ours: {130, 130}},
	}}
	if err := m.print(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1.15", "1.10–1.20", "1.50", "met", "at most 1.20: missed"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	b, err := json.Marshal(m.document(report.Head{}))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Rows []struct {
			Call   string
			List   int
			Ours   struct{ Median_ns float64 } `json:"purerdma"`
			Met    bool                        `json:"target_met"`
			Cgo    *struct{}
			Target float64 `json:"target_ratio"`
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Rows) != 2 || doc.Rows[0].Call != post || doc.Rows[0].List != 16 || doc.Rows[0].Ours.Median_ns != 175 || !doc.Rows[0].Met || doc.Rows[0].Cgo == nil ||
		doc.Rows[1].Met || doc.Rows[1].Cgo != nil || doc.Rows[1].Target != target {
		t.Errorf("%s", b)
	}
}

// TestUsage has flags that cannot be meant.
func TestUsage(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, args := range []string{"--rounds 0", "--slice 1us", "--nonsense"} {
		if code := (&tool{}).command().Main(strings.Fields(args), null, null); code != 2 {
			t.Errorf("%q ends with %d", args, code)
		}
	}
}

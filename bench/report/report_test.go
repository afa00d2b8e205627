package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestNumber(t *testing.T) {
	for _, test := range []struct {
		n    float64
		want string
	}{
		{math.NaN(), "null"}, {math.Inf(1), "null"}, {math.Inf(-1), "null"}, {0, "0"}, {1.0 / 3, "0.333333"},
		{123456789, "123457000"}, {-2.5, "-2.5"}, {math.MaxFloat64, "1.79769e+308"},
	} {
		got, err := json.Marshal(Number(test.n))
		if err != nil || string(got) != test.want {
			t.Errorf("%v is %s, %v; want %s", test.n, got, err, test.want)
		}
	}
	if got, _ := json.Marshal(Numbers(nil)); string(got) != "[]" {
		t.Errorf("no numbers are %s", got)
	}
}

func TestDocument(t *testing.T) {
	for _, test := range []struct {
		status Status
		err    error
		code   int
	}{{OK, nil, 0}, {Help, nil, 0}, {Failed, errors.New("\"no\ndevice\""), 1}, {Interrupted, errors.New("SIGINT"), 1}, {Usage, errors.New("bad flag"), 2}} {
		var b bytes.Buffer
		if err := Write(&b, struct {
			Head
			Extra Number `json:"extra_s"`
		}{NewHead("test", 3, test.status, test.err, time.Now()), 2}); err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
			t.Fatalf("%v\n%s", err, b.Bytes())
		}
		if doc["schema"] != "test" || doc["schema_version"] != 3.0 || doc["exit_code"] != float64(test.code) || doc["extra_s"] != 2.0 {
			t.Errorf("%v", doc)
		}
		if (doc["error"] == nil) != (test.err == nil) || test.err != nil && doc["error"] != test.err.Error() {
			t.Errorf("error is %v", doc["error"])
		}
	}
}

func TestText(t *testing.T) {
	for n, want := range map[int]string{1: "1 B", 1000: "1000 B", 1024: "1 KiB", 1536: "1536 B", 64 << 10: "64 KiB", 1 << 20: "1 MiB", 3 << 30: "3 GiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %s, want %s", n, got, want)
		}
	}
	for f, want := range map[float64]string{0.01234: "0.0123", 1.234: "1.23", 12.34: "12.3", 1234.5: "1234", 0: "0", -0.5: "-0.500"} {
		if got := Digits(f); got != want {
			t.Errorf("Digits(%v) = %s, want %s", f, got, want)
		}
	}
	if got := Digits(math.NaN()); got != "-" {
		t.Errorf("Digits(NaN) = %s", got)
	}
	if got := Wrap("one two three four", 9, "  "); got != "one two\n  three\n  four" {
		t.Errorf("%q", got)
	}
	table := Table{Header: []string{"name", "GB/s"}, Rows: [][]string{{"a", "1"}, {"bb", "12"}}, Left: []int{0}, Groups: map[int]bool{1: true}}.String()
	if !strings.Contains(table, "│ a    │    1 │") || strings.Count(table, "├") != 2 {
		t.Errorf("\n%s", table)
	}
}

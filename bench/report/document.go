// Package report is how benchmarks tell their results: one JSON document for programs, tables for people.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
)

// Status says how a run ended.
type Status string

// The statuses, and the exit codes that go with them.
const (
	OK          Status = "ok"          // 0
	Help        Status = "help"        // 0, only help was asked for
	Failed      Status = "failed"      // 1
	Interrupted Status = "interrupted" // 1
	Usage       Status = "usage"       // 2
)

// ExitCode is what the process ends with.
func (s Status) ExitCode() int {
	switch s {
	case OK, Help:
		return 0
	case Usage:
		return 2
	}
	return 1
}

// Head is the start of every document. Keys of numbers end in their unit. Within a schema version keys are only ever added.
type Head struct {
	Schema        string  `json:"schema"`
	SchemaVersion int     `json:"schema_version"`
	Status        Status  `json:"status"`
	ExitCode      int     `json:"exit_code"`
	Error         *string `json:"error"`
	Build         string  `json:"build"`
	Machine       Machine `json:"machine"`
	Started       string  `json:"started"` // RFC 3339
	Elapsed       Number  `json:"elapsed_s"`
}

// Machine is where this end ran.
type Machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
}

// NewHead fills in a head. err is why the status is not OK, and may be nil.
func NewHead(schema string, version int, s Status, err error, started time.Time) Head {
	h := Head{Schema: schema, SchemaVersion: version, Status: s, ExitCode: s.ExitCode(), Build: Build(),
		Machine: Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()},
		Started: started.UTC().Format(time.RFC3339), Elapsed: Number(time.Since(started).Seconds())}
	if err != nil {
		text := err.Error()
		h.Error = &text
	}
	return h
}

// Build names the module's version and revision as far as the binary knows them.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	b := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b += " " + s.Value[:min(len(s.Value), 12)]
		}
	}
	if b == "" {
		return "unknown"
	}
	return b
}

// Number is a measured value. JSON knows finite numbers only, so what is not finite is null; six digits are more than any
// measurement here has.
type Number float64

// MarshalJSON implements [json.Marshaler].
func (n Number) MarshalJSON() ([]byte, error) {
	f := float64(n)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	short, err := strconv.ParseFloat(strconv.FormatFloat(f, 'g', 6, 64), 64)
	if err != nil {
		return nil, err
	}
	return json.Marshal(short)
}

// Numbers is a list of measured values, never null.
func Numbers(fs []float64) []Number {
	ns := make([]Number, len(fs))
	for i, f := range fs {
		ns[i] = Number(f)
	}
	return ns
}

// Write writes a document, indented, with one call of w.Write.
func Write(w io.Writer, doc any) error {
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("JSON document: %w", err)
	}
	if _, err := w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("JSON document: %w", err)
	}
	return nil
}

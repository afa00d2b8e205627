package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/purerdma/purerdma/bench/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tool runs f as a command.
func tool(f func(ctx context.Context) error) Command {
	return Command{
		Schema: "test", Version: 2,
		Make: func(s IO) *cobra.Command {
			c := &cobra.Command{Use: "tool", RunE: func(cmd *cobra.Command, args []string) error {
				if len(args) > 0 {
					return Usagef("%q is not an argument", args[0])
				}
				fmt.Fprintln(s.Text, "for people")
				return f(cmd.Context())
			}}
			c.Flags().Int("count", 1, "how many")
			JSONFlag(c)
			return c
		},
		Document: func(h report.Head) any {
			return struct {
				report.Head
				Body string `json:"body"`
			}{h, "there"}
		},
	}
}

func TestEveryWayOut(t *testing.T) {
	fine := func(context.Context) error { return nil }
	for _, test := range []struct {
		name   string
		args   []string
		f      func(context.Context) error
		code   int
		status report.Status
		err    string
		body   bool
	}{
		{"success", []string{"--json"}, fine, 0, report.OK, "", true},
		{"failure", []string{"--json"}, func(context.Context) error { return errors.New("no device") }, 1, report.Failed, "no device", true},
		{"panic", []string{"--json"}, func(context.Context) error { panic("oh") }, 1, report.Failed, "panic: oh", false},
		{"unknown flag", []string{"--json", "--colour"}, fine, 2, report.Usage, "unknown flag: --colour", true},
		{"unknown flag first", []string{"--colour", "--json"}, fine, 2, report.Usage, "unknown flag: --colour", true},
		{"unknown short flag", []string{"-y", "--json"}, fine, 2, report.Usage, "'y'", true},
		{"no value", []string{"--json", "--count"}, fine, 2, report.Usage, "--count", true},
		{"bad value", []string{"--count=x", "--json"}, fine, 2, report.Usage, `"x"`, true},
		{"bad value of --json", []string{"--json=x"}, fine, 2, report.Usage, "--json", true},
		{"surplus argument", []string{"--json", "there"}, fine, 2, report.Usage, "there", true},
		{"help", []string{"--help", "--json"}, fine, 0, report.Help, "", true},
		{"help is no flag's excuse", []string{"--json", "-h", "--colour"}, fine, 2, report.Usage, "--colour", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out, err bytes.Buffer
			code := tool(test.f).run(test.args, &out, &err, terminals{}, nil)
			var doc struct {
				report.Head
				Body string
			}
			if e := json.Unmarshal(out.Bytes(), &doc); e != nil {
				t.Fatalf("%v\n%s", e, out.Bytes())
			}
			if code != test.code || doc.ExitCode != test.code || doc.Status != test.status {
				t.Errorf("exit code %d, document %d %s; want %d %s", code, doc.ExitCode, doc.Status, test.code, test.status)
			}
			if (doc.Error == nil) != (test.err == "") || doc.Error != nil && !strings.Contains(*doc.Error, test.err) {
				t.Errorf("error %v, want %q", doc.Error, test.err)
			}
			if test.err != "" && !strings.Contains(err.String(), test.err) {
				t.Errorf("standard error: %s", err.String())
			}
			if (doc.Body == "there") != test.body {
				t.Errorf("body is %q", doc.Body)
			}
		})
	}
}

func TestWithoutJSON(t *testing.T) {
	var out, err bytes.Buffer
	if code := tool(func(context.Context) error { return errors.New("no device") }).run(nil, &out, &err, terminals{}, nil); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if out.String() != "for people\n" || err.String() != "error: no device\n" {
		t.Errorf("%q, %q", out.String(), err.String())
	}
	for _, args := range [][]string{{"--json=false"}, {"--json", "--json=false"}} {
		out.Reset()
		if code := tool(func(context.Context) error { return nil }).run(args, &out, &err, terminals{}, nil); code != 0 || out.String() != "for people\n" {
			t.Errorf("%v: %d %q", args, code, out.String())
		}
	}
}

// Colours are for terminals, and for people who want them.
func TestColours(t *testing.T) {
	for _, c := range []struct {
		args    []string
		on      terminals
		noColor string
		want    bool
	}{
		{nil, terminals{stdout: true}, "", true},
		{nil, terminals{stdout: true}, "1", false},
		{nil, terminals{stderr: true}, "", false},
		{[]string{"--json"}, terminals{stderr: true}, "", true},
		{[]string{"--json"}, terminals{stdout: true}, "", false},
		{nil, terminals{}, "", false},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		command := tool(func(context.Context) error { return nil })
		made, got := command.Make, false
		command.Make = func(s IO) *cobra.Command { got = s.Colours; return made(s) }
		if code := command.run(c.args, io.Discard, io.Discard, c.on, nil); code != 0 || got != c.want {
			t.Errorf("%+v: exit code %d, colours %v", c, code, got)
		}
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Results that could not be written are no success, and what failed before them is still what is told.
func TestResultsThatCannotBeWritten(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		err  error
		want string
	}{
		"text":     {nil, nil, "error: standard output: no space left on device\n"},
		"document": {[]string{"--json"}, nil, "error: JSON document: no space left on device\n"},
		"failure":  {nil, errors.New("no device"), "error: no device\n"},
		"help":     {[]string{"--help"}, nil, "error: standard output: no space left on device\n"},
	} {
		var out bytes.Buffer
		code := tool(func(context.Context) error { return c.err }).run(c.args, full{}, &out, terminals{}, nil)
		if code != 1 || !strings.HasSuffix(out.String(), c.want) {
			t.Errorf("%s: exit code %d: %s", name, code, out.String())
		}
	}
}

func interrupted(t *testing.T, f func(context.Context) error, signals ...os.Signal) (int, report.Head) {
	t.Helper()
	stop := make(chan os.Signal, len(signals))
	for _, s := range signals {
		stop <- s
	}
	var out, err bytes.Buffer
	code := tool(f).run([]string{"--json"}, &out, &err, terminals{}, stop)
	var doc report.Head
	if e := json.Unmarshal(out.Bytes(), &doc); e != nil {
		t.Fatalf("%v\n%s", e, out.Bytes())
	}
	return code, doc
}

func TestInterrupt(t *testing.T) {
	for name, f := range map[string]func(context.Context) error{
		"tells":       func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
		"tells else":  func(ctx context.Context) error { <-ctx.Done(); return errors.New("connection lost") },
		"ends anyway": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		if code, doc := interrupted(t, f, syscall.SIGTERM); code != 1 || doc.Status != report.Interrupted || !strings.Contains(*doc.Error, "terminated") {
			t.Errorf("%s: %d %+v", name, code, doc)
		}
	}
}

func TestInterruptOfWhatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stuck := func(context.Context) error { <-release; return nil }
		if code, doc := interrupted(t, stuck, os.Interrupt); code != 1 || doc.Status != report.Interrupted || !strings.Contains(*doc.Error, "did not end within 5s") {
			t.Errorf("%d %+v", code, doc)
		}
		if code, doc := interrupted(t, stuck, os.Interrupt, os.Interrupt); code != 1 || doc.Status != report.Interrupted || strings.Contains(*doc.Error, "within") {
			t.Errorf("%d %+v", code, doc)
		}
		close(release)
	})
}

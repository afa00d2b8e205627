// Package cli is what the benchmark commands have in common: how they end, and where their words go.
//
// Results go to standard output. With --json that is one JSON document, whichever way the command ends (bad flags, failure,
// interruption, help), and everything for people goes to standard error.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/purerdma/purerdma/bench/report"
)

// UsageError is a command line that cannot be meant. The command ends with status 2.
type UsageError struct{ Err error }

// Error is the text of what it wraps.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap is what is wrong.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a UsageError.
func Usagef(format string, a ...any) error { return &UsageError{fmt.Errorf(format, a...)} }

// NoArgs is for commands that have flags only.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Usagef("%q: there are flags only", args[0])
}

// InterruptError is the cause of the context's end when a signal asked the command to stop.
type InterruptError struct{ Signal os.Signal }

// Error names the signal.
func (e *InterruptError) Error() string { return fmt.Sprintf("interrupted by signal %v", e.Signal) }

// IO is where a command's words go.
type IO struct {
	JSON bool      // a document is wanted
	Text io.Writer // results for people: standard output, or standard error with JSON
	Err  io.Writer // everything else for people
	// Terminal reports whether Err is one, so that progress may be shown there.
	Terminal bool
	// Colours reports whether Text may have some: it is a terminal, and NO_COLOR is not set (https://no-color.org).
	Colours bool
}

// Command is a command line tool.
type Command struct {
	Schema  string // name of its documents' schema
	Version int    // of the schema
	// Completion adds the subcommand that prints scripts for shells.
	Completion bool
	// Make makes the cobra command. It registers the flag --json by JSONFlag, returns a UsageError for what it refuses, and prints
	// to IO what people read.
	Make func(IO) *cobra.Command
	// Document is the document of a run: the head and all that is known when it ends. It is called once, when the command has ended.
	Document func(report.Head) any
}

// JSONFlag adds --json to a command.
func JSONFlag(c *cobra.Command) {
	c.Flags().Bool("json", false, "print one JSON document to standard output and everything else to standard error")
}

// grace is how long an interrupted command may take to clean up before it is left behind.
const grace = 5 * time.Second

// Main runs the command and returns the exit code: 0 for success, 1 for failure, 2 for wrong usage. SIGINT and SIGTERM end the
// command's context; it then has some seconds to end, and a second signal ends the process at once.
func (c Command) Main(args []string, stdout, stderr *os.File) int {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(stop)
	on := terminals{term.IsTerminal(int(stdout.Fd())), term.IsTerminal(int(stderr.Fd()))}
	return c.run(args, stdout, stderr, on, stop)
}

// terminals is which of the streams are.
type terminals struct{ stdout, stderr bool }

func (c Command) run(args []string, stdout, stderr io.Writer, on terminals, stop <-chan os.Signal) int {
	started := time.Now()
	stderr = &locked{w: stderr}
	results := &kept{w: stdout}
	streams := IO{JSON: wantsJSON(args), Text: results, Err: stderr, Terminal: on.stderr}
	text := on.stdout
	if streams.JSON {
		streams.Text, text = stderr, on.stderr
	}
	streams.Colours = text && os.Getenv("NO_COLOR") == ""
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)

	ended := make(chan outcome, 1)
	go func() { ended <- c.execute(ctx, args, streams) }()
	var how outcome
	select {
	case how = <-ended:
	case s := <-stop:
		why := &InterruptError{s}
		cancel(why)
		fmt.Fprintf(stderr, "%v: ending; once more to end at once\n", why)
		select {
		case how = <-ended:
		case <-stop:
			how = outcome{err: why, left: true}
		case <-time.After(grace):
			how = outcome{err: fmt.Errorf("%w, and did not end within %v", why, grace), left: true}
		}
	}
	if err := results.failure(); err != nil && how.err == nil {
		how.err = fmt.Errorf("standard output: %w", err)
	}
	return c.end(how, streams, stdout, started)
}

// outcome is how a run ended. left says that it has not, so that nothing it holds may be read.
type outcome struct {
	err        error
	help, left bool
}

func (o outcome) status() report.Status {
	var usage *UsageError
	var interrupt *InterruptError
	switch {
	case errors.As(o.err, &interrupt):
		return report.Interrupted
	case errors.As(o.err, &usage):
		return report.Usage
	case o.err != nil:
		return report.Failed
	case o.help:
		return report.Help
	}
	return report.OK
}

func (c Command) execute(ctx context.Context, args []string, streams IO) (how outcome) {
	defer func() {
		if p := recover(); p != nil { // even then the document is due
			fmt.Fprintf(streams.Err, "panic: %v\n\n%s", p, debug.Stack())
			how = outcome{err: fmt.Errorf("panic: %v", p), left: true}
		}
	}()
	cmd := c.Make(streams)
	cmd.SetArgs(args)
	cmd.SetOut(streams.Text)
	cmd.SetErr(streams.Err)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &UsageError{err} })
	cmd.CompletionOptions.DisableDefaultCmd = !c.Completion
	var once sync.Once
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		once.Do(func() { help(cmd, args) })
		how.help = true
	})
	how.err = cmd.ExecuteContext(ctx)
	if how.err != nil {
		// What an interrupted command says of its connections matters less than that it was interrupted.
		if cause := context.Cause(ctx); cause != nil && !errors.Is(how.err, cause) {
			how.err = fmt.Errorf("%w (%w)", cause, how.err)
		}
	}
	return how
}

func (c Command) end(how outcome, streams IO, stdout io.Writer, started time.Time) int {
	status := how.status()
	if how.err != nil {
		fmt.Fprintf(streams.Err, "error: %v\n", how.err)
		if status == report.Usage {
			fmt.Fprintln(streams.Err, "--help shows the flags")
		}
	}
	if !streams.JSON {
		return status.ExitCode()
	}
	head := report.NewHead(c.Schema, c.Version, status, how.err, started)
	var doc any = head
	if !how.left {
		doc = c.Document(head)
	}
	if err := report.Write(stdout, doc); err != nil {
		fmt.Fprintf(streams.Err, "error: %v\n", err)
		return report.Failed.ExitCode()
	}
	return status.ExitCode()
}

// locked lets a command write while it is told to stop.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements [io.Writer].
func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// kept remembers the first write that failed: results that did not arrive are no success, and nobody looks at the error of a print.
type kept struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// Write implements [io.Writer].
func (k *kept) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, err := k.w.Write(b)
	if k.err == nil {
		k.err = err
	}
	return n, err
}

func (k *kept) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// wantsJSON looks for --json before the flags are parsed: a command line that cannot be parsed still has a document due. As for any
// flag, the last one counts.
func wantsJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	wanted := false
	for _, a := range args {
		if value, ok := strings.CutPrefix(a, "--json="); ok {
			b, err := strconv.ParseBool(value)
			wanted = b || err != nil
		} else if a == "--json" {
			wanted = true
		}
	}
	return wanted
}

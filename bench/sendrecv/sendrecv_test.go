//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/internal/launchtest"
	"github.com/purerdma/purerdma/internal/leaktest"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
)

// full is what must hold in all its size: it takes minutes on a small machine.
var full = flag.Bool("full", false, "move all that the mesh of eight ranks is about")

// asCommand makes a copy of the test binary the command.
const asCommand = "PURERDMA_SENDRECV_TEST"

// resultVariable names a file in place of standard output: launchers add to that what they like.
const resultVariable = "PURERDMA_SENDRECV_RESULT"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		asVariablesSay()
		if name := os.Getenv(resultVariable); name != "" {
			f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Stdout = f
		}
		os.Exit(run(os.Args[1:]))
	}
	leaktest.Main(m)
}

// command runs the command in processes of its own and returns its document.
func command(t *testing.T, limit time.Duration, args ...string) (d document, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{"--json"}, args...)...)
	cmd.Env = append(append([]string{"NCCL_BUFFSIZE=1048576"}, os.Environ()...), asCommand+"=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its ranks
	cmd.WaitDelay = time.Minute
	var text bytes.Buffer
	cmd.Stderr = &text
	out, err := cmd.Output()
	if e := json.Unmarshal(out, &d); e != nil {
		t.Fatalf("%v, %v\n%s\n%s", err, e, out, &text)
	}
	return d, text.String(), err
}

// testLimit is generous: the machine may be busy with other things.
const testLimit = 4 * time.Minute

// Eight ranks, told to be on two hosts, all with all over shared memory and the network, on four channels, with checked data.
func TestMesh(t *testing.T) {
	args, limit := meshArgs()
	d, stderr, err := command(t, limit, append(args, "--ranks", "8")...)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	checkMesh(t, d)
}

// The same as ranks of real launchers: mpirun of Open MPI, mpiexec of MPICH, srun, torchrun.
func TestMeshByLaunchers(t *testing.T) {
	if testing.Short() {
		t.Skip("the ranks are the same as in TestMesh, launch's tests have the launchers")
	}
	for _, l := range launchtest.All {
		t.Run(l.Name, func(t *testing.T) {
			dir := t.TempDir()
			result := filepath.Join(dir, "result")
			env := []string{asCommand + "=1", resultVariable + "=" + result, "NCCL_BUFFSIZE=1048576", "NCCL_SOCKET_IFNAME=lo"}
			if l.Name != "torchrun" { // it says itself where the job meets
				env = append(env, "PURERDMA_ID_FILE="+filepath.Join(dir, "id"))
			}
			args, limit := meshArgs()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, stderr, err := l.Run(ctx, t, 8, env, append([]string{os.Args[0], "--json"}, args...)...)
			out, missing := os.ReadFile(result)
			var d document
			if err := errors.Join(err, missing, json.Unmarshal(out, &d)); err != nil {
				t.Fatalf("%v\n%s\n%s", err, out, stderr)
			}
			checkMesh(t, d)
		})
	}
}

func meshArgs() (args []string, limit time.Duration) {
	args = []string{"--pattern", "random", "--hosts", "2", "--channels", "4", "--device", "soft0", "--rounds", "2", "--max", "16M"}
	switch {
	case *full:
		return append(args, "--rounds", "20", "--messages", "3", "--timeout", "30m"), 30 * time.Minute
	case testing.Short():
		args = append(args, "--rounds", "1", "--max", "256K")
	}
	return args, testLimit
}

func checkMesh(t *testing.T, d document) {
	t.Helper()
	t.Logf("seed %d: %+v", d.Seed, *d.Mesh)
	if d.Ranks != 8 || d.Links["SHM"] != 24 || d.Links["NET"] != 32 {
		t.Errorf("%d ranks, %v", d.Ranks, d.Links)
	}
	if d.Wrong != 0 || d.Mesh.Messages == 0 || d.Mesh.Messages%56 != 0 || d.Mesh.Smallest != 0 || d.Mesh.Largest < 256<<10 {
		t.Errorf("%+v", d.Mesh)
	}
}

// Every pattern over every transport, with each row that was asked for.
func TestPatterns(t *testing.T) {
	for _, pattern := range []string{ring, allToAll} {
		for _, over := range []string{automatic, overSHM, overNet} {
			t.Run(pattern+" "+over, func(t *testing.T) {
				d, stderr, err := command(t, testLimit, "-n", "3", "-p", pattern, "-t", over, "-c", "2", "-d", "soft0", "--min", "9", "--max", "200K", "--factor", "30",
					"--iters", "2", "--warmup", "1", "--rounds", "3")
				if err != nil {
					t.Fatalf("%v\n%s", err, stderr)
				}
				name := map[string]string{automatic: "SHM", overSHM: "SHM", overNet: "NET"}[over]
				if d.Status != "ok" || d.Ranks != 3 || d.Links[name] != 6 || len(d.Choices) != 2 || d.Wrong != 0 || len(d.Rows) != 4 {
					t.Errorf("%+v", d)
				}
				for _, r := range d.Rows {
					if r.Time <= 0 || r.AlgBW <= 0 || r.BusBW <= 0 || r.BusBW > r.AlgBW || len(r.Times) != 3 || r.Wrong != 0 {
						t.Errorf("%+v", r)
					}
				}
			})
		}
	}
}

// What idle ranks use can be asked for; how much it is depends on what else the machine does.
func TestIdle(t *testing.T) {
	d, stderr, err := command(t, testLimit, "-n", "8", "--hosts", "2", "-d", "soft0", "--idle", "500ms")
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if d.Idle == nil || d.Idle.Time < 0.5 || d.Idle.Used < 0 {
		t.Fatalf("%+v", d.Idle)
	}
	t.Logf("%.3f %% of one core", d.Idle.Core)
}

// What is wrong with data is counted, and fails the command.
func TestWrongBytes(t *testing.T) {
	b, scratch := make([]byte, 1003), make([]byte, 2000)
	fill(b, 7, numberOf(1, 2, 3))
	if n := wrong(b, scratch, 7, numberOf(1, 2, 3)); n != 0 {
		t.Errorf("%d bytes", n)
	}
	b[0], b[500], b[1002] = ^b[0], ^b[500], ^b[1002]
	if n := wrong(b, scratch, 7, numberOf(1, 2, 3)); n != 3 {
		t.Errorf("%d bytes, want 3", n)
	}
	for _, other := range []uint64{numberOf(2, 1, 3), numberOf(1, 2, 4)} {
		fill(b, 7, numberOf(1, 2, 3))
		if n := wrong(b, scratch, 7, other); n < 900 {
			t.Errorf("another message has %d bytes that differ", n)
		}
	}
}

// Sizes of random messages are the same at both ends, and of all magnitudes.
func TestSizesByChance(t *testing.T) {
	for _, most := range []int{0, 1, 5, 16 << 20} {
		at := func(rank int) *member { return &member{t: &tool{max: size(most), seed: 3}, rank: rank, size: 4} }
		seen := map[int]bool{}
		for which := range 300 {
			n := at(1).sizeOf(1, 2, which)
			if n != at(2).sizeOf(1, 2, which) || n < 0 || n > most {
				t.Fatalf("%d of at most %d", n, most)
			}
			magnitude := 0
			for ; n>>magnitude > 0; magnitude++ {
			}
			seen[magnitude] = true
		}
		if most > 5 && len(seen) < 24 {
			t.Errorf("%d magnitudes", len(seen))
		}
		if n := at(0).sizeOf(0, 3, 0); n != most {
			t.Errorf("%d bytes, want %d", n, most)
		}
	}
}

func TestSizeFlag(t *testing.T) {
	for text, want := range map[string]size{"0": 0, "12": 12, "64K": 64 << 10, "1m": 1 << 20, "1G": 1 << 30} {
		var s size
		if err := s.Set(text); err != nil || s != want {
			t.Errorf("%q: %d, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "K", "-1", "1.5M", "1T", "2000000000G"} {
		var s size
		if err := s.Set(text); err == nil {
			t.Errorf("%q is %d", text, s)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"more"}, {"-n", "-1"}, {"-n", "0"}, {"--hosts", "0"}, {"-p", "star"}, {"-t", "p2p"}, {"-c", "0"}, {"-c", "65"}, {"--min", "2", "--max", "1"}, {"--max", "2G"},
		{"--factor", "1"}, {"--iters", "-1"}, {"--rounds", "0"}, {"--messages", "0"}, {"--budget", "0s"}, {"--timeout", "0s"}, {"--idle", "-1s"}, {"--hosts", "-1"}} {
		c := (&tool{}).cobra(cli.IO{Text: &bytes.Buffer{}, Err: &bytes.Buffer{}})
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(args)
		var usage *cli.UsageError
		if err := c.ExecuteContext(t.Context()); !errors.As(err, &usage) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// When one rank cannot go on all others end, and no process is left.
func TestOneRankFails(t *testing.T) {
	d, stderr, err := command(t, testLimit, "-n", "4", "-t", "net", "-d", "soft0,soft0,none,soft0")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || d.Status != "failed" || d.Error == nil {
		t.Errorf("%v, %+v\n%s", err, d.Head, stderr)
	}
	if !strings.Contains(stderr, "none") {
		t.Errorf("nobody says which device is missing:\n%s", stderr)
	}
	t.Log(*d.Error)
}

// Ranks that a launcher has started are not started again.
func TestRanksOfALauncher(t *testing.T) {
	t.Setenv("PURERDMA_RANK", "0")
	t.Setenv("PURERDMA_SIZE", "1")
	t.Setenv("PURERDMA_ID_FILE", filepath.Join(t.TempDir(), "id"))
	if _, stderr, err := command(t, testLimit, "-n", "3"); err == nil || !strings.Contains(stderr, "purerdma has started 1 ranks already") {
		t.Errorf("%v: %s", err, stderr)
	}
	d, stderr, err := command(t, testLimit, "-t", "shm", "--max", "1K", "--iters", "1", "--rounds", "1")
	if err != nil || d.Ranks != 1 || len(d.Rows) == 0 || d.Wrong != 0 {
		t.Errorf("%v, %+v\n%s", err, d, stderr)
	}
}

// A rank's words that cannot be read are an error that names it.
func TestGather(t *testing.T) {
	jobs := bootstrap.InMemory(2, nil)
	defer func() { _ = errors.Join(jobs[0].Close(), jobs[1].Close()) }()
	other := make(chan error, 1)
	go func() {
		_, err := jobs[1].AllGather(t.Context(), []byte("}"))
		other <- err
	}()
	if _, err := gather(t.Context(), jobs[0], 5); err == nil || !strings.Contains(err.Error(), "rank 1") {
		t.Error(err)
	}
	if err := <-other; err != nil {
		t.Error(err)
	}
}

// The table is that of nccl-tests.
func TestPrint(t *testing.T) {
	var b strings.Builder
	tl := &tool{out: cli.IO{Text: &b}, ranks: 2, pattern: ring, channels: 1, check: true}
	tl.results = results{Links: map[string]int{"SHM": 2}, Rows: []row{{Size: 1000, Times: []float64{3e-6, 2e-6, 1e-6}, Wrong: 4, busier: 0.5}}, Wrong: 4}
	if err := tl.print(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 over SHM", "1000", "2.00", "0.500", "0.250", "Wrong bytes: 4 FAILED"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}

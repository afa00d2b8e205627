// Package launchtest starts programs as the ranks of a job by what starts jobs in earnest, where that is installed.
package launchtest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// everything is the variable that has the tests use launchers that take seconds to start, when it says "all".
const everything = "PURERDMA_LAUNCHERS"

// Launcher is something that starts the ranks of a job.
type Launcher struct {
	Name  string // as package launch has it
	slow  bool
	words func(t testing.TB, n int, env []string) []string
}

// All is those of the table of package launch. Open MPI's is in Debian's openmpi-bin, PMI's in hydra, Slurm's in slurmctld, slurmd and
// slurm-client, torchrun in python3-torch.
var All = []Launcher{{"Open MPI", false, openMPI}, {"PMI", false, hydra}, {"Slurm", true, slurm}, {"torchrun", true, torchrun}}

// Run starts n ranks of a program on this machine, with more variables, waits for them, and returns what they and the launcher wrote to
// standard output and to standard error. It skips the test where the launcher is missing, or slow and not asked for.
//
// Where the machine allows namespaces the job has its own of processes and network. Then it, the daemons of Slurm included, ends with
// the context and with the test's process, however that ends. Elsewhere the launcher is asked to end, and Slurm is skipped.
func (l Launcher) Run(ctx context.Context, t testing.TB, n int, env []string, program ...string) (stdout, stderr []byte, err error) {
	t.Helper()
	if l.slow && os.Getenv(everything) != "all" {
		t.Skipf("%s takes seconds to start: %s=all has it", l.Name, everything)
	}
	alone := namespaces(t)
	if alone == nil && l.Name == "Slurm" {
		t.Skip("no namespaces for Slurm's daemons here")
	}
	words := append(append(alone, l.words(t, n, env)...), program...)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Minute
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	err = run(cmd, alone != nil)
	return out.Bytes(), text.Bytes(), err
}

// find skips the test where a program is missing.
func find(t testing.TB, name, in string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no %s here; Debian's is in %s", name, in)
	}
	return path
}

func openMPI(t testing.TB, n int, env []string) []string {
	mpirun := find(t, "mpirun", "openmpi-bin")
	if out, err := exec.CommandContext(t.Context(), mpirun, "--version").CombinedOutput(); err != nil || !strings.Contains(string(out), "Open MPI") {
		t.Skipf("mpirun is not Open MPI's: %s, %v", out, err)
	}
	words := []string{mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", strconv.Itoa(n)}
	for _, v := range env {
		words = append(words, "-x", v)
	}
	return words
}

// hydra starts processes with PMI as MPICH and what comes of it do.
func hydra(t testing.TB, n int, _ []string) []string {
	return []string{find(t, "mpiexec.hydra", "hydra"), "-launcher", "fork", "-n", strconv.Itoa(n)}
}

// torchrun by itself finds a port. That of Debian's torch 1.13 ends with an error unless standard output is both redirected to files and
// copied, with a name before each line.
func torchrun(t testing.TB, n int, _ []string) []string {
	path := find(t, "torchrun", "python3-torch")
	if out, err := exec.CommandContext(t.Context(), path, "--help").CombinedOutput(); err != nil {
		t.Skipf("torchrun does not run: %v: %s", err, out)
	}
	return []string{path, "--standalone", "--nproc_per_node", strconv.Itoa(n), "--redirects", "1", "--tee", "1", "--log_dir", t.TempDir(), "--no_python"}
}

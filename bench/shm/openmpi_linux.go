package main

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/purerdma/purerdma/internal/cause"
)

//go:embed mpi/pair.c
var pairSource []byte

// openMPI measures a row with Open MPI's messages through shared memory (vader), by a program that is compiled on first use.
func openMPI(ctx context.Context, r row, cpus [2]int, dir string) (float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, rivalLimit, errLate)
	defer cancel()
	pair := filepath.Join(dir, "pair")
	if _, err := os.Stat(pair); err != nil {
		if err := compilePair(ctx, pair); err != nil {
			return 0, err
		}
	}
	words := []string{"-np", "2", "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "vader,self"}
	if os.Geteuid() == 0 {
		words = append(words, "--allow-run-as-root")
	}
	cmd := exec.CommandContext(ctx, "mpirun", append(words, pair, string(r.Kind), strconv.Itoa(r.Size), strconv.Itoa(r.rivalCount),
		strconv.Itoa(cpus[0]), strconv.Itoa(cpus[1]))...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its processes
	cmd.WaitDelay = rivalLimit
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return 0, cause.Of(ctx)
	}
	if err != nil {
		return 0, said(cmd, err, string(out))
	}
	return parsePair(string(out))
}

func compilePair(ctx context.Context, to string) error {
	source := to + ".c"
	if err := os.WriteFile(source, pairSource, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "mpicc", "-O2", "-o", to, source)
	out, err := cmd.CombinedOutput()
	return errors.Join(said(cmd, err, string(out)), os.Remove(source))
}

func parsePair(text string) (float64, error) {
	for line := range strings.Lines(text) {
		if s, ok := strings.CutPrefix(strings.TrimSpace(line), "seconds a message: "); ok {
			if each, err := strconv.ParseFloat(s, 64); err == nil && each > 0 {
				return each, nil
			}
		}
	}
	return 0, noFigures("pair", text)
}

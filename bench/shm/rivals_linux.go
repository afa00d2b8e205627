package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"

	"github.com/purerdma/purerdma/internal/cause"
)

// rival is another way to move messages between two processes of one machine.
type rival struct {
	name     string
	programs []string // that it needs
	packages string   // Debian's names of them
	covers   func(row) bool
	// time is the seconds that one message of a row takes, between programs on two processors. dir is for files.
	time func(ctx context.Context, r row, cpus [2]int, dir string) (float64, error)
}

var rivals = []rival{
	{ucxName, []string{ucxProgram, "taskset"}, "ucx-utils", anyRow, ucx},
	{"openmpi", []string{"mpirun", "mpicc"}, "openmpi-bin libopenmpi-dev", anyRow, openMPI},
	{"libfabric", []string{fabricProgram, "taskset"}, "libfabric-bin", func(r row) bool { return r.Kind == latency }, libfabric},
}

func anyRow(row) bool { return true }

// rivalLimit is how long a run of one may take.
const rivalLimit = 15 * time.Second

// errLate says that a rival did not end in time, which happens where something else has the processors: they spin.
var errLate = fmt.Errorf("not done within %v", rivalLimit)

// lacks is what of a rival is not installed.
func (v rival) lacks() []string {
	var missing []string
	for _, p := range v.programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	return missing
}

// installed is the names of those that can be measured.
func installed() []string {
	var names []string
	for _, v := range rivals {
		if len(v.lacks()) == 0 {
			names = append(names, v.name)
		}
	}
	return names
}

// rivalsOf is those with these names.
func rivalsOf(names []string) ([]rival, error) {
	var list []rival
	for _, n := range names {
		i := 0
		for i < len(rivals) && rivals[i].name != n {
			i++
		}
		if i == len(rivals) {
			return nil, fmt.Errorf("--rivals: %q is none of ucx, openmpi, libfabric", n)
		}
		if missing := rivals[i].lacks(); len(missing) > 0 {
			return nil, fmt.Errorf("--rivals: %s needs %s (Debian: apt-get install %s)", n, strings.Join(missing, ", "), rivals[i].packages)
		}
		list = append(list, rivals[i])
	}
	return list, nil
}

// served runs a client beside a server, as soon as that listens: before, it gives up at once, with the word refused. It returns what the client
// printed.
func served(ctx context.Context, command func(ctx context.Context, words ...string) *exec.Cmd, client ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, rivalLimit, errLate)
	defer cancel()
	var log strings.Builder
	server := command(ctx)
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		return "", err
	}
	text, err := connect(ctx, func() *exec.Cmd { return command(ctx, client...) })
	if err != nil {
		late := cause.Of(ctx)
		cancel() // the server waits for ever
		if e := server.Wait(); late == nil {
			return "", errors.Join(err, said(server, e, log.String()))
		}
		return "", late
	}
	return text, said(server, server.Wait(), log.String())
}

func connect(ctx context.Context, command func() *exec.Cmd) (string, error) {
	for {
		cmd := command()
		out, err := cmd.CombinedOutput()
		if err == nil {
			return string(out), nil
		}
		if ctx.Err() != nil || !strings.Contains(string(out), "refused") {
			return "", said(cmd, err, string(out))
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// said is an error of a program with the end of what it printed.
func said(cmd *exec.Cmd, err error, output string) error {
	if err == nil {
		return nil
	}
	const most = 1000
	output = strings.TrimSpace(output)
	return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, output[max(0, len(output)-most):])
}

func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

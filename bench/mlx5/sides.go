package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

//go:embed c/peer.c
var source []byte

const (
	module = "github.com/purerdma/purerdma"
	model  = module + "/ibverbs/internal/mlx5model"
	packs  = "apt-get install gcc libibverbs-dev ibverbs-providers"
)

// side is who posts and polls.
type side string

const (
	ours    side = "purerdma"
	libmlx5 side = "libmlx5"
	byCgo   side = "cgo"
)

// programs is the files of what was built.
type programs struct {
	supervise, ours, libmlx5, byCgo string
}

// build makes the programs of all sides in a folder. C programs come to the model under a supervisor, of which a program that makes
// no system calls feels nothing.
func build(ctx context.Context, dir, cc string, cgo bool) (*programs, error) {
	p := &programs{supervise: filepath.Join(dir, "supervise"), ours: filepath.Join(dir, "ours"), libmlx5: filepath.Join(dir, "libmlx5")}
	run := func(remedy string, stdin []byte, env, name string, args ...string) error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Stdin, cmd.Env = bytes.NewReader(stdin), append(os.Environ(), env)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v (%s): %w\n%s", cmd.Args, remedy, err, out)
		}
		return nil
	}
	const sources = "needs the module's sources and the go command"
	if err := run(sources, nil, "CGO_ENABLED=0", "go", "build", "-o", p.supervise, model+"/cmd/supervise"); err != nil {
		return nil, err
	}
	if err := run(sources, nil, "CGO_ENABLED=0", "go", "test", "-c", "-o", p.ours, model); err != nil {
		return nil, err
	}
	if err := run(packs, source, "", cc, "-O2", "-Wall", "-o", p.libmlx5, "-x", "c", "-", "-libverbs", "-lmlx5"); err != nil {
		return nil, err
	}
	if !cgo {
		return p, nil
	}
	p.byCgo = filepath.Join(dir, "cgo")
	return p, run(packs, nil, "CGO_ENABLED=1", "go", "build", "-o", p.byCgo, module+"/bench/mlx5/testdata/cgo")
}

// sides is those that were built, in the order of a round.
func (p *programs) sides() []side {
	if p.byCgo == "" {
		return []side{libmlx5, ours}
	}
	return []side{libmlx5, ours, byCgo}
}

// measure is the nanoseconds of a post and a poll of a list.
func (p *programs) measure(ctx context.Context, s side, list int, slice time.Duration) (posted, polled float64, err error) {
	program, pattern := p.libmlx5, `^(\S+) (\S+)$`
	args := []string{"-asleep"}
	if s == byCgo {
		program = p.byCgo
	}
	args = append(args, program, strconv.Itoa(list), strconv.FormatInt(slice.Milliseconds(), 10))
	program = p.supervise
	if s == ours {
		program, pattern = p.ours, `(?m)^Benchmark\S+\s+\d+\s.*?(\S+) ns/poll\s+(\S+) ns/post`
		args = []string{"-test.run=^$", fmt.Sprintf("-test.bench=^BenchmarkSpeed$/^list%d$", list), "-test.cpu=1", "-test.benchtime=" + slice.String()}
	}
	cmd := exec.CommandContext(ctx, program, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, 0, fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	m := regexp.MustCompile(pattern).FindStringSubmatch(strings.TrimSpace(string(out)))
	if m == nil {
		return 0, 0, fmt.Errorf("%v printed no figures:\n%s", cmd.Args, out)
	}
	if s == ours { // metrics are in the order of their units
		m[1], m[2] = m[2], m[1]
	}
	posted, err1 := strconv.ParseFloat(m[1], 64)
	polled, err2 := strconv.ParseFloat(m[2], 64)
	if err1 != nil || err2 != nil {
		return 0, 0, fmt.Errorf("%v printed figures that are none: %q", cmd.Args, m)
	}
	return posted, polled, nil
}

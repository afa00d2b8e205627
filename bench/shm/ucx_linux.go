package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	ucxProgram = "ucx_perftest"
	ucxLimit   = 15 * time.Second
)

// errLate says that UCX did not end in time, which happens where something else has the processors: it spins.
var errLate = fmt.Errorf("%s did not end within %v", ucxProgram, ucxLimit)

// haveUCX says whether the rival is installed.
func haveUCX() bool {
	_, err := exec.LookPath(ucxProgram)
	return err == nil
}

// ucx measures a row with UCX's tag messages on two processors, and returns the time of one message in seconds.
func ucx(ctx context.Context, r row, cpus [2]int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, ucxLimit)
	defer cancel()
	port, err := freePort(ctx)
	if err != nil {
		return 0, err
	}
	var served strings.Builder
	server := perftest(ctx, r, cpus[0], port)
	server.Stdout, server.Stderr = &served, &served
	if err := server.Start(); err != nil {
		return 0, err
	}
	text, err := connect(ctx, func() *exec.Cmd { return perftest(ctx, r, cpus[1], port, "127.0.0.1") })
	if err != nil {
		late := ctx.Err() != nil
		cancel() // the server waits for ever
		if late {
			_ = server.Wait()
			return 0, errLate
		}
		return 0, errors.Join(err, said(server.Wait(), served.String()))
	}
	if err := said(server.Wait(), served.String()); err != nil {
		return 0, err
	}
	return parseUCX(r, text)
}

func perftest(ctx context.Context, r row, cpu, port int, host ...string) *exec.Cmd {
	test := "tag_bw"
	if r.Kind == latency {
		test = "tag_lat"
	}
	words := []string{"--cpu-list", strconv.Itoa(cpu), ucxProgram, "-p", strconv.Itoa(port), "-t", test, "-s", strconv.Itoa(r.Size),
		"-n", strconv.Itoa(r.ucxCount), "-w", "100", "-f"}
	cmd := exec.CommandContext(ctx, "taskset", append(words, host...)...)
	cmd.Env = append(os.Environ(), "UCX_TLS=posix,self")
	return cmd
}

// connect runs the client as soon as the server listens: before that it gives up at once.
func connect(ctx context.Context, command func() *exec.Cmd) (string, error) {
	for {
		cmd := command()
		out, err := cmd.CombinedOutput()
		if err == nil {
			return string(out), nil
		}
		if ctx.Err() != nil || !strings.Contains(string(out), "refused") {
			return "", said(err, string(out))
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func said(err error, output string) error {
	if err == nil {
		return nil
	}
	const most = 1000
	output = strings.TrimSpace(output)
	return fmt.Errorf("%s: %w: %s", ucxProgram, err, output[max(0, len(output)-most):])
}

func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// parseUCX finds the line of figures: iterations; latency in µs: median, average, overall; bandwidth in MB/s: average, overall; messages
// a second: average, overall.
func parseUCX(r row, text string) (float64, error) {
	for line := range strings.Lines(text) {
		words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "Final:"))
		if len(words) != 8 {
			continue
		}
		var f [8]float64
		var err error
		for i, w := range words {
			if f[i], err = strconv.ParseFloat(w, 64); err != nil {
				break
			}
		}
		switch {
		case err != nil:
		case r.Kind == latency && f[1] > 0:
			return f[1] / million, nil
		case r.Kind != latency && f[7] > 0:
			return 1 / f[7], nil
		}
	}
	return 0, fmt.Errorf("no figures in what %s printed: %s", ucxProgram, strings.TrimSpace(text[max(0, len(text)-1000):]))
}

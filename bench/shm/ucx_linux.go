package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

const ucxName, ucxProgram = "ucx", "ucx_perftest"

// ucx measures a row with UCX's tag messages.
func ucx(ctx context.Context, r row, cpus [2]int, _ string) (float64, error) {
	port, err := freePort(ctx)
	if err != nil {
		return 0, err
	}
	test := "tag_bw"
	if r.Kind == latency {
		test = "tag_lat"
	}
	text, err := served(ctx, func(ctx context.Context, host ...string) *exec.Cmd {
		words := []string{"--cpu-list", strconv.Itoa(cpus[len(host)]), ucxProgram, "-p", strconv.Itoa(port), "-t", test, "-s", strconv.Itoa(r.Size),
			"-n", strconv.Itoa(r.rivalCount), "-w", "100", "-f"}
		cmd := exec.CommandContext(ctx, "taskset", append(words, host...)...)
		cmd.Env = append(os.Environ(), "UCX_TLS=posix,self")
		return cmd
	}, "127.0.0.1")
	if err != nil {
		return 0, err
	}
	return parseUCX(r, text)
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
	return 0, noFigures(ucxProgram, text)
}

func noFigures(program, text string) error {
	return fmt.Errorf("no figures in what %s printed: %s", program, strings.TrimSpace(text[max(0, len(text)-1000):]))
}

package main

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
)

const fabricProgram = "fi_pingpong"

// libfabric measures half a round trip by tagged messages of libfabric's provider for shared memory. Its program knows no streams, and
// prints an average.
func libfabric(ctx context.Context, r row, cpus [2]int, _ string) (float64, error) {
	port, err := freePort(ctx)
	if err != nil {
		return 0, err
	}
	text, err := served(ctx, func(ctx context.Context, host ...string) *exec.Cmd {
		side := "-B"
		if len(host) > 0 {
			side = "-P"
		}
		words := []string{"--cpu-list", strconv.Itoa(cpus[len(host)]), fabricProgram, "-p", "shm", "-e", "rdm", "-m", "tagged",
			"-S", strconv.Itoa(r.Size), "-I", strconv.Itoa(r.rivalCount), side, strconv.Itoa(port)}
		return exec.CommandContext(ctx, "taskset", append(words, host...)...)
	}, "127.0.0.1")
	if err != nil {
		return 0, err
	}
	return parseFabric(text)
}

// parseFabric finds the line of figures: bytes, sent, acknowledged, total, time, MB/s, µs a message, millions a second.
func parseFabric(text string) (float64, error) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 8 {
			continue
		}
		if us, err := strconv.ParseFloat(words[6], 64); err == nil && us > 0 {
			return us / million, nil
		}
	}
	return 0, noFigures(fabricProgram, text)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/purerdma/purerdma/internal/cause"
)

// runLimit is for one measurement of one program.
const runLimit = 3 * time.Minute

// program is the C program of a test.
func (j job) program() string {
	if j.Test == latency {
		return "ib_write_lat"
	}
	return "ib_write_bw"
}

// arguments is the job in perftest's words, with the device and GID of an end.
func (j job) arguments(device string, gid, port int) []string {
	a := []string{"-d", device, "-x", strconv.Itoa(gid), "-p", strconv.Itoa(port), "-s", strconv.Itoa(j.Size), "-n", strconv.Itoa(j.Iters),
		"-u", strconv.Itoa(j.Timeout), "-F"}
	if j.Test == bandwidth {
		a = append(a, "-t", strconv.Itoa(j.Depth), "-Q", strconv.Itoa(j.CQMod), "-N") // -N: no time stamp for each post, which ours has not either
	}
	return a
}

// command is perftest as one end; host makes it the client.
func (o orders) command(ctx context.Context, port int, host ...string) *exec.Cmd {
	words := append([]string{o.Job.program()}, append(o.Job.arguments(o.Device, o.Job.GIDIndex, port), host...)...)
	if o.CPU != noCPU {
		words = append([]string{"taskset", "--cpu-list", strconv.Itoa(o.CPU)}, words...)
	}
	return exec.CommandContext(ctx, words[0], words[1:]...)
}

// theirs measures with perftest. Both of its ends are ended when ctx does.
func theirs(ctx context.Context, lead, follow orders) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	port, err := freePort(ctx)
	if err != nil {
		return figures{}, err
	}
	name := follow.Job.program()
	server := follow.command(ctx, port)
	var served strings.Builder
	server.Stdout, server.Stderr = &served, &served
	if err := server.Start(); err != nil {
		return figures{}, fmt.Errorf("%w (perftest is needed: apt-get install perftest)", err)
	}
	text, err := client(ctx, func() *exec.Cmd { return lead.command(ctx, port, "localhost") })
	if err != nil {
		cancel() // the server waits for ever
		return figures{}, errors.Join(err, ended(name+" server", server.Wait(), served.String()))
	}
	if err := ended(name+" server", server.Wait(), served.String()); err != nil {
		return figures{}, err
	}
	return parse(lead.Job.Test, text)
}

// client connects as soon as the server listens: before that it gives up at once.
func client(ctx context.Context, command func() *exec.Cmd) (string, error) {
	for {
		cmd := command()
		out, err := cmd.CombinedOutput()
		text := string(out)
		if err == nil {
			return text, nil
		}
		if ctx.Err() != nil {
			return text, errors.Join(cause.Of(ctx), ended(cmd.String(), err, text))
		}
		if !strings.Contains(text, "Couldn't connect") {
			return text, ended(cmd.String(), err, text)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func ended(name string, err error, output string) error {
	if err == nil {
		return nil
	}
	const most = 1000
	output = strings.TrimSpace(output)
	return fmt.Errorf("%s: %w: %s", name, err, output[max(0, len(output)-most):])
}

func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", ":0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// errClock says that perftest found no speed of the processor's clock to divide by. It compares two readings of the clock, which in a
// virtual machine on a busy host goes wrong now and then.
var errClock = errors.New("perftest could not measure the processor's clock and printed infinity")

// parse finds the line of figures: the one after the header that begins with #bytes.
func parse(t test, text string) (figures, error) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(strings.TrimSpace(line), "#bytes") || i+1 == len(lines) {
			continue
		}
		var fs []float64
		for _, word := range strings.Fields(lines[i+1]) {
			f, err := strconv.ParseFloat(word, 64)
			if err != nil {
				break
			}
			fs = append(fs, f)
		}
		switch {
		case t == bandwidth && len(fs) >= 4 && strings.Contains(line, "MB/sec"):
			return figures{MiBps: fs[3]}, nil // bytes, iterations, peak, average
		case t == latency && len(fs) >= 8 && strings.Contains(line, "t_typical[usec]"):
			return figures{Typical: fs[4], Mean: fs[5], P99: fs[7]}, nil // …, min, max, typical, average, deviation, 99 %
		}
	}
	if strings.Contains(text, " inf ") {
		return figures{}, errClock
	}
	return figures{}, fmt.Errorf("no figures in what perftest printed: %s", strings.TrimSpace(text[max(0, len(text)-1000):]))
}

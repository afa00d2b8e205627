// Command rings compares what posting and polling cost in user space in Go and in C, on rings in memory, without a device.
//
// The Go side is the benchmarks of the Soft-RoCE driver, with the lock and the checks that package ibverbs puts around it; the C
// side is c/rings.c, which does what a C provider does. Both run by turns, as pairs, so that a busy machine slows both; the
// figure to look at is the median of the pairs' ratios.
//
//	go run ./bench/rings [-pairs 9] [-ms 200]
//
// It needs a C compiler and the kernel's headers (gcc, linux-libc-dev), and the sources of the module.
package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/purerdma/purerdma/bench/stats"
	"github.com/purerdma/purerdma/internal/tempdir"
)

//go:embed c/rings.c
var source []byte

const driver = "github.com/purerdma/purerdma/ibverbs/internal/rxe"

// benchmarks are named alike on both sides.
var benchmarks = []struct{ name, what string }{
	{"PostWrite", "build and publish one RDMA write"},
	{"PostList16", "the same, 16 in one call"},
	{"PollNone", "poll an empty CQ"},
	{"PollOne", "poll one completion"},
	{"Poll16", "poll 16 at once"},
}

func main() {
	pairs := flag.Int("pairs", 9, "runs of each side")
	ms := flag.Int("ms", 200, "length of a run in milliseconds")
	cc := flag.String("cc", "cc", "C compiler")
	flag.Parse()
	if flag.NArg() > 0 || *pairs < 1 || *ms < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := compare(*cc, *pairs, *ms); err != nil {
		fmt.Fprintln(os.Stderr, "rings:", err)
		os.Exit(1)
	}
}

func compare(cc string, pairs, ms int) error {
	dir, err := tempdir.Make("purerdma-rings-")
	if err != nil {
		return err
	}
	defer dir.Remove()
	inC, inGo := filepath.Join(dir.Path(), "c"), filepath.Join(dir.Path(), "go.test")
	build := exec.Command(cc, "-O2", "-o", inC, "-x", "c", "-", "-lpthread")
	build.Stdin = bytes.NewReader(source)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the C side (apt-get install gcc linux-libc-dev): %w\n%s", err, out)
	}
	if out, err := exec.Command("go", "test", "-c", "-o", inGo, driver).CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c: %w\n%s", err, out)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "C ns\tGo ns\tGo / C\tmost likely between\t  benchmark")
	for _, b := range benchmarks {
		var c, g []float64
		for range pairs {
			nc, err := measure(exec.Command(inC, b.name, strconv.Itoa(ms)), `^(\S+)$`)
			if err != nil {
				return err
			}
			ng, err := measure(exec.Command(inGo, "-test.run=^$", "-test.bench=^Benchmark"+b.name+"$", "-test.cpu=1",
				fmt.Sprintf("-test.benchtime=%dms", ms)), `(?m)^Benchmark\S+\s+\d+\s+(\S+) ns/op`)
			if err != nil {
				return err
			}
			c, g = append(c, nc), append(g, ng)
		}
		i := stats.MedianInterval(stats.Ratios(g, c), 0.95)
		fmt.Fprintf(w, "%.1f\t%.1f\t%.2f\t%.2f–%.2f\t  %s\n", stats.Median(c), stats.Median(g), i.Mid, i.Low, i.High, b.what)
	}
	return w.Flush()
}

// measure runs one side and picks its figure.
func measure(cmd *exec.Cmd, pattern string) (float64, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	m := regexp.MustCompile(pattern).FindStringSubmatch(strings.TrimSpace(string(out)))
	if m == nil {
		return 0, fmt.Errorf("%v printed no figure:\n%s", cmd.Args, out)
	}
	return strconv.ParseFloat(m[1], 64)
}

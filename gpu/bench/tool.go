//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/bench/stats"
	"github.com/purerdma/purerdma/gpu"
)

// document is what --json prints.
type document struct {
	report.Head
	GPU  string `json:"gpu"`
	MPS  bool   `json:"mps"`
	Rows []row  `json:"rows"`
}

// row is one measurement. Value and Limit are medians in Unit, and Ratio is the median of the samples' ratios, above 1 where ours is
// better.
type row struct {
	Name    string          `json:"name"`
	Unit    string          `json:"unit"`
	Value   report.Number   `json:"value"`
	Limit   report.Number   `json:"limit"`
	Of      string          `json:"limit_of"`
	Ratio   report.Number   `json:"ratio"`
	Samples []report.Number `json:"samples"`
}

type tool struct {
	device, samples int
	bytes           int // of a message over the network; four times one between processor and kernel
	lines           int // of a sample of messages of 8 bytes between processor and kernel
	limits          string
	driver          gpu.Driver

	doc document
	out cli.IO
}

func (t *tool) command() cli.Command {
	return cli.Command{Schema: "gpubench", Version: 1, Make: t.cobra, Document: func(h report.Head) any { t.doc.Head = h; return t.doc }}
}

func (t *tool) cobra(out cli.IO) *cobra.Command {
	t.out = out
	t.doc.Rows = []row{}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measures how fast data moves between two ends on one GPU",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usagef("%q: there are flags only", args[0])
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return t.run() },
	}
	cli.JSONFlag(c)
	c.Flags().IntVar(&t.device, "device", 0, "index of the GPU")
	c.Flags().IntVar(&t.samples, "samples", 7, "samples of each row")
	c.Flags().StringVar(&t.limits, "limits", "", "program with the same work in C++, to compare with")
	return c
}

func (t *tool) run() error {
	if t.samples < 1 || t.device < 0 {
		return cli.Usagef("--samples and --device count from 1 and 0")
	}
	_, err := os.Stat(os.Getenv("CUDA_MPS_PIPE_DIRECTORY") + "/control")
	t.doc.MPS = os.Getenv("CUDA_MPS_PIPE_DIRECTORY") != "" && err == nil
	d, c, err := open(t.device)
	if err != nil {
		return err
	}
	defer c.Close()
	t.driver, t.bytes, t.lines = d, ringAll, rounds
	t.doc.GPU = c.Device().Name
	fmt.Fprintf(t.out.Err, "%s, %s, %d samples\n", c.Device().Name, map[bool]string{true: "MPS", false: "no MPS"}[t.doc.MPS], t.samples)
	for _, f := range []func(gpu.Context) error{t.oneProcess, t.twoProcesses, t.processors, t.staging} {
		if err := f(c); err != nil {
			return err
		}
	}
	fmt.Fprint(t.out.Text, t.table())
	return nil
}

// open opens a GPU of the first driver that has any.
func open(device int) (gpu.Driver, gpu.Context, error) {
	errs := []error{errors.New("no GPU to measure")}
	for _, d := range gpu.Drivers() {
		if _, err := d.Devices(); err != nil {
			errs = append(errs, err)
			continue
		}
		c, err := d.Open(device)
		return d, c, err
	}
	return nil, nil, errors.Join(errs...)
}

// add keeps a row of pairs of samples. Of times the smaller is better, of rates the larger.
func (t *tool) add(name, unit string, ours []float64, of string, limit []float64) {
	r := row{Name: name, Unit: unit, Value: report.Number(stats.Median(slices.Clone(ours))), Samples: report.Numbers(ours), Of: of}
	if len(limit) > 0 {
		r.Limit = report.Number(stats.Median(slices.Clone(limit)))
		ratios := stats.Ratios(ours, limit)
		if unit != "GB/s" {
			ratios = stats.Ratios(limit, ours)
		}
		r.Ratio = report.Number(stats.Median(ratios))
	}
	t.doc.Rows = append(t.doc.Rows, r)
	fmt.Fprintf(t.out.Err, "%s: %s %s\n", name, report.Digits(float64(r.Value)), unit)
}

func (t *tool) table() string {
	table := report.Table{Header: []string{"", "", "ours", "limit", "ratio", "limit is"}, Left: []int{0, 1, 5}}
	for _, r := range t.doc.Rows {
		cells := []string{r.Name, r.Unit, report.Digits(float64(r.Value)), "", "", r.Of}
		if r.Limit > 0 {
			cells[3], cells[4] = report.Digits(float64(r.Limit)), strconv.FormatFloat(float64(r.Ratio), 'f', 2, 64)
		}
		table.Rows = append(table.Rows, cells)
	}
	return table.String()
}

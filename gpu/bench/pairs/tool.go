//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/gpu"
)

// document is what --json prints.
type document struct {
	report.Head
	GPUs        []device     `json:"gpus"`
	MPS         bool         `json:"mps"`
	NCCL        int          `json:"nccl_version"` // 22809 for 2.28.9, 0 without it
	Topology    topology     `json:"topology"`
	Connections []connection `json:"connections"`
	Rows        []row        `json:"rows"`
	Checked     []checked    `json:"checked"`
	Links       []traffic    `json:"links"`
}

type device struct {
	Index int    `json:"index"`
	Name  string `json:"name"`
	PCI   string `json:"pci"`
	UUID  string `json:"uuid"`
}

// checked is how many messages of a scenario came whole.
type checked struct {
	Ranks    int    `json:"ranks"`
	Way      string `json:"way"`
	Mode     string `json:"mode"`
	Messages int    `json:"messages"`
	Longest  int    `json:"longest_bytes"`
}

// traffic is what the links of a GPU counted during a scenario, beside what its ranks sent to other GPUs.
type traffic struct {
	Ranks    int    `json:"ranks"`
	Way      string `json:"way"`
	Mode     string `json:"mode"`
	GPU      int    `json:"gpu"`
	Moved    uint64 `json:"moved_bytes"`
	Sent     uint64 `json:"sent_bytes"`
	Received uint64 `json:"received_bytes"`
	Why      string `json:"why"` // nothing was counted, "" if it was
}

type tool struct {
	driver gpu.Driver // nil: the first that has GPUs
	plan   plan
	ways   []string
	ranks  []int

	doc document
	out cli.IO
}

func (t *tool) command() cli.Command {
	return cli.Command{Schema: "gpupairs", Version: 1, Make: t.cobra, Document: func(h report.Head) any { t.doc.Head = h; return t.doc }}
}

func (t *tool) cobra(out cli.IO) *cobra.Command {
	t.out = out
	t.doc.GPUs, t.doc.Connections, t.doc.Rows, t.doc.Checked, t.doc.Links = []device{}, []connection{}, []row{}, []checked{}, []traffic{}
	c := &cobra.Command{
		Use:   "pairs",
		Short: "Runs P2P between all GPUs of a machine, beside NCCL",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usagef("%q: there are flags only", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return t.run(c.Context()) },
	}
	cli.JSONFlag(c)
	f := c.Flags()
	f.IntVar(&t.plan.Samples, "samples", 5, "samples of each row")
	f.IntVar(&t.plan.Channels, "channels", 32, "channels of a connection for kernels")
	f.IntVar(&t.plan.Most, "most", 1<<30, "bytes of the longest message")
	f.IntVar(&t.plan.Slot, "slot", 64<<20, "bytes of a step of the connections for copies")
	f.IntVar(&t.plan.Bytes, "bytes", 1<<30, "bytes of a sample of a stream, about")
	f.IntVar(&t.plan.Rounds, "rounds", 20000, "rounds of a sample of 8 bytes between kernels")
	f.Uint64Var(&t.plan.Seed, "seed", 0, "of what the messages hold; 0 is random")
	f.StringVar(&t.plan.Library, "nccl", "", "NCCL's library, to compare with")
	f.BoolVar(&t.plan.Hosts, "nccl-hosts", false, "tell NCCL that each rank is on a host of its own, so that it takes several on one GPU, over its network")
	f.StringSliceVar(&t.ways, "ways", []string{"DIRECT", "CUMEM", "IPC"}, "how memory is shared")
	f.IntSliceVar(&t.ranks, "ranks", nil, "numbers of ranks (default all that fit)")
	return c
}

func (t *tool) run(ctx context.Context) error {
	p := &t.plan
	if p.Samples < 1 || p.Channels < 1 || p.Channels > 32 || p.Most < 1 || p.Slot < 4096 || p.Rounds < 1 || p.Bytes < 1 {
		return cli.Usagef("--samples, --most, --bytes and --rounds count from 1, --channels from 1 to 32, --slot from 4096")
	}
	for _, w := range t.ways {
		if !slices.ContainsFunc(ways, func(k way) bool { return k.Name == w }) {
			return cli.Usagef("--ways: %q is not DIRECT, CUMEM or IPC", w)
		}
	}
	for p.Seed == 0 {
		p.Seed = rand.Uint64()
	}
	if t.driver == nil {
		d, err := driverWithGPUs()
		if err != nil {
			return err
		}
		t.driver = d
	}
	devices, err := t.driver.Devices()
	if err != nil {
		return err
	}
	t.begin(devices)
	for _, s := range scenarios(len(devices)) {
		if !slices.Contains(t.ways, s.Way.Name) || len(t.ranks) > 0 && !slices.Contains(t.ranks, len(s.Devices)) {
			continue
		}
		if err := t.scenario(ctx, s); err != nil {
			return fmt.Errorf("%d ranks, %s, %s: %w", len(s.Devices), s.Way.Name, s.mode(), err)
		}
	}
	t.print()
	return nil
}

// begin tells of the machine.
func (t *tool) begin(devices []gpu.DeviceInfo) {
	_, err := os.Stat(os.Getenv("CUDA_MPS_PIPE_DIRECTORY") + "/control")
	t.doc.MPS = os.Getenv("CUDA_MPS_PIPE_DIRECTORY") != "" && err == nil
	for _, d := range devices {
		t.doc.GPUs = append(t.doc.GPUs, device{d.Index, d.Name, d.PCI.String(), d.UUID})
		fmt.Fprintf(t.out.Err, "GPU %d: %s at %v\n", d.Index, d.Name, d.PCI)
	}
	t.doc.Topology = compareTopology(t.driver)
	fmt.Fprintf(t.out.Err, "%s, seed %d, topology %v; as nvidia-smi has it: %v %s\n", map[bool]string{true: "MPS", false: "no MPS"}[t.doc.MPS], t.plan.Seed,
		t.doc.Topology.Ours, t.doc.Topology.Same, t.doc.Topology.Words)
}

func (t *tool) scenario(ctx context.Context, s scenario) error {
	p := t.plan
	p.Scenario = s
	before := t.count(s)
	results, err := play(ctx, t.driver, p, t.out.Err)
	if err != nil {
		return err
	}
	after := t.count(s)
	c := checked{Ranks: len(s.Devices), Way: s.Way.Name, Mode: s.mode(), Longest: p.Most}
	for rank, r := range results {
		t.doc.Connections = append(t.doc.Connections, r.Connections...)
		t.doc.Rows = append(t.doc.Rows, r.Rows...)
		c.Messages += r.Checked
		t.doc.NCCL = max(t.doc.NCCL, r.NCCL)
		w := traffic{Ranks: c.Ranks, Way: c.Way, Mode: c.Mode, GPU: s.Devices[rank], Moved: r.Sent}
		if err := cmp.Or(before[rank].err, after[rank].err); err != nil {
			w.Why = err.Error()
		} else {
			w.Sent, w.Received = after[rank].Sent-before[rank].Sent, after[rank].Received-before[rank].Received
		}
		t.doc.Links = append(t.doc.Links, w)
	}
	t.doc.Checked = append(t.doc.Checked, c)
	fmt.Fprintf(t.out.Err, "%d ranks, %s, %s: %d messages of up to %s came whole\n", c.Ranks, c.Way, c.Mode, c.Messages, report.Bytes(c.Longest))
	return nil
}

// reading is a GPU's counters.
type reading struct {
	gpu.LinkTraffic
	err error
}

func (t *tool) count(s scenario) []reading {
	all := make([]reading, len(s.Devices))
	for rank, d := range s.Devices {
		m, ok := t.driver.(gpu.Meter)
		if !ok {
			all[rank].err = errors.New("the driver counts nothing")
			continue
		}
		all[rank].LinkTraffic, all[rank].err = m.LinkTraffic(d)
	}
	return all
}

func (t *tool) print() {
	table := report.Table{Header: []string{"ranks", "way", "mode", "pair", "", "bytes", "", "ours", "NCCL", "ratio"}, Left: []int{1, 2, 3, 4, 6}, Groups: map[int]bool{}}
	last := ""
	for i, r := range t.doc.Rows {
		group := fmt.Sprint(r.Ranks, r.Way, r.Mode)
		table.Groups[i] = group != last
		last = group
		cells := []string{strconv.Itoa(r.Ranks), r.Way, r.Mode, r.Pair, r.What, report.Bytes(r.Bytes), r.Unit, report.Digits(float64(r.Value)), "", ""}
		if r.NCCL > 0 {
			cells[8], cells[9] = report.Digits(float64(r.NCCL)), strconv.FormatFloat(float64(r.Ratio), 'f', 2, 64)
		}
		table.Rows = append(table.Rows, cells)
	}
	fmt.Fprintln(t.out.Text, table.String())
	fmt.Fprint(t.out.Text, t.connections(), t.links(), t.verdict())
}

// verdict is the lowest share of NCCL's rate for long messages, by the better of kernels and copies; "" without NCCL.
func (t *tool) verdict() string {
	const long = 64 << 20
	best := map[string]float64{}
	for _, r := range t.doc.Rows {
		if r.Bytes >= long && r.NCCL > 0 {
			k := fmt.Sprintf("%d ranks, %s, %s, %s", r.Ranks, r.Way, r.Pair, report.Bytes(r.Bytes))
			if strings.HasPrefix(r.What, "all") {
				k += ", all pairs at once"
			}
			best[k] = max(best[k], float64(r.Ratio))
		}
	}
	if len(best) == 0 {
		return ""
	}
	least := ""
	for k, v := range best {
		if least == "" || v < best[least] || v == best[least] && k < least {
			least = k
		}
	}
	return fmt.Sprintf("Of NCCL's rate at %s and above the better of kernels and copies has at least %.2f (%s).\n", report.Bytes(long), best[least], least)
}

// connections is a line for each way of connecting, with the pairs that have it.
func (t *tool) connections() string {
	pairs := map[string][]string{}
	var order []string
	for _, c := range t.doc.Connections {
		k := fmt.Sprintf("%d ranks, %s: %s, %s", c.Ranks, c.Mode, c.By, c.Reason)
		if pairs[k] == nil {
			order = append(order, k)
		}
		pairs[k] = append(pairs[k], fmt.Sprintf("%d→%d", c.From, c.To))
	}
	var b strings.Builder
	for _, k := range order {
		fmt.Fprintf(&b, "%s (%s)\n", k, strings.Join(pairs[k], " "))
	}
	return b.String()
}

func (t *tool) links() string {
	table := report.Table{Header: []string{"ranks", "way", "mode", "GPU", "sent to others", "links sent", "received"}, Left: []int{1, 2}}
	for _, l := range t.doc.Links {
		if l.Why != "" {
			return "NVLink's counters: " + l.Why + "\n"
		}
		table.Rows = append(table.Rows, []string{strconv.Itoa(l.Ranks), l.Way, l.Mode, strconv.Itoa(l.GPU), report.Digits(float64(l.Moved)/1e9) + " GB",
			report.Digits(float64(l.Sent)/1e9) + " GB", report.Digits(float64(l.Received)/1e9) + " GB"})
	}
	return table.String()
}

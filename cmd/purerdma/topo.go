package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/topo"
)

// topology is the part of the document about it. Paths is by row and column in the order of Devices.
type topology struct {
	Devices []place    `json:"devices"`
	Paths   [][]string `json:"paths"`
}

type place struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	PCI  string `json:"pci,omitempty"`
	NUMA int    `json:"numa_node"` // -1 if unknown
}

func (t *tool) topo() *cobra.Command {
	return &cobra.Command{
		Use:   "topo",
		Short: "Shows how NICs and GPUs reach each other",
		Long: "Shows what lies between any two NICs and GPUs of this machine, by the words of nvidia-smi topo -m. It reads sysfs alone: " +
			"links between GPUs, which their driver knows, do not appear.",
		Example:           "  purerdma topo",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			s, err := topo.Read(sysfs)
			out := &topology{Devices: []place{}, Paths: s.Matrix()}
			for _, d := range s.Devices {
				out.Devices = append(out.Devices, place{d.Name, string(d.Kind), d.PCI.String(), d.NUMA})
			}
			t.doc.Topology = out
			if len(s.Devices) == 0 {
				fmt.Fprintln(t.out.Err, "there is no RDMA device and no GPU on PCI")
				return err
			}
			fmt.Fprint(t.out.Text, matrix(out))
			return err
		},
	}
}

func matrix(t *topology) string {
	table := report.Table{Header: []string{""}, Left: []int{0}}
	used := map[string]bool{}
	for i, d := range t.Devices {
		table.Header = append(table.Header, d.Name)
		table.Left = append(table.Left, i+1)
		row := append([]string{d.Name}, t.Paths[i]...)
		for _, w := range t.Paths[i] {
			used[w] = true
		}
		node := ""
		if d.NUMA >= 0 {
			node = strconv.Itoa(d.NUMA)
		}
		table.Rows = append(table.Rows, append(row, node, d.PCI))
	}
	table.Header = append(table.Header, "NUMA", "PCI")
	s := table.String()
	for _, l := range topo.Legend() {
		if used[l[0]] {
			s += fmt.Sprintf("%-5s %s\n", l[0], l[1])
		}
	}
	return s
}

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

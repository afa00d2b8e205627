package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/cmd/purerdma/internal/inventory"
	"github.com/purerdma/purerdma/ibverbs"
)

func (t *tool) devices() *cobra.Command {
	var verbose bool
	c := &cobra.Command{
		Use:   "devices [NAME...]",
		Short: "Lists the RDMA devices and their ports",
		Example: `  purerdma devices
  purerdma devices -v mlx5_0        # all that ibv_devinfo -v and show_gids tell`,
		ValidArgsFunction: deviceNames,
		RunE: func(_ *cobra.Command, names []string) error {
			found, err := inventory.Take(names)
			t.doc.Devices = &found
			switch {
			case len(found) == 0 && err == nil:
				fmt.Fprintln(t.out.Err, "there is no RDMA device; purerdma doctor says why")
			case verbose:
				fmt.Fprint(t.out.Text, long(found))
			case len(found) > 0:
				fmt.Fprint(t.out.Text, short(found))
			}
			return err
		},
	}
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "all that is known of each")
	return c
}

// deviceNames completes the names of devices that a command line does not have yet.
func deviceNames(_ *cobra.Command, named []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	found, _ := ibverbs.Devices() // those that are known beside an error complete, too
	for _, d := range found {
		if name := d.Info().Name; !slices.Contains(named, name) {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// short is a line for each port.
func short(ds []inventory.Device) string {
	t := report.Table{Header: []string{"device", "driver", "port", "state", "link", "Gbit/s", "MTU", "GIDs", "net device", "PCI", "NUMA"},
		Left: []int{0, 1, 3, 4, 8, 9}}
	var problems []string
	for _, d := range ds {
		node := ""
		if d.NUMANode >= 0 {
			node = strconv.Itoa(d.NUMANode)
		}
		if d.Problem != "" {
			problems = append(problems, d.Problem)
			t.Rows = append(t.Rows, []string{d.Name, d.Driver, "", "not usable", "", "", "", "", "", d.PCI, node})
		}
		for _, p := range d.Ports {
			if p.Problem != "" {
				problems = append(problems, p.Problem)
			}
			t.Rows = append(t.Rows, []string{d.Name, d.Driver, strconv.Itoa(p.Number), p.State, p.LinkLayer, gigabits(p.SpeedMbps),
				strconv.Itoa(p.ActiveMTU), strconv.Itoa(len(p.GIDs)), netDevices(p.GIDs), d.PCI, node})
		}
	}
	s := t.String()
	for _, p := range problems {
		s += p + "\n"
	}
	return s
}

func gigabits(mbps int) string {
	if mbps == 0 {
		return "?"
	}
	return strconv.FormatFloat(float64(mbps)/1000, 'f', -1, 64)
}

// netDevices names each once, in the order of the GIDs.
func netDevices(gids []inventory.GID) string {
	var names []string
	seen := map[string]bool{"": true}
	for _, g := range gids {
		if !seen[g.NetDev] {
			seen[g.NetDev] = true
			names = append(names, g.NetDev)
		}
	}
	return strings.Join(names, " ")
}

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/cmd/purerdma/internal/inventory"
)

func (t *tool) devices() *cobra.Command {
	var verbose bool
	c := &cobra.Command{
		Use:   "devices [NAME...]",
		Short: "Lists the RDMA devices and their ports",
		Example: `  purerdma devices
  purerdma devices -v mlx5_0        # all that ibv_devinfo -v and show_gids tell`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			found, _ := inventory.Take(nil)
			var names []string
			for _, d := range found {
				names = append(names, d.Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
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

// long is what ibv_devinfo -v prints, by its words, and the GID tables as show_gids prints them.
func long(ds []inventory.Device) string {
	var b strings.Builder
	line := func(depth int, name, format string, args ...any) {
		fmt.Fprintf(&b, "%s%-24s%s\n", strings.Repeat("\t", depth), name+":", fmt.Sprintf(format, args...))
	}
	for _, d := range ds {
		fmt.Fprintf(&b, "hca_id:\t%s\n", d.Name)
		line(1, "driver", "%s", d.Driver)
		line(1, "fw_ver", "%s", d.Firmware)
		line(1, "node_guid", "%s", d.NodeGUID)
		line(1, "sys_image_guid", "%s", d.SysGUID)
		if d.PCI != "" {
			line(1, "pci", "%s, NUMA node %d", d.PCI, d.NUMANode)
		}
		if d.Problem != "" {
			line(1, "problem", "%s", d.Problem)
		}
		if a := d.Attr; a != nil {
			limits(line, a)
		}
		line(1, "phys_port_cnt", "%d", len(d.Ports))
		for _, p := range d.Ports {
			onePort(line, &p)
			if len(p.GIDs) > 0 {
				fmt.Fprint(&b, gids(d.Name, &p))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func limits(line func(depth int, name, format string, args ...any), a *inventory.Attributes) {
	line(1, "vendor_id", "0x%04x", a.VendorID)
	line(1, "vendor_part_id", "%d", a.VendorPartID)
	line(1, "hw_ver", "0x%X", a.HWVersion)
	line(1, "max_mr_size", "0x%x", a.MaxMRSize)
	line(1, "page_size_cap", "0x%x", a.PageSizes)
	line(1, "device_cap_flags", "0x%08x", a.CapFlags)
	for _, n := range []struct {
		name string
		v    int
	}{{"max_qp", a.MaxQP}, {"max_qp_wr", a.MaxQPWR}, {"max_sge", a.MaxSGE}, {"max_sge_rd", a.MaxSGERead}, {"max_cq", a.MaxCQ},
		{"max_cqe", a.MaxCQE}, {"max_mr", a.MaxMR}, {"max_pd", a.MaxPD}, {"max_qp_rd_atom", a.MaxQPRdAtomic},
		{"max_qp_init_rd_atom", a.MaxQPInitRdAtom}, {"max_mw", a.MaxMW}, {"max_ah", a.MaxAH}, {"max_srq", a.MaxSRQ},
		{"max_srq_wr", a.MaxSRQWR}, {"max_srq_sge", a.MaxSRQSGE}, {"max_pkeys", a.MaxPKeys}, {"num_comp_vectors", a.CompVectors}} {
		line(1, n.name, "%d", n.v)
	}
	line(1, "atomic_cap", "%s", a.Atomics)
	for _, name := range sorted(a.Features) {
		if why := a.Features[name]; why == "" {
			line(1, "feature", "%s", name)
		} else {
			line(1, "no feature", "%s", why)
		}
	}
}

func onePort(line func(depth int, name, format string, args ...any), p *inventory.Port) {
	line(2, "port", "%d", p.Number)
	if p.Problem != "" {
		line(3, "problem", "%s", p.Problem)
	}
	line(3, "state", "%s", p.State)
	line(3, "max_mtu", "%d", p.MaxMTU)
	line(3, "active_mtu", "%d", p.ActiveMTU)
	line(3, "sm_lid", "%d", p.SMLID)
	line(3, "port_lid", "%d", p.LID)
	line(3, "port_lmc", "0x%02x", p.LMC)
	line(3, "link_layer", "%s", p.LinkLayer)
	line(3, "speed", "%s Gbit/s", gigabits(p.SpeedMbps))
	line(3, "max_msg_sz", "0x%x", p.MaxMsg)
	line(3, "gid_tbl_len", "%d", p.GIDSlots)
	line(3, "pkey_tbl_len", "%d", p.PKeys)
}

func gids(device string, p *inventory.Port) string {
	t := report.Table{Header: []string{"DEV", "PORT", "INDEX", "GID", "IPv4", "VER", "NETDEV"}, Left: []int{0, 3, 4, 5, 6}}
	for _, g := range p.GIDs {
		t.Rows = append(t.Rows, []string{device, strconv.Itoa(p.Number), strconv.Itoa(g.Index), g.GID, g.IPv4, g.Type, g.NetDev})
	}
	return t.String()
}

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/cmd/purerdma/internal/inventory"
)

// liner writes one line of ibv_devinfo: depth in tabs, name, and value unless format is empty.
type liner func(depth int, name, format string, args ...any)

// long is what ibv_devinfo -v prints, word for word, with what that does not know beside it, and the GID tables as show_gids prints
// them. Of a device's offloads for raw packets (TSO, pacing, RSS hashes) only its provider in user space knows; they are left out.
func long(ds []inventory.Device) string {
	var b strings.Builder
	line := func(depth int, name, format string, args ...any) {
		b.WriteString(strings.Repeat("\t", depth))
		if format == "" {
			fmt.Fprintln(&b, name)
			return
		}
		fmt.Fprintf(&b, "%-23s %s\n", name+":", fmt.Sprintf(format, args...))
	}
	for _, d := range ds {
		fmt.Fprintf(&b, "hca_id:\t%s\n", d.Name)
		line(1, "driver", "%s", d.Driver)
		line(1, "transport", "%s (%d)", d.Transport, transportCode(d.Transport))
		line(1, "fw_ver", "%s", d.Firmware)
		line(1, "node_guid", "%s", d.NodeGUID)
		line(1, "sys_image_guid", "%s", d.SysGUID)
		if d.PCI != "" {
			line(1, "pci", "%s, NUMA node %d", d.PCI, d.NUMANode)
		}
		if d.Parent != "" {
			line(1, "physical_function", "%s", d.Parent)
		}
		if d.Bond != "" {
			line(1, "bond", "%s", d.Bond)
		}
		if d.Problem != "" {
			line(1, "problem", "%s", d.Problem)
		}
		if a := d.Attr; a != nil {
			limits(line, d.Board, len(d.Ports), a)
		}
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

// transportCode is enum ibv_transport_type.
func transportCode(word string) int { return slices.Index([]string{"InfiniBand", "iWARP"}, word) }

func limits(line liner, board string, ports int, a *inventory.Attributes) {
	line(1, "vendor_id", "0x%04x", a.VendorID)
	line(1, "vendor_part_id", "%d", a.VendorPartID)
	line(1, "hw_ver", "0x%X", a.HWVersion)
	if board != "" {
		line(1, "board_id", "%s", board)
	}
	line(1, "phys_port_cnt", "%d", ports)
	line(1, "max_mr_size", "0x%x", a.MaxMRSize)
	line(1, "page_size_cap", "0x%x", a.PageSizes)
	line(1, "device_cap_flags", "0x%08x", uint32(a.CapFlags))
	for _, name := range deviceCaps(a.CapFlags & (1<<32 - 1)) {
		line(5, name, "")
	}
	line(1, "atomic_cap", "%s (%d)", a.Atomics, a.AtomicCap)
	for _, n := range []struct {
		name string
		v    int
	}{{"max_qp", a.MaxQP}, {"max_qp_wr", a.MaxQPWR}, {"max_sge", a.MaxSGE}, {"max_sge_rd", a.MaxSGERead}, {"max_cq", a.MaxCQ},
		{"max_cqe", a.MaxCQE}, {"max_mr", a.MaxMR}, {"max_pd", a.MaxPD}, {"max_qp_rd_atom", a.MaxQPRdAtomic}, {"max_ee_rd_atom", a.MaxEERdAtomic},
		{"max_res_rd_atom", a.MaxResRdAtomic}, {"max_qp_init_rd_atom", a.MaxQPInitRdAtom}, {"max_ee_init_rd_atom", a.MaxEEInitRdAtomic},
		{"max_ee", a.MaxEE}, {"max_rdd", a.MaxRDD}, {"max_mw", a.MaxMW}, {"max_raw_ipv6_qp", a.MaxRawIPv6QP}, {"max_raw_ethy_qp", a.MaxRawEthyQP},
		{"max_mcast_grp", a.MaxMcastGroups}, {"max_mcast_qp_attach", a.MaxMcastQPAttach}, {"max_total_mcast_qp_attach", a.MaxTotalMcastQPAttach},
		{"max_ah", a.MaxAH}, {"max_fmr", a.MaxFMR}, {"max_srq", a.MaxSRQ}} {
		line(1, n.name, "%d", n.v)
	}
	if a.MaxSRQ > 0 {
		line(1, "max_srq_wr", "%d", a.MaxSRQWR)
		line(1, "max_srq_sge", "%d", a.MaxSRQSGE)
	}
	line(1, "max_pkeys", "%d", a.MaxPKeys)
	line(1, "local_ca_ack_delay", "%d", a.AckDelay)
	odp(line, a)
	extended(line, a)
	line(1, "num_comp_vectors", "%d", a.CompVectors)
	for _, name := range sorted(a.Features) {
		if why := a.Features[name]; why == "" {
			line(1, "feature", "%s", name)
		} else {
			line(1, "no feature", "%s", why)
		}
	}
}

func odp(line liner, a *inventory.Attributes) {
	line(1, "general_odp_caps:", "")
	for _, name := range bitNames(a.ODPGeneral, "ODP_SUPPORT", "ODP_SUPPORT_IMPLICIT") {
		line(5, name, "")
	}
	for _, t := range []struct {
		name string
		bits uint32
	}{{"rc_odp_caps", a.ODPRC}, {"uc_odp_caps", a.ODPUC}, {"ud_odp_caps", a.ODPUD}, {"xrc_odp_caps", a.ODPXRC}} {
		names := bitNames(uint64(t.bits), "SUPPORT_SEND", "SUPPORT_RECV", "SUPPORT_WRITE", "SUPPORT_READ", "SUPPORT_ATOMIC", "SUPPORT_SRQ")
		if t.bits == 0 {
			names = []string{"NO SUPPORT"}
		}
		line(1, t.name, "%s", strings.Join(names, " "))
	}
}

func extended(line liner, a *inventory.Attributes) {
	if a.TimestampMask == 0 {
		line(1, "completion_timestamp_mask not supported", "")
	} else {
		line(1, "completion_timestamp_mask", "0x%016x", a.TimestampMask)
	}
	if a.ClockKHz == 0 {
		line(1, "core clock not supported", "")
	} else {
		line(1, "hca_core_clock", "%dkHZ", a.ClockKHz)
	}
	line(1, "device_cap_flags_ex", "0x%X", a.CapFlags)
	line(1, "rss_caps:", "")
	line(2, "max_rwq_indirection_tables", "%d", a.RSSTables)
	line(2, "max_rwq_indirection_table_size", "%d", a.RSSTableSize)
	line(1, "max_wq_type_rq", "%d", a.MaxWQRQ)
	if a.RawPacketCaps != 0 {
		line(1, "raw packet caps", "%s", strings.Join(bitNames(uint64(a.RawPacketCaps), "C-VLAN stripping offload", "Scatter FCS offload", "IP csum offload", "Delay drop"), ", "))
	}
	if a.MaxTags == 0 {
		line(1, "tag matching not supported", "")
	} else {
		line(1, "max_num_tags", "%d", a.MaxTags)
	}
	if a.ModerationCount > 0 || a.ModerationUsec > 0 {
		line(1, "cq moderation caps:", "")
		line(2, "max_cq_count", "%d", a.ModerationCount)
		line(2, "max_cq_period", "%d us", a.ModerationUsec)
	}
	if a.MaxDMSize > 0 {
		line(1, "maximum available device memory", "%dBytes", a.MaxDMSize)
	}
}

// deviceCaps is enum ib_uverbs_device_cap_flags by the words of ibv_devinfo.
func deviceCaps(flags uint64) []string {
	return bitNames(flags, "RESIZE_MAX_WR", "BAD_PKEY_CNTR", "BAD_QKEY_CNTR", "RAW_MULTI", "AUTO_PATH_MIG", "CHANGE_PHY_PORT", "UD_AV_PORT_ENFORCE",
		"CURR_QP_STATE_MOD", "SHUTDOWN_PORT", "INIT_TYPE", "PORT_ACTIVE_EVENT", "SYS_IMAGE_GUID", "RC_RNR_NAK_GEN", "SRQ_RESIZE", "N_NOTIFY_CQ",
		"", "", "MEM_WINDOW", "UD_IP_CSUM", "", "XRC", "MEM_MGT_EXTENSIONS", "", "MEM_WINDOW_TYPE_2A", "MEM_WINDOW_TYPE_2B", "RC_IP_CSUM",
		"RAW_IP_CSUM", "", "", "MANAGED_FLOW_STEERING")
}

// bitNames names the bits that are set, from the lowest; those without a name by their number.
func bitNames(v uint64, names ...string) (set []string) {
	for b := range 64 {
		switch {
		case v>>b&1 == 0:
		case b < len(names) && names[b] != "":
			set = append(set, names[b])
		default:
			set = append(set, fmt.Sprintf("bit %d", b))
		}
	}
	return set
}

func onePort(line liner, p *inventory.Port) {
	line(2, "port", "%d", p.Number)
	if p.Problem != "" {
		line(3, "problem", "%s", p.Problem)
	}
	line(3, "state", "PORT_%s (%d)", p.State, p.StateCode)
	line(3, "max_mtu", "%d (%d)", p.MaxMTU, p.MaxMTUCode)
	line(3, "active_mtu", "%d (%d)", p.ActiveMTU, p.ActiveMTUCode)
	line(3, "sm_lid", "%d", p.SMLID)
	line(3, "port_lid", "%d", p.LID)
	line(3, "port_lmc", "0x%02x", p.LMC)
	line(3, "link_layer", "%s", p.LinkLayer)
	line(3, "max_msg_sz", "0x%x", p.MaxMsg)
	line(3, "port_cap_flags", "0x%08x", p.CapFlags)
	line(3, "port_cap_flags2", "0x%04x", p.CapFlags2)
	line(3, "max_vl_num", "%s (%d)", lanesOf(p.MaxVL), p.MaxVL)
	line(3, "bad_pkey_cntr", "0x%x", p.BadPKeys)
	line(3, "qkey_viol_cntr", "0x%x", p.QKeyViolations)
	line(3, "sm_sl", "%d", p.SMSL)
	line(3, "pkey_tbl_len", "%d", p.PKeys)
	for _, k := range p.PKeyTable {
		line(3, "pkey", "0x%04x", k)
	}
	line(3, "gid_tbl_len", "%d", p.GIDSlots)
	line(3, "subnet_timeout", "%d", p.SubnetTimeout)
	line(3, "init_type_reply", "%d", p.InitTypeReply)
	line(3, "active_width", "%s (%d)", width(p.Width), p.Width)
	line(3, "active_speed", "%s (%d)", laneSpeed(p.Speed), p.Speed)
	line(3, "speed", "%s Gbit/s", gigabits(p.SpeedMbps))
	line(3, "phys_state", "%s (%d)", p.PhysicalName, p.Physical)
	if p.NetDev != "" {
		line(3, "netdev", "%s", p.NetDev)
	}
}

// lanesOf is the number of virtual lanes of a code.
func lanesOf(code int) string { return word(code, "", "1", "2", "4", "8", "15") }

// width is enum ib_port_width.
func width(code int) string {
	if w := map[int]string{1: "1X", 2: "4X", 4: "8X", 8: "12X", 16: "2X"}[code]; w != "" {
		return w
	}
	return "invalid width"
}

// laneSpeed is enum ib_port_speed by the exact figures of the signal.
func laneSpeed(code int) string {
	if s := map[int]string{1: "2.5", 2: "5.0", 4: "10.0", 8: "10.0", 16: "14.0", 32: "25.0", 64: "50.0", 128: "100.0", 256: "200.0"}[code]; s != "" {
		return s + " Gbps"
	}
	return "invalid speed"
}

func word(i int, words ...string) string {
	if i >= 0 && i < len(words) && words[i] != "" {
		return words[i]
	}
	return "invalid value"
}

func gids(device string, p *inventory.Port) string {
	t := report.Table{Header: []string{"DEV", "PORT", "INDEX", "GID", "IPv4", "VER", "NETDEV"}, Left: []int{0, 3, 4, 5, 6}}
	for _, g := range p.GIDs {
		t.Rows = append(t.Rows, []string{device, strconv.Itoa(p.Number), strconv.Itoa(g.Index), g.GID, g.IPv4, g.Type, g.NetDev})
	}
	return t.String()
}

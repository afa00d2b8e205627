// Package inventory is the RDMA devices of a machine with all that can be asked of them.
package inventory

import (
	"errors"
	"fmt"
	"slices"

	"github.com/purerdma/purerdma/ibverbs"
)

// Device is one device. Numbers are as ibv_devinfo names them.
type Device struct {
	Name     string `json:"name"`
	Index    int    `json:"index"` // the kernel's, -1 if unknown
	Driver   string `json:"driver"`
	NodeType string `json:"node_type"`
	// Transport is what ibv_devinfo says: InfiniBand, which RoCE counts as, or iWARP.
	Transport string `json:"transport"`
	Firmware  string `json:"fw_ver"`
	Board     string `json:"board_id,omitempty"`
	PCI       string `json:"pci,omitempty"`
	NUMANode  int    `json:"numa_node"` // -1 if unknown
	Parent    string `json:"physical_function,omitempty"`
	Bond      string `json:"bond,omitempty"`
	Software  bool   `json:"software"`
	NodeGUID  string `json:"node_guid"`
	SysGUID   string `json:"sys_image_guid"`
	// Problem says why nothing more is known: the device cannot be opened.
	Problem string      `json:"problem,omitempty"`
	Attr    *Attributes `json:"attr,omitempty"`
	Ports   []Port      `json:"ports"`
}

// Attributes is the limits of a device.
type Attributes struct {
	VendorID        uint32 `json:"vendor_id"`
	VendorPartID    uint32 `json:"vendor_part_id"`
	HWVersion       uint32 `json:"hw_ver"`
	MaxMRSize       uint64 `json:"max_mr_size"`
	PageSizes       uint64 `json:"page_size_cap"`
	MaxQP           int    `json:"max_qp"`
	MaxQPWR         int    `json:"max_qp_wr"`
	CapFlags        uint64 `json:"device_cap_flags"`
	MaxSGE          int    `json:"max_sge"`
	MaxSGERead      int    `json:"max_sge_rd"`
	MaxCQ           int    `json:"max_cq"`
	MaxCQE          int    `json:"max_cqe"`
	MaxMR           int    `json:"max_mr"`
	MaxPD           int    `json:"max_pd"`
	MaxQPRdAtomic   int    `json:"max_qp_rd_atom"`
	MaxQPInitRdAtom int    `json:"max_qp_init_rd_atom"`
	Atomics         string `json:"atomic_cap"`
	AtomicCap       int    `json:"atomic_cap_code"`
	MaxMW           int    `json:"max_mw"`
	MaxAH           int    `json:"max_ah"`
	MaxSRQ          int    `json:"max_srq"`
	MaxSRQWR        int    `json:"max_srq_wr"`
	MaxSRQSGE       int    `json:"max_srq_sge"`
	MaxPKeys        int    `json:"max_pkeys"`
	CompVectors     int    `json:"num_comp_vectors"`

	MaxResRdAtomic        int    `json:"max_res_rd_atom"`
	MaxMcastGroups        int    `json:"max_mcast_grp"`
	MaxMcastQPAttach      int    `json:"max_mcast_qp_attach"`
	MaxTotalMcastQPAttach int    `json:"max_total_mcast_qp_attach"`
	AckDelay              int    `json:"local_ca_ack_delay"`
	MaxEERdAtomic         int    `json:"max_ee_rd_atom"`
	MaxEEInitRdAtomic     int    `json:"max_ee_init_rd_atom"`
	MaxEE                 int    `json:"max_ee"`
	MaxRDD                int    `json:"max_rdd"`
	MaxRawIPv6QP          int    `json:"max_raw_ipv6_qp"`
	MaxRawEthyQP          int    `json:"max_raw_ethy_qp"`
	MaxFMR                int    `json:"max_fmr"`
	ODPGeneral            uint64 `json:"general_odp_caps"`
	ODPRC                 uint32 `json:"rc_odp_caps"`
	ODPUC                 uint32 `json:"uc_odp_caps"`
	ODPUD                 uint32 `json:"ud_odp_caps"`
	ODPXRC                uint32 `json:"xrc_odp_caps"`
	TimestampMask         uint64 `json:"completion_timestamp_mask"`
	ClockKHz              uint64 `json:"hca_core_clock_khz"`
	RSSQPTypes            uint32 `json:"rss_supported_qp"`
	RSSTables             int    `json:"max_rwq_indirection_tables"`
	RSSTableSize          int    `json:"max_rwq_indirection_table_size"`
	MaxWQRQ               int    `json:"max_wq_type_rq"`
	RawPacketCaps         uint32 `json:"raw_packet_caps"`
	MaxTags               int    `json:"max_num_tags"`
	ModerationCount       int    `json:"max_cq_moderation_count"`
	ModerationUsec        int    `json:"max_cq_moderation_period_us"`
	MaxDMSize             uint64 `json:"max_dm_size"`
	// Features is what can be asked for beyond these: by name, why each is missing, "" if it is there.
	Features map[string]string `json:"features"`
}

// Port is one port.
type Port struct {
	Number    int    `json:"port"`
	Problem   string `json:"problem,omitempty"` // why nothing more is known
	State     string `json:"state"`
	Physical  int    `json:"phys_state"`
	LinkLayer string `json:"link_layer"`
	SpeedMbps int    `json:"speed_mbps"`
	MaxMTU    int    `json:"max_mtu"`
	ActiveMTU int    `json:"active_mtu"`
	LID       int    `json:"port_lid"`
	SMLID     int    `json:"sm_lid"`
	LMC       int    `json:"port_lmc"`
	MaxMsg    uint32 `json:"max_msg_sz"`
	PKeys     int    `json:"pkey_tbl_len"`
	GIDSlots  int    `json:"gid_tbl_len"`
	GIDs      []GID  `json:"gids"`

	StateCode      int      `json:"state_code"`
	PhysicalName   string   `json:"physical_state"`
	MaxMTUCode     int      `json:"max_mtu_code"`
	ActiveMTUCode  int      `json:"active_mtu_code"`
	CapFlags       uint32   `json:"port_cap_flags"`
	CapFlags2      uint16   `json:"port_cap_flags2"`
	MaxVL          int      `json:"max_vl_num"`
	BadPKeys       uint32   `json:"bad_pkey_cntr"`
	QKeyViolations uint32   `json:"qkey_viol_cntr"`
	SMSL           int      `json:"sm_sl"`
	SubnetTimeout  int      `json:"subnet_timeout"`
	InitTypeReply  int      `json:"init_type_reply"`
	Width          int      `json:"active_width"`
	Speed          int      `json:"active_speed"`
	NetDev         string   `json:"netdev,omitempty"`
	NetDevIndex    int      `json:"netdev_index,omitempty"`
	PKeyTable      []uint16 `json:"pkeys,omitempty"` // without empty entries
}

// GID is one used slot.
type GID struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	IPv4   string `json:"ipv4,omitempty"`
	Type   string `json:"type"`
	NetDev string `json:"netdev"` // "" if it is in another network namespace
}

// Take asks all devices, or the named ones. What is wrong with one is in its Problem, and hides no other; the error is for the list
// itself, beside what was found, and for names that are nobody's.
func Take(names []string, opts ...ibverbs.Option) ([]Device, error) {
	found, listErr := ibverbs.Devices(opts...)
	errs := []error{listErr}
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	all := []Device{}
	for _, d := range found {
		if len(names) == 0 || wanted[d.Info().Name] {
			delete(wanted, d.Info().Name)
			all = append(all, take(d))
		}
	}
	for _, n := range names {
		if wanted[n] {
			errs = append(errs, fmt.Errorf("no RDMA device is called %q; purerdma devices lists them", n))
		}
	}
	return all, errors.Join(errs...)
}

// GUID prints as ibv_devinfo does: "0c42:a103:0012:3456".
func GUID(v uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(v>>48), uint16(v>>32), uint16(v>>16), uint16(v))
}

func take(d *ibverbs.Device) Device {
	in := d.Info()
	out := Device{Name: in.Name, Index: in.Index, Driver: in.Driver, Firmware: in.Firmware, Board: in.Board, PCI: in.PCI, NUMANode: in.NUMANode, Software: in.Software,
		NodeType: in.NodeType.String(), Transport: in.NodeType.Transport(), Parent: in.Parent, Bond: in.Bond,
		NodeGUID: GUID(in.NodeGUID), SysGUID: GUID(in.SysGUID), Ports: []Port{}}
	dev, err := d.Open()
	if err != nil {
		out.Problem = err.Error()
		return out
	}
	defer dev.Close()
	a, err := dev.Query()
	if err != nil {
		out.Problem = err.Error()
		return out
	}
	out.Attr = attributes(dev, &a)
	if out.Firmware == "" {
		out.Firmware = a.Firmware
	}
	for n := 1; n <= in.Ports; n++ {
		out.Ports = append(out.Ports, port(dev, n))
	}
	return out
}

var features = []ibverbs.Feature{ibverbs.FeatureAtomics, ibverbs.FeatureUC, ibverbs.FeatureUD, ibverbs.FeatureAH, ibverbs.FeatureSRQ,
	ibverbs.FeatureMW2, ibverbs.FeatureMulticast, ibverbs.FeatureResizeCQ, ibverbs.FeatureModerateCQ, ibverbs.FeatureDMABuf,
	ibverbs.FeatureOnDemand, ibverbs.FeatureFlowLabelPort, ibverbs.FeatureECE, ibverbs.FeatureReregMR, ibverbs.FeatureResizeSRQ,
	ibverbs.FeatureMW1}

func attributes(dev *ibverbs.Context, a *ibverbs.DeviceAttr) *Attributes {
	out := &Attributes{VendorID: a.VendorID, VendorPartID: a.VendorPartID, HWVersion: a.HWVersion, MaxMRSize: a.MaxMRSize, PageSizes: a.PageSizes,
		MaxQP: a.MaxQP, MaxQPWR: a.MaxQPWR, CapFlags: a.CapFlags, MaxSGE: a.MaxSGE, MaxSGERead: a.MaxSGERead, MaxCQ: a.MaxCQ, MaxCQE: a.MaxCQE,
		MaxMR: a.MaxMR, MaxPD: a.MaxPD, MaxQPRdAtomic: a.MaxQPRdAtomic, MaxQPInitRdAtom: a.MaxQPInitRdAtom, Atomics: atomics(a.AtomicCap), AtomicCap: a.AtomicCap,
		MaxMW: a.MaxMW, MaxAH: a.MaxAH, MaxSRQ: a.MaxSRQ, MaxSRQWR: a.MaxSRQWR, MaxSRQSGE: a.MaxSRQSGE, MaxPKeys: a.MaxPKeys,
		CompVectors: a.CompVectors, MaxResRdAtomic: a.MaxResRdAtomic, MaxMcastGroups: a.MaxMcastGrp, MaxMcastQPAttach: a.MaxMcastQPAttach,
		MaxTotalMcastQPAttach: a.MaxTotalMcastQPAttach, AckDelay: a.AckDelay, Features: map[string]string{}}
	old := &a.Obsolete
	out.MaxEERdAtomic, out.MaxEEInitRdAtomic, out.MaxEE, out.MaxRDD = old.MaxEERdAtomic, old.MaxEEInitRdAtomic, old.MaxEE, old.MaxRDD
	out.MaxRawIPv6QP, out.MaxRawEthyQP, out.MaxFMR = old.MaxRawIPv6QP, old.MaxRawEthyQP, old.MaxFMR
	x := &a.Ext
	out.ODPGeneral, out.ODPRC, out.ODPUC, out.ODPUD, out.ODPXRC = x.ODP.General, x.ODP.RC, x.ODP.UC, x.ODP.UD, x.ODP.XRC
	out.TimestampMask, out.ClockKHz, out.MaxWQRQ, out.RawPacketCaps = x.TimestampMask, x.ClockKHz, x.MaxWQRQ, x.RawPacketCaps
	out.RSSQPTypes, out.RSSTables, out.RSSTableSize = x.RSS.QPTypes, x.RSS.MaxTables, x.RSS.MaxTableSize
	out.MaxTags, out.ModerationCount, out.ModerationUsec, out.MaxDMSize = x.TM.MaxTags, x.ModerationCount, x.ModerationUsec, x.MaxDMSize
	for _, f := range features {
		why := ""
		if err := dev.Probe(f); err != nil {
			why = err.Error()
			var not *ibverbs.NotSupportedError
			if errors.As(err, &not) {
				why = not.Error()
			}
		}
		out.Features[string(f)] = why
	}
	return out
}

// atomics is enum ibv_atomic_cap.
func atomics(v int) string {
	if words := [...]string{"ATOMIC_NONE", "ATOMIC_HCA", "ATOMIC_GLOB"}; v >= 0 && v < len(words) {
		return words[v]
	}
	return fmt.Sprintf("atomic_cap %d", v)
}

func port(dev *ibverbs.Context, n int) Port {
	p := Port{Number: n, GIDs: []GID{}}
	a, err := dev.Port(n)
	if err != nil {
		p.Problem = err.Error()
		return p
	}
	p.State, p.Physical, p.LinkLayer, p.SpeedMbps = a.State.String(), int(a.PhysState), a.LinkLayer.String(), a.SpeedMbps
	p.MaxMTU, p.ActiveMTU = a.MaxMTU.Bytes(), a.ActiveMTU.Bytes()
	p.StateCode, p.PhysicalName, p.MaxMTUCode, p.ActiveMTUCode = int(a.State), a.PhysStateName(), int(a.MaxMTU), int(a.ActiveMTU)
	p.CapFlags, p.CapFlags2, p.MaxVL, p.BadPKeys, p.QKeyViolations = a.CapFlags, a.CapFlags2, int(a.MaxVL), a.BadPKeys, a.QKeyViolations
	p.SMSL, p.SubnetTimeout, p.InitTypeReply = int(a.SMSL), int(a.SubnetTimeout), int(a.InitTypeReply)
	p.Width, p.Speed = int(a.ActiveWidth), int(a.ActiveSpeed)
	p.LID, p.SMLID, p.LMC, p.MaxMsg, p.PKeys, p.GIDSlots = int(a.LID), int(a.SMLID), int(a.LMC), a.MaxMsgSize, a.PKeyLen, a.GIDTableLen
	gids, err := dev.GIDs(n)
	if err != nil {
		p.Problem = err.Error()
	}
	// Neither is worth a word where it is not known.
	p.NetDev, p.NetDevIndex, _ = dev.NetDevice(n)
	keys, _ := dev.PKeys(n)
	p.PKeyTable = slices.DeleteFunc(keys, func(k uint16) bool { return k == 0 })
	for _, g := range gids {
		out := GID{Index: g.Index, GID: g.GID.String(), Type: g.Type.String(), NetDev: g.NetDev}
		if a := g.GID.Addr(); a.Is4() {
			out.IPv4 = a.String()
		}
		p.GIDs = append(p.GIDs, out)
	}
	return p
}

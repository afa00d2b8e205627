package driver

import (
	"fmt"
	"net/netip"
)

// GID is a global identifier (union ibv_gid): 16 bytes as on the wire. On RoCE
// it is an IPv6 address, or an IPv4 address mapped into IPv6.
type GID [16]byte

// Addr is the GID as an address, IPv4 where it is a mapped one.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IsZero reports whether it is the empty GID.
func (g GID) IsZero() bool { return g == GID{} }

// String is the address form, "::ffff:10.0.0.1" for a mapped IPv4 address.
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// MarshalText is the text of String, for JSON and flags.
func (g GID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText takes an IPv6 address, or an IPv4 address for a mapped one. A
// zone is refused: a GID has none.
func (g *GID) UnmarshalText(text []byte) error {
	a, err := netip.ParseAddr(string(text))
	if err != nil {
		return fmt.Errorf("GID %q: %w", text, err)
	}
	if a.Zone() != "" {
		return fmt.Errorf("GID %q: a GID has no zone", text)
	}
	*g = a.As16()
	return nil
}

// MTU is enum ibv_mtu: 1 is 256 bytes, 5 is 4096.
type MTU uint8

// Path MTUs.
const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// Valid reports whether m is one of the five of the IBTA.
func (m MTU) Valid() bool { return m >= MTU256 && m <= MTU4096 }

// Bytes is the size in bytes, 0 for a value that is not valid.
func (m MTU) Bytes() int {
	if !m.Valid() {
		return 0
	}
	return 128 << m
}

// String is the size in bytes.
func (m MTU) String() string {
	if !m.Valid() {
		return fmt.Sprintf("MTU(%d)", uint8(m))
	}
	return fmt.Sprint(m.Bytes())
}

// GIDType is how packets of a GID look on the wire (enum ibv_gid_type).
type GIDType uint8

// GID types.
const (
	GIDTypeIB     GIDType = 0
	GIDTypeRoCEv1 GIDType = 1
	GIDTypeRoCEv2 GIDType = 2
)

// String is the kernel's word in sysfs; "IB/RoCE v1" covers both of those.
func (t GIDType) String() string {
	switch t {
	case GIDTypeIB:
		return "IB"
	case GIDTypeRoCEv1:
		return "RoCE v1"
	case GIDTypeRoCEv2:
		return "RoCE v2"
	}
	return fmt.Sprintf("GIDType(%d)", uint8(t))
}

// GIDEntry is one used slot of a port's GID table (struct ibv_gid_entry).
// NetDev is empty if the net device is in another network namespace; IfIndex
// is 0 where there is none.
type GIDEntry struct {
	GID     GID
	Index   int
	IfIndex int
	Type    GIDType
	NetDev  string
}

// DeviceInfo is what is known of a device without opening it. PCI is empty for
// software devices, NUMANode -1 if unknown.
type DeviceInfo struct {
	Name     string // "mlx5_0"; udev may change it
	Index    int    // the kernel's, which stays while the device does; -1 if unknown
	Driver   string // "mlx5"
	Firmware string // "16.35.4030"
	Board    string // "MT_0000000223", empty if the kernel driver does not tell
	PCI      string // "0000:3b:00.0"
	NodeGUID uint64 // host byte order
	SysGUID  uint64 // sys_image_guid, host byte order
	Ports    int    // numbered from 1
	NUMANode int
	// Software is true for a device that moves its packets with the processor.
	// Such devices are listed after hardware.
	Software bool
	NodeType NodeType
	// Bond is the bonding net device whose slaves the device drives as one
	// (RoCE LAG), empty for none.
	Bond string
	// Parent is the PCI address of the physical function of a virtual one
	// (SR-IOV), empty for others.
	Parent string
}

// DeviceAttr is the limits of an open device (struct ibv_device_attr). Sizes
// are bytes, the rest are counts.
type DeviceAttr struct {
	Firmware        string
	NodeGUID        uint64
	SysGUID         uint64
	VendorID        uint32
	VendorPartID    uint32
	HWVersion       uint32
	MaxMRSize       uint64
	PageSizes       uint64 // bit n: pages of 2^n bytes
	MaxQP           int
	MaxQPWR         int
	MaxSGE          int
	MaxSGERead      int // entries of a read request
	MaxCQ           int
	MaxCQE          int
	MaxMR           int
	MaxPD           int
	MaxQPRdAtomic   int // reads and atomics that a QP takes in flight from its peer
	MaxQPInitRdAtom int // and that it starts
	MaxSRQ          int
	MaxSRQWR        int
	MaxSRQSGE       int
	MaxMW           int
	MaxAH           int
	MaxMcastGrp     int
	MaxPKeys        int
	Ports           int
	CapFlags        uint64 // enum ibv_device_cap_flags
	AtomicCap       int    // enum ibv_atomic_cap: 0 none, 1 within the device, 2 with the processor too
	CompVectors     int

	MaxResRdAtomic        int // reads and atomics of all QPs together
	MaxMcastQPAttach      int // QPs of one multicast group
	MaxTotalMcastQPAttach int
	AckDelay              int // local_ca_ack_delay: 4.096 µs × 2^AckDelay, which peers' timeouts have to exceed
	Obsolete              ObsoleteLimits
	Ext                   ExtendedAttr
}

// ObsoleteLimits is what struct ibv_device_attr carries of reliable and raw
// datagrams and fast memory regions. ibv_devinfo -v prints it; mostly all is 0.
type ObsoleteLimits struct {
	MaxEERdAtomic, MaxEEInitRdAtomic, MaxEE, MaxRDD, MaxRawIPv6QP, MaxRawEthyQP, MaxFMR, MaxMapPerFMR int
}

// ExtendedAttr is what struct ibv_device_attr_ex adds; zero where the kernel or
// the device does not tell.
type ExtendedAttr struct {
	ODP             ODPCaps
	TimestampMask   uint64 // valid bits of a completion's time stamp
	ClockKHz        uint64 // of the time stamps
	RSS             RSSCaps
	MaxWQRQ         int // work queues for receiving
	RawPacketCaps   uint32
	TM              TagMatchingCaps
	ModerationCount int // most completions that one event may stand for
	ModerationUsec  int // longest that an event may wait for them
	MaxDMSize       uint64
}

// ODPCaps is what on-demand paging can (struct ibv_odp_caps): bits of enum
// ibv_odp_general_caps, and for each transport of enum ibv_odp_transport_cap_bits.
type ODPCaps struct {
	General         uint64
	RC, UC, UD, XRC uint32
}

// RSSCaps is struct ibv_rss_caps as far as the kernel has it.
type RSSCaps struct {
	QPTypes      uint32 // bit n: enum ibv_qp_type n
	MaxTables    int
	MaxTableSize int
}

// TagMatchingCaps is struct ibv_tm_caps.
type TagMatchingCaps struct {
	MaxRendezvousHeader, MaxTags, MaxOps, MaxSGE int
	Flags                                        uint32
}

// NodeType is enum ibv_node_type.
type NodeType uint8

// Types of nodes.
const (
	NodeUnknown NodeType = 0
	NodeCA      NodeType = 1
	NodeSwitch  NodeType = 2
	NodeRouter  NodeType = 3
	NodeRNIC    NodeType = 4
)

// Transport is what ibv_devinfo says that nodes of this type speak: InfiniBand,
// which RoCE counts as, or iWARP.
func (n NodeType) Transport() string {
	switch n {
	case NodeCA, NodeSwitch, NodeRouter:
		return "InfiniBand"
	case NodeRNIC:
		return "iWARP"
	}
	return "unknown"
}

// String is the word of sysfs and of rdma dev.
func (n NodeType) String() string {
	switch n {
	case NodeCA:
		return "CA"
	case NodeSwitch:
		return "switch"
	case NodeRouter:
		return "router"
	case NodeRNIC:
		return "RNIC"
	}
	return fmt.Sprintf("NodeType(%d)", uint8(n))
}

// PhysStateName is the word of ibv_devinfo and rdma link for PhysState.
func (a *PortAttr) PhysStateName() string {
	names := [...]string{"NOP", "SLEEP", "POLLING", "DISABLED", "PORT_CONFIGURATION_TRAINING", "LINK_UP", "LINK_ERROR_RECOVERY", "PHY_TEST"}
	if int(a.PhysState) < len(names) {
		return names[a.PhysState]
	}
	return fmt.Sprintf("physical state %d", a.PhysState)
}

// LinkLayer is what runs under a port.
type LinkLayer uint8

// Link layers, IBV_LINK_LAYER_….
const (
	LinkUnspecified LinkLayer = 0
	LinkInfiniBand  LinkLayer = 1
	LinkEthernet    LinkLayer = 2
)

// String is the word of sysfs and ibv_devinfo.
func (l LinkLayer) String() string {
	switch l {
	case LinkInfiniBand:
		return "InfiniBand"
	case LinkEthernet:
		return "Ethernet"
	}
	return "Unspecified"
}

// PortState is enum ibv_port_state.
type PortState uint8

// Port states.
const (
	PortNop         PortState = 0
	PortDown        PortState = 1
	PortInit        PortState = 2
	PortArmed       PortState = 3
	PortActive      PortState = 4
	PortActiveDefer PortState = 5
)

// String is the word that ibv_devinfo prints.
func (s PortState) String() string {
	switch s {
	case PortNop:
		return "NOP"
	case PortDown:
		return "DOWN"
	case PortInit:
		return "INIT"
	case PortArmed:
		return "ARMED"
	case PortActive:
		return "ACTIVE"
	case PortActiveDefer:
		return "ACTIVE_DEFER"
	}
	return fmt.Sprintf("PortState(%d)", uint8(s))
}

// PortAttr is the state of a port (struct ibv_port_attr).
type PortAttr struct {
	State       PortState
	LinkLayer   LinkLayer
	MaxMTU      MTU
	ActiveMTU   MTU
	LID         uint16
	SMLID       uint16
	LMC         uint8
	GIDTableLen int
	PKeyLen     int
	MaxMsgSize  uint32 // bytes
	SpeedMbps   int    // signal rate of all lanes in 10^6 bit/s, 0 if unknown
	ActiveWidth uint8  // the kernel's code: 1, 2, 4, 8, 16 are 1X, 4X, 8X, 12X, 2X
	ActiveSpeed uint32 // the kernel's code of a lane's rate
	PhysState   uint8
	CapFlags    uint32
	CapFlags2   uint16

	MaxVL          uint8 // the kernel's code: 1, 2, 3, 4, 5 are 1, 2, 4, 8, 15 virtual lanes
	SMSL           uint8
	SubnetTimeout  uint8
	InitTypeReply  uint8
	Flags          uint8 // IBV_QPF_GRH_REQUIRED
	BadPKeys       uint32
	QKeyViolations uint32
}

// AHAttr is the way to a peer (struct ibv_ah_attr). On Ethernet IsGlobal must
// be true; DLID counts on InfiniBand only.
type AHAttr struct {
	DGID         GID
	SGIDIndex    int
	Port         int // local port, from 1
	FlowLabel    uint32
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8
	DLID         uint16
	SrcPathBits  uint8
	StaticRate   uint8
	IsGlobal     bool
}

// QPType is enum ibv_qp_type.
type QPType uint8

// Types of queue pairs.
const (
	RC QPType = 2
	UC QPType = 3
	UD QPType = 4
)

// String is the verbs' word.
func (t QPType) String() string {
	switch t {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case UD:
		return "UD"
	}
	return fmt.Sprintf("QPType(%d)", uint8(t))
}

// QPState is enum ibv_qp_state.
type QPState uint8

// States of a queue pair. Receives may be posted from Init on, sends from RTS.
const (
	StateReset QPState = 0
	StateInit  QPState = 1
	StateRTR   QPState = 2
	StateRTS   QPState = 3
	StateSQD   QPState = 4
	StateSQE   QPState = 5
	StateErr   QPState = 6
)

// String is the verbs' word.
func (s QPState) String() string {
	names := [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("QPState(%d)", uint8(s))
}

// QPCap is the sizes of a queue pair (struct ibv_qp_cap). Inline is bytes.
type QPCap struct {
	SendWR, RecvWR   int
	SendSGE, RecvSGE int
	Inline           int
}

// QPConfig is what CreateQP makes. Cap is what is asked for; QP.Cap says what
// was made, never less. Cookie comes back in events about the QP. SRQ is nil
// for a QP with a receive queue of its own.
type QPConfig struct {
	Type           QPType
	SendCQ, RecvCQ CQ
	SRQ            SRQ
	Cap            QPCap
	SignalAll      bool // every request is signaled
	Cookie         uint64
}

// CQConfig is what CreateCQ makes. A nil Channel means no events.
type CQConfig struct {
	Depth   int
	Vector  int
	Channel CompChannel
	Cookie  uint64 // comes back in events
}

// SRQAttr is the sizes of an SRQ (struct ibv_srq_attr): receives that fit,
// scatter entries of each, and the low-water mark that is armed, 0 for none.
type SRQAttr struct{ WR, SGE, Limit int }

// SRQConfig is what CreateSRQ makes. Limit is the low-water mark that raises an
// event, 0 for none.
type SRQConfig struct {
	WR, SGE int
	Limit   int
	Cookie  uint64
}

// DMABuf is a range of a dma-buf. The descriptor is borrowed for the call.
type DMABuf struct {
	FD     int
	Offset uint64
	Length uint64
	IOVA   uint64 // the address that work requests use; its in-page offset is Offset's
}

// QPMask is enum ibv_qp_attr_mask: which fields of a QPAttr count.
type QPMask uint32

// Fields of a QPAttr.
const (
	QPStateMask        QPMask = 1 << 0
	QPCurState         QPMask = 1 << 1
	QPEnSQDAsyncNotify QPMask = 1 << 2
	QPAccessFlags      QPMask = 1 << 3
	QPPKeyIndex        QPMask = 1 << 4
	QPPort             QPMask = 1 << 5
	QPQKey             QPMask = 1 << 6
	QPAV               QPMask = 1 << 7
	QPPathMTU          QPMask = 1 << 8
	QPTimeout          QPMask = 1 << 9
	QPRetryCnt         QPMask = 1 << 10
	QPRNRRetry         QPMask = 1 << 11
	QPRQPSN            QPMask = 1 << 12
	QPMaxQPRdAtomic    QPMask = 1 << 13
	QPAltPath          QPMask = 1 << 14
	QPMinRNRTimer      QPMask = 1 << 15
	QPSQPSN            QPMask = 1 << 16
	QPMaxDestRdAtomic  QPMask = 1 << 17
	QPPathMigState     QPMask = 1 << 18
	QPCapMask          QPMask = 1 << 19
	QPDestQPN          QPMask = 1 << 20
	QPRateLimit        QPMask = 1 << 25
)

// QPAttr is the attributes of a queue pair (struct ibv_qp_attr).
type QPAttr struct {
	State           QPState
	CurState        QPState
	PathMTU         MTU
	QKey            uint32
	RQPSN           uint32 // 24 bits; the first the peer sends
	SQPSN           uint32 // 24 bits; the first we send
	DestQPN         uint32
	Access          Access // remote rights that the QP grants
	Cap             QPCap  // Query only
	AH              AHAttr
	PKeyIndex       uint16
	EnSQDNotify     bool
	SQDraining      bool // Query only
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8
	MinRNRTimer     uint8 // code of 5 bits, 12 is 0.64 ms
	Port            int
	Timeout         uint8 // 4.096 µs × 2^Timeout, 0 is for ever
	RetryCnt        uint8 // 0 to 7
	RNRRetry        uint8 // 0 to 7, 7 is for ever
}

// Event is an asynchronous event (struct ibv_async_event). Port is set for
// events about a port, Cookie is the object's for events about a CQ, QP or SRQ.
type Event struct {
	Type   EventType
	Port   int
	Cookie uint64
}

// EventType is enum ibv_event_type.
type EventType uint8

// Asynchronous events.
const (
	EventCQErr            EventType = 0
	EventQPFatal          EventType = 1
	EventQPReqErr         EventType = 2
	EventQPAccessErr      EventType = 3
	EventCommEst          EventType = 4
	EventSQDrained        EventType = 5
	EventPathMig          EventType = 6
	EventPathMigErr       EventType = 7
	EventDeviceFatal      EventType = 8
	EventPortActive       EventType = 9
	EventPortErr          EventType = 10
	EventLIDChange        EventType = 11
	EventPKeyChange       EventType = 12
	EventSMChange         EventType = 13
	EventSRQErr           EventType = 14
	EventSRQLimitReached  EventType = 15
	EventQPLastWQEReached EventType = 16
	EventClientReregister EventType = 17
	EventGIDChange        EventType = 18
	EventWQFatal          EventType = 19
)

// Concerns says what kind of object an event is about.
func (e EventType) Concerns() string {
	switch e {
	case EventCQErr:
		return "CQ"
	case EventQPFatal, EventQPReqErr, EventQPAccessErr, EventCommEst, EventSQDrained, EventPathMig,
		EventPathMigErr, EventQPLastWQEReached:
		return "QP"
	case EventSRQErr, EventSRQLimitReached:
		return "SRQ"
	case EventPortActive, EventPortErr, EventLIDChange, EventPKeyChange, EventSMChange,
		EventClientReregister, EventGIDChange:
		return "port"
	}
	return "device"
}

// String is the verbs' name, IBV_EVENT_PORT_ERR for example.
func (e EventType) String() string {
	names := [...]string{
		"CQ_ERR", "QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "COMM_EST", "SQ_DRAINED", "PATH_MIG",
		"PATH_MIG_ERR", "DEVICE_FATAL", "PORT_ACTIVE", "PORT_ERR", "LID_CHANGE", "PKEY_CHANGE", "SM_CHANGE",
		"SRQ_ERR", "SRQ_LIMIT_REACHED", "QP_LAST_WQE_REACHED", "CLIENT_REREGISTER", "GID_CHANGE", "WQ_FATAL",
	}
	if int(e) < len(names) {
		return "IBV_EVENT_" + names[e]
	}
	return fmt.Sprintf("IBV_EVENT %d", uint8(e))
}

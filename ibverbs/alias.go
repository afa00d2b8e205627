package ibverbs

import "github.com/purerdma/purerdma/ibverbs/driver"

// What users need of the seam below, under the same names. The fields are at
// package ibverbs/driver.
type (
	// SendWR is one request of a send queue (struct ibv_send_wr): ID, Op,
	// Flags, Imm; SGL for registered memory or Inline for bytes that are
	// copied while posting; Remote for writes, reads and atomics; CompareAdd
	// and Swap for atomics. All of it may be reused as soon as PostSend has
	// returned.
	SendWR = driver.SendWR
	// RecvWR is one entry of a receive queue (struct ibv_recv_wr): ID, and
	// SGL, the memory that the device fills.
	RecvWR = driver.RecvWR
	// SGE is a piece of registered memory (struct ibv_sge): Addr, Length in
	// bytes, LKey. MR.SGE makes one.
	SGE = driver.SGE
	// Remote is memory of the peer: Addr and RKey. MR.Remote makes it there.
	Remote = driver.Remote
	// Destination is where a datagram goes. AH.To makes it.
	Destination = driver.Destination
	// BindMW is what an OpBindMW binds. MW.Bind makes it.
	BindMW = driver.BindMW
	// SRQConfig is what CreateSRQ makes: WR receives with up to SGE scatter
	// entries each; Limit is the low-water mark that raises an event, 0 for
	// none.
	SRQConfig = driver.SRQConfig
	// SRQAttr is the sizes of an SRQ (struct ibv_srq_attr): WR, SGE, and the
	// Limit that is armed.
	SRQAttr = driver.SRQAttr
	// WC is one completion (struct ibv_wc): ID, Status, Op, Flags, ByteLen,
	// Imm, QPN, VendorErr and, for datagrams, SrcQP and path. Unless Status is
	// Success only ID, Status, VendorErr and QPN mean anything. CQ.Err makes
	// an error of it.
	WC = driver.WC
	// Opcode is what a request does (enum ibv_wr_opcode), OpWrite for example.
	Opcode = driver.Opcode
	// SendFlags is flags of a request (enum ibv_send_flags): Signaled, Fence,
	// Solicited. SendWR.Inline stands for IBV_SEND_INLINE.
	SendFlags = driver.SendFlags
	// WCOpcode is what a completion is of (enum ibv_wc_opcode); IsRecv tells
	// the two queues apart.
	WCOpcode = driver.WCOpcode
	// WCFlags is flags of a completion (enum ibv_wc_flags): WCWithImm, WCGRH,
	// WCWithInv.
	WCFlags = driver.WCFlags
	// Status is how a request ended (enum ibv_wc_status). It is an error, so
	// errors.Is(err, RetryExcErr) asks for one; its text is the verbs' name.
	Status = driver.Status
	// Access is rights of a registration or a QP (enum ibv_access_flags).
	Access = driver.Access
	// Memory is what can be registered: *mr.Buffer. No other module can make
	// one that is not empty, so Go memory cannot be registered.
	Memory = driver.Memory
	// GID is a global identifier (union ibv_gid), 16 bytes as on the wire: on
	// RoCE an IPv6 address, or an IPv4 address mapped into one. Addr is it as
	// an address.
	GID = driver.GID
	// GIDType is how packets of a GID look on the wire: InfiniBand, RoCE v1 or
	// RoCE v2.
	GIDType = driver.GIDType
	// GIDEntry is one used slot of a port's GID table (struct ibv_gid_entry):
	// GID, Index, Type, NetDev, IfIndex. NetDev is empty if it is in another
	// network namespace.
	GIDEntry = driver.GIDEntry
	// MTU is a path MTU by its code (enum ibv_mtu): 1 is 256 bytes, 5 is 4096.
	// Bytes is the size.
	MTU = driver.MTU
	// LinkLayer is what runs under a port: InfiniBand or Ethernet.
	LinkLayer = driver.LinkLayer
	// PortState is the state of a port (enum ibv_port_state). Only PortActive
	// carries traffic.
	PortState = driver.PortState
	// PortAttr is the state of a port (struct ibv_port_attr): State,
	// LinkLayer, ActiveMTU, MaxMTU, LID, SpeedMbps and the sizes of its
	// tables.
	PortAttr = driver.PortAttr
	// DeviceInfo is what is known of a device without opening it: Name, Index,
	// Driver, Firmware, Board, PCI, NodeGUID, SysGUID, Ports, NUMANode,
	// Software, NodeType, Bond, Parent.
	DeviceInfo = driver.DeviceInfo
	// DeviceAttr is the limits of an open device (struct ibv_device_attr):
	// MaxQP, MaxQPWR, MaxSGE, MaxCQE, MaxMRSize and so on.
	DeviceAttr = driver.DeviceAttr
	// AHAttr is the way to a peer (struct ibv_ah_attr): DGID, SGIDIndex, Port,
	// TrafficClass, FlowLabel, HopLimit, SL, DLID. On Ethernet IsGlobal must
	// be true.
	AHAttr = driver.AHAttr
	// QPType is the transport of a QP (enum ibv_qp_type).
	QPType = driver.QPType
	// QPState is the state of a QP (enum ibv_qp_state). Receives may be posted
	// from Init on, sends from RTS.
	QPState = driver.QPState
	// QPCap is the sizes of a QP (struct ibv_qp_cap): SendWR, RecvWR, SendSGE,
	// RecvSGE, and Inline in bytes.
	QPCap = driver.QPCap
	// QPAttr is the attributes of a QP (struct ibv_qp_attr), for QP.Modify
	// with a QPMask that says which count, and from QP.Query. Package qp fills
	// them in.
	QPAttr = driver.QPAttr
	// QPMask is which fields of a QPAttr count (enum ibv_qp_attr_mask).
	QPMask = driver.QPMask
	// DMABuf is a range of a dma-buf: FD, Offset, Length, IOVA. The descriptor
	// is borrowed for the call.
	DMABuf = driver.DMABuf
	// EventType is what an asynchronous event is about (enum ibv_event_type).
	EventType = driver.EventType
	// Feature is something that not every device, kernel or driver has, in
	// words; Context.Probe asks for it.
	Feature = driver.Feature
	// Lacks is who lacks a feature: the device, the kernel, the driver or the
	// process.
	Lacks = driver.Lacks
	// Error is every error of the verbs that concerns a device: Op, Device,
	// Object, Peer, Err and Hint. errors.Is finds the errno, the sentinel or
	// the Status beneath. Those of a full or closed queue are shared: they are
	// not to be changed.
	Error = driver.Error
	// CompletionError is a completion that failed: Status, VendorErr, QPN, ID.
	// It unwraps to its Status.
	CompletionError = driver.CompletionError
	// NotSupportedError is the answer to a probe, and to a call that needs
	// what is not there: Feature, By, Since. It matches ErrNotSupported and
	// errors.ErrUnsupported.
	NotSupportedError = driver.NotSupportedError
)

// Operations, enum ibv_wr_opcode.
const (
	OpWrite        = driver.OpWrite
	OpWriteWithImm = driver.OpWriteWithImm
	OpSend         = driver.OpSend
	OpSendWithImm  = driver.OpSendWithImm
	OpRead         = driver.OpRead
	OpCmpSwap      = driver.OpCmpSwap
	OpFetchAdd     = driver.OpFetchAdd
	OpSendWithInv  = driver.OpSendWithInv
	OpLocalInv     = driver.OpLocalInv
	OpBindMW       = driver.OpBindMW
)

// Flags of a request, enum ibv_send_flags.
const (
	Fence     = driver.Fence
	Signaled  = driver.Signaled
	Solicited = driver.Solicited
)

// Completions, enum ibv_wc_opcode and enum ibv_wc_flags.
const (
	WCSend             = driver.WCSend
	WCWrite            = driver.WCWrite
	WCRead             = driver.WCRead
	WCCmpSwap          = driver.WCCmpSwap
	WCFetchAdd         = driver.WCFetchAdd
	WCBindMW           = driver.WCBindMW
	WCLocalInv         = driver.WCLocalInv
	WCRecv             = driver.WCRecv
	WCRecvWriteWithImm = driver.WCRecvWriteWithImm

	WCGRH     = driver.WCGRH
	WCWithImm = driver.WCWithImm
	WCWithInv = driver.WCWithInv
)

// How a request ended, enum ibv_wc_status.
const (
	Success        = driver.Success
	LocLenErr      = driver.LocLenErr
	LocQPOpErr     = driver.LocQPOpErr
	LocProtErr     = driver.LocProtErr
	WRFlushErr     = driver.WRFlushErr
	MWBindErr      = driver.MWBindErr
	BadRespErr     = driver.BadRespErr
	LocAccessErr   = driver.LocAccessErr
	RemInvReqErr   = driver.RemInvReqErr
	RemAccessErr   = driver.RemAccessErr
	RemOpErr       = driver.RemOpErr
	RetryExcErr    = driver.RetryExcErr
	RNRRetryExcErr = driver.RNRRetryExcErr
	FatalErr       = driver.FatalErr
	GeneralErr     = driver.GeneralErr
)

// Rights, enum ibv_access_flags. Remote rights to write need LocalWrite too.
const (
	LocalWrite      = driver.LocalWrite
	RemoteWrite     = driver.RemoteWrite
	RemoteRead      = driver.RemoteRead
	RemoteAtomic    = driver.RemoteAtomic
	MWBind          = driver.MWBind
	ZeroBased       = driver.ZeroBased
	OnDemand        = driver.OnDemand
	HugeTLB         = driver.HugeTLB
	RelaxedOrdering = driver.RelaxedOrdering
)

// Types and states of queue pairs.
const (
	RC = driver.RC
	UC = driver.UC
	UD = driver.UD

	StateReset = driver.StateReset
	StateInit  = driver.StateInit
	StateRTR   = driver.StateRTR
	StateRTS   = driver.StateRTS
	StateSQD   = driver.StateSQD
	StateSQE   = driver.StateSQE
	StateErr   = driver.StateErr
)

// Fields of a QPAttr, enum ibv_qp_attr_mask.
const (
	QPStateMask       = driver.QPStateMask
	QPCurState        = driver.QPCurState
	QPAccessFlags     = driver.QPAccessFlags
	QPPKeyIndex       = driver.QPPKeyIndex
	QPPort            = driver.QPPort
	QPQKey            = driver.QPQKey
	QPAV              = driver.QPAV
	QPPathMTU         = driver.QPPathMTU
	QPTimeout         = driver.QPTimeout
	QPRetryCnt        = driver.QPRetryCnt
	QPRNRRetry        = driver.QPRNRRetry
	QPRQPSN           = driver.QPRQPSN
	QPMaxQPRdAtomic   = driver.QPMaxQPRdAtomic
	QPMinRNRTimer     = driver.QPMinRNRTimer
	QPSQPSN           = driver.QPSQPSN
	QPMaxDestRdAtomic = driver.QPMaxDestRdAtomic
	QPDestQPN         = driver.QPDestQPN
)

// Path MTUs, link layers, port states and GID types.
const (
	MTU256  = driver.MTU256
	MTU512  = driver.MTU512
	MTU1024 = driver.MTU1024
	MTU2048 = driver.MTU2048
	MTU4096 = driver.MTU4096

	LinkInfiniBand = driver.LinkInfiniBand
	LinkEthernet   = driver.LinkEthernet

	PortDown   = driver.PortDown
	PortInit   = driver.PortInit
	PortArmed  = driver.PortArmed
	PortActive = driver.PortActive

	GIDTypeIB     = driver.GIDTypeIB
	GIDTypeRoCEv1 = driver.GIDTypeRoCEv1
	GIDTypeRoCEv2 = driver.GIDTypeRoCEv2
)

// Asynchronous events that programs act on, enum ibv_event_type.
const (
	EventCommEst          = driver.EventCommEst
	EventSQDrained        = driver.EventSQDrained
	EventSRQErr           = driver.EventSRQErr
	EventSRQLimitReached  = driver.EventSRQLimitReached
	EventQPLastWQEReached = driver.EventQPLastWQEReached
	EventLIDChange        = driver.EventLIDChange
	EventPKeyChange       = driver.EventPKeyChange
	EventClientReregister = driver.EventClientReregister
	EventCQErr            = driver.EventCQErr
	EventQPFatal          = driver.EventQPFatal
	EventQPReqErr         = driver.EventQPReqErr
	EventQPAccessErr      = driver.EventQPAccessErr
	EventDeviceFatal      = driver.EventDeviceFatal
	EventPortActive       = driver.EventPortActive
	EventPortErr          = driver.EventPortErr
	EventGIDChange        = driver.EventGIDChange
)

// Features to ask Context.Probe for.
const (
	FeatureDMABuf        = driver.FeatureDMABuf
	FeatureAtomics       = driver.FeatureAtomics
	FeatureFlowLabelPort = driver.FeatureFlowLabelPort
	FeatureCounters      = driver.FeatureCounters
	FeatureOnDemand      = driver.FeatureOnDemand
	FeatureResizeCQ      = driver.FeatureResizeCQ
	FeatureResizeSRQ     = driver.FeatureResizeSRQ
	FeatureModerateCQ    = driver.FeatureModerateCQ
	FeatureSRQ           = driver.FeatureSRQ
	FeatureAH            = driver.FeatureAH
	FeatureMW1           = driver.FeatureMW1
	FeatureMW2           = driver.FeatureMW2
	FeatureMulticast     = driver.FeatureMulticast
	FeatureECE           = driver.FeatureECE
	FeatureUC            = driver.FeatureUC
	FeatureUD            = driver.FeatureUD
	FeatureResources     = driver.FeatureResources
	FeaturePKeys         = driver.FeaturePKeys
	FeatureReregMR       = driver.FeatureReregMR
)

// Who lacks a feature, for NotSupportedError.By.
const (
	LacksDevice  = driver.LacksDevice
	LacksKernel  = driver.LacksKernel
	LacksDriver  = driver.LacksDriver
	LacksProcess = driver.LacksProcess
)

// Causes, for errors.Is.
var (
	ErrQueueFull    = driver.ErrQueueFull
	ErrBadState     = driver.ErrBadState
	ErrTooManySGE   = driver.ErrTooManySGE
	ErrInlineTooBig = driver.ErrInlineTooBig
	ErrTooLong      = driver.ErrTooLong
	ErrBadOpcode    = driver.ErrBadOpcode
	ErrBusy         = driver.ErrBusy
	ErrClosed       = driver.ErrClosed
	ErrCQOverrun    = driver.ErrCQOverrun
	ErrDeviceGone   = driver.ErrDeviceGone
	ErrNotSupported = driver.ErrNotSupported
	ErrNoDevice     = driver.ErrNoDevice
)

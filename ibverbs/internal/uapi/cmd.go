package uapi

import "structs"

// Commands of the old write interface (enum ib_uverbs_write_cmds), which the
// ioctl carries too: MethodInvokeWrite with AttrWriteCmd.
const (
	CmdQueryDevice       = 1
	CmdAllocPD           = 3
	CmdCreateAH          = 5
	CmdRegMR             = 9
	CmdReregMR           = 11
	CmdAllocMW           = 14
	CmdCreateCompChannel = 17
	CmdResizeCQ          = 19
	CmdReqNotifyCQ       = 23
	CmdQueryQP           = 25
	CmdModifyQP          = 26
	CmdPostSend          = 28
	CmdAttachMcast       = 30
	CmdDetachMcast       = 31
	CmdModifySRQ         = 33
	CmdQuerySRQ          = 34

	CmdModifyCQ = 57 // extended

	// CmdFlagExtended marks an extended command, IB_USER_VERBS_EX_CMD_….
	CmdFlagExtended = 0x80000000
)

// Requests start with the address of the response. Through the ioctl the kernel
// ignores it: the response goes to AttrCoreOut.

// QueryDevice is struct ib_uverbs_query_device.
type QueryDevice struct {
	_        structs.HostLayout
	Response uint64
}

// QueryDeviceResp is struct ib_uverbs_query_device_resp.
type QueryDeviceResp struct {
	_                     structs.HostLayout
	FWVer                 uint64
	NodeGUIDBE            [8]byte
	SysImageGUIDBE        [8]byte
	MaxMRSize             uint64
	PageSizeCap           uint64
	VendorID              uint32
	VendorPartID          uint32
	HWVer                 uint32
	MaxQP                 uint32
	MaxQPWR               uint32
	DeviceCapFlags        uint32
	MaxSGE                uint32
	MaxSGERd              uint32
	MaxCQ                 uint32
	MaxCQE                uint32
	MaxMR                 uint32
	MaxPD                 uint32
	MaxQPRdAtom           uint32
	MaxEERdAtom           uint32
	MaxResRdAtom          uint32
	MaxQPInitRdAtom       uint32
	MaxEEInitRdAtom       uint32
	AtomicCap             uint32
	MaxEE                 uint32
	MaxRDD                uint32
	MaxMW                 uint32
	MaxRawIPv6QP          uint32
	MaxRawEthyQP          uint32
	MaxMcastGrp           uint32
	MaxMcastQPAttach      uint32
	MaxTotalMcastQPAttach uint32
	MaxAH                 uint32
	MaxFMR                uint32
	MaxMapPerFMR          uint32
	MaxSRQ                uint32
	MaxSRQWR              uint32
	MaxSRQSGE             uint32
	MaxPKeys              uint16
	LocalCAAckDelay       uint8
	PhysPortCnt           uint8
	Reserved              [4]uint8
}

// Bits of DeviceCapFlags (enum ib_uverbs_device_cap_flags).
const (
	DeviceSRQResize       = 1 << 13
	DeviceMemWindow       = 1 << 17
	DeviceMemWindowType2A = 1 << 23
	DeviceMemWindowType2B = 1 << 24
)

// ExQueryDevice is struct ib_uverbs_ex_query_device.
type ExQueryDevice struct {
	_        structs.HostLayout
	CompMask uint32
	Reserved uint32
}

// ExQueryDeviceResp is struct ib_uverbs_ex_query_device_resp. ResponseLength
// says how much of it the kernel knows; the rest is zero.
type ExQueryDeviceResp struct {
	_                structs.HostLayout
	Base             QueryDeviceResp
	CompMask         uint32
	ResponseLength   uint32
	ODPCaps          ODPCaps
	TimestampMask    uint64
	HCACoreClock     uint64 // kHz
	DeviceCapFlagsEx uint64
	RSSCaps          RSSCaps
	MaxWQTypeRQ      uint32
	RawPacketCaps    uint32
	TMCaps           TMCaps
	CQModerationCaps CQModerationCaps
	MaxDMSize        uint64
	XRCODPCaps       uint32
	Reserved         uint32
}

// ODPCaps is struct ib_uverbs_odp_caps, its per_transport_caps flattened.
type ODPCaps struct {
	_           structs.HostLayout
	GeneralCaps uint64
	RCODPCaps   uint32
	UCODPCaps   uint32
	UDODPCaps   uint32
	Reserved    uint32
}

// RSSCaps is struct ib_uverbs_rss_caps.
type RSSCaps struct {
	_                          structs.HostLayout
	SupportedQPTs              uint32
	MaxRWQIndirectionTables    uint32
	MaxRWQIndirectionTableSize uint32
	Reserved                   uint32
}

// TMCaps is struct ib_uverbs_tm_caps.
type TMCaps struct {
	_              structs.HostLayout
	MaxRndvHdrSize uint32
	MaxNumTags     uint32
	Flags          uint32
	MaxOps         uint32
	MaxSGE         uint32
	Reserved       uint32
}

// CQModerationCaps is struct ib_uverbs_cq_moderation_caps.
type CQModerationCaps struct {
	_                     structs.HostLayout
	MaxCQModerationCount  uint16
	MaxCQModerationPeriod uint16
	Reserved              uint32
}

// AllocPD is struct ib_uverbs_alloc_pd.
type AllocPD struct {
	_        structs.HostLayout
	Response uint64
}

// AllocPDResp is struct ib_uverbs_alloc_pd_resp.
type AllocPDResp struct {
	_        structs.HostLayout
	PDHandle uint32
}

// RegMR is struct ib_uverbs_reg_mr.
type RegMR struct {
	_           structs.HostLayout
	Response    uint64
	Start       uint64
	Length      uint64
	HCAVA       uint64
	PDHandle    uint32
	AccessFlags uint32
}

// RegMRResp is struct ib_uverbs_reg_mr_resp.
type RegMRResp struct {
	_        structs.HostLayout
	MRHandle uint32
	LKey     uint32
	RKey     uint32
}

// CreateCompChannel is struct ib_uverbs_create_comp_channel.
type CreateCompChannel struct {
	_        structs.HostLayout
	Response uint64
}

// CreateCompChannelResp is struct ib_uverbs_create_comp_channel_resp.
type CreateCompChannelResp struct {
	_  structs.HostLayout
	FD uint32
}

// ModifyCQ is struct ib_uverbs_ex_modify_cq, its moderation flattened. It has no
// response.
type ModifyCQ struct {
	_        structs.HostLayout
	CQHandle uint32
	AttrMask uint32
	CQCount  uint16
	CQPeriod uint16 // µs
	Reserved uint32
}

// CQModerate is the bit of ModifyCQ.AttrMask for the moderation (enum ib_cq_attr_mask).
const CQModerate = 1 << 0

// ReregMR is struct ib_uverbs_rereg_mr.
type ReregMR struct {
	_           structs.HostLayout
	Response    uint64
	MRHandle    uint32
	Flags       uint32
	Start       uint64
	Length      uint64
	HCAVA       uint64
	PDHandle    uint32
	AccessFlags uint32
}

// Bits of ReregMR.Flags (enum ib_mr_rereg_flags).
const (
	ReregTranslation = 1 << 0
	ReregPD          = 1 << 1
	ReregAccess      = 1 << 2
)

// ReregMRResp is struct ib_uverbs_rereg_mr_resp.
type ReregMRResp struct {
	_    structs.HostLayout
	LKey uint32
	RKey uint32
}

// ReqNotifyCQ is struct ib_uverbs_req_notify_cq. It has no response.
type ReqNotifyCQ struct {
	_             structs.HostLayout
	CQHandle      uint32
	SolicitedOnly uint32
}

// ResizeCQ is struct ib_uverbs_resize_cq.
type ResizeCQ struct {
	_        structs.HostLayout
	Response uint64
	CQHandle uint32
	CQE      uint32
}

// ResizeCQResp is struct ib_uverbs_resize_cq_resp.
type ResizeCQResp struct {
	_        structs.HostLayout
	CQE      uint32
	Reserved uint32
}

// GlobalRoute is struct ib_uverbs_global_route.
type GlobalRoute struct {
	_            structs.HostLayout
	DGID         [16]byte
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	Reserved     uint8
}

// AHAttr is struct ib_uverbs_ah_attr.
type AHAttr struct {
	_           structs.HostLayout
	GRH         GlobalRoute
	DLID        uint16
	SL          uint8
	SrcPathBits uint8
	StaticRate  uint8
	IsGlobal    uint8
	PortNum     uint8
	Reserved    uint8
}

// CreateAH is struct ib_uverbs_create_ah.
type CreateAH struct {
	_          structs.HostLayout
	Response   uint64
	UserHandle uint64
	PDHandle   uint32
	Reserved   uint32
	Attr       AHAttr
}

// CreateAHResp is struct ib_uverbs_create_ah_resp.
type CreateAHResp struct {
	_        structs.HostLayout
	AHHandle uint32
}

// MWType2 is IB_MW_TYPE_2, which only headers inside the kernel name.
const MWType2 = 2

// AllocMW is struct ib_uverbs_alloc_mw.
type AllocMW struct {
	_        structs.HostLayout
	Response uint64
	PDHandle uint32
	MWType   uint8
	Reserved [3]uint8
}

// AllocMWResp is struct ib_uverbs_alloc_mw_resp.
type AllocMWResp struct {
	_        structs.HostLayout
	MWHandle uint32
	RKey     uint32
}

// AttachMcast is struct ib_uverbs_attach_mcast, and ib_uverbs_detach_mcast,
// which is the same. It has no response.
type AttachMcast struct {
	_        structs.HostLayout
	GID      [16]byte
	QPHandle uint32
	MLID     uint16
	Reserved uint16
}

// Bits of ModifySRQ.AttrMask (enum ib_srq_attr_mask), which only headers inside
// the kernel name.
const (
	SRQMaxWR = 1 << 0
	SRQLimit = 1 << 1
)

// ModifySRQ is struct ib_uverbs_modify_srq. It has no response.
type ModifySRQ struct {
	_         structs.HostLayout
	SRQHandle uint32
	AttrMask  uint32
	MaxWR     uint32
	SRQLimit  uint32
}

// QuerySRQ is struct ib_uverbs_query_srq.
type QuerySRQ struct {
	_         structs.HostLayout
	Response  uint64
	SRQHandle uint32
	Reserved  uint32
}

// QuerySRQResp is struct ib_uverbs_query_srq_resp.
type QuerySRQResp struct {
	_        structs.HostLayout
	MaxWR    uint32
	MaxSGE   uint32
	SRQLimit uint32
	Reserved uint32
}

// QPDest is struct ib_uverbs_qp_dest.
type QPDest struct {
	_            structs.HostLayout
	DGID         [16]byte
	FlowLabel    uint32
	DLID         uint16
	Reserved     uint16
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	IsGlobal     uint8
	PortNum      uint8
}

// QueryQP is struct ib_uverbs_query_qp.
type QueryQP struct {
	_        structs.HostLayout
	Response uint64
	QPHandle uint32
	AttrMask uint32
}

// QueryQPResp is struct ib_uverbs_query_qp_resp.
type QueryQPResp struct {
	_               structs.HostLayout
	Dest            QPDest
	AltDest         QPDest
	MaxSendWR       uint32
	MaxRecvWR       uint32
	MaxSendSGE      uint32
	MaxRecvSGE      uint32
	MaxInlineData   uint32
	QKey            uint32
	RQPSN           uint32
	SQPSN           uint32
	DestQPNum       uint32
	QPAccessFlags   uint32
	PKeyIndex       uint16
	AltPKeyIndex    uint16
	QPState         uint8
	CurQPState      uint8
	PathMTU         uint8
	PathMigState    uint8
	SQDraining      uint8
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8
	MinRNRTimer     uint8
	PortNum         uint8
	Timeout         uint8
	RetryCnt        uint8
	RNRRetry        uint8
	AltPortNum      uint8
	AltTimeout      uint8
	SQSigAll        uint8
	Reserved        [5]uint8
}

// ModifyQP is struct ib_uverbs_modify_qp. It has no response.
type ModifyQP struct {
	_                structs.HostLayout
	Dest             QPDest
	AltDest          QPDest
	QPHandle         uint32
	AttrMask         uint32
	QKey             uint32
	RQPSN            uint32
	SQPSN            uint32
	DestQPNum        uint32
	QPAccessFlags    uint32
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	QPState          uint8
	CurQPState       uint8
	PathMTU          uint8
	PathMigState     uint8
	EnSQDAsyncNotify uint8
	MaxRdAtomic      uint8
	MaxDestRdAtomic  uint8
	MinRNRTimer      uint8
	PortNum          uint8
	Timeout          uint8
	RetryCnt         uint8
	RNRRetry         uint8
	AltPortNum       uint8
	AltTimeout       uint8
	Reserved         [2]uint8
}

// ExModifyQP is struct ib_uverbs_ex_modify_qp.
type ExModifyQP struct {
	_         structs.HostLayout
	Base      ModifyQP
	RateLimit uint32
	Reserved  uint32
}

// ExModifyQPResp is struct ib_uverbs_ex_modify_qp_resp.
type ExModifyQPResp struct {
	_              structs.HostLayout
	CompMask       uint32
	ResponseLength uint32
}

// PostSend is struct ib_uverbs_post_send. With WRCount 0 it tells a driver with
// queues in shared memory to look at them; WQESize must still be the size of
// SendWR or more.
type PostSend struct {
	_        structs.HostLayout
	Response uint64
	QPHandle uint32
	WRCount  uint32
	SGECount uint32
	WQESize  uint32
}

// PostSendResp is struct ib_uverbs_post_send_resp.
type PostSendResp struct {
	_     structs.HostLayout
	BadWR uint32
}

// SendWR is struct ib_uverbs_send_wr. Only its size is needed: it is the least
// PostSend.WQESize.
type SendWR struct {
	_         structs.HostLayout
	WRID      uint64
	NumSGE    uint32
	Opcode    uint32
	SendFlags uint32
	Ex        uint32
	WR        [4]uint64
}

package uapi

import "structs"

// Driver ids (enum rdma_driver_id): IoctlHdr.DriverID has to be the device's.
const (
	DriverMLX5      = 1
	DriverMLX4      = 2
	DriverCXGB4     = 4
	DriverMTHCA     = 5
	DriverBNXTRE    = 6
	DriverOCRDMA    = 7
	DriverIRDMA     = 9
	DriverVMWPVRDMA = 10
	DriverQEDR      = 11
	DriverHNS       = 12
	DriverUSNIC     = 13
	DriverRXE       = 14
	DriverHFI1      = 15
	DriverQIB       = 16
	DriverEFA       = 17
	DriverSIW       = 18
	DriverERDMA     = 19
)

// CoreSupportOptionalMRAccess is the bit of AttrGetContextCoreSupport that says
// the access flags from AccessOptionalFirst to AccessOptionalLast are ignored by
// devices that do not have them. Without it they are refused.
const (
	CoreSupportOptionalMRAccess = 1 << 0

	AccessOptionalFirst = 1 << 20
	AccessOptionalLast  = 1 << 29
)

// QPCreateSQSigAll is IB_UVERBS_QP_CREATE_SQ_SIG_ALL, a bit of
// AttrCreateQPFlags.
const QPCreateSQSigAll = 1 << 12

// SRQTBasic is a value of AttrCreateSRQType: neither XRC nor tag matching.
const SRQTBasic = 0

// QPCap is struct ib_uverbs_qp_cap.
type QPCap struct {
	_             structs.HostLayout
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32
}

// QueryPortResp is struct ib_uverbs_query_port_resp.
type QueryPortResp struct {
	_             structs.HostLayout
	PortCapFlags  uint32
	MaxMsgSz      uint32
	BadPKeyCntr   uint32
	QKeyViolCntr  uint32
	GIDTblLen     uint32
	PKeyTblLen    uint16
	LID           uint16
	SMLID         uint16
	State         uint8
	MaxMTU        uint8
	ActiveMTU     uint8
	LMC           uint8
	MaxVLNum      uint8
	SMSL          uint8
	SubnetTimeout uint8
	InitTypeReply uint8
	ActiveWidth   uint8
	ActiveSpeed   uint8
	PhysState     uint8
	LinkLayer     uint8
	Flags         uint8
	Reserved      uint8
}

// QueryPortRespEx is struct ib_uverbs_query_port_resp_ex. ActiveSpeedEx takes
// the place of two reserved bytes in headers of Linux 6.7 and later; older
// kernels leave it 0, and LegacyResp.ActiveSpeed counts.
type QueryPortRespEx struct {
	_             structs.HostLayout
	LegacyResp    QueryPortResp
	PortCapFlags2 uint16
	Reserved      [2]uint8
	ActiveSpeedEx uint32
}

// GIDEntry is struct ib_uverbs_gid_entry. GID is raw, as on the wire.
type GIDEntry struct {
	_             structs.HostLayout
	GID           [16]byte
	GIDIndex      uint32
	PortNum       uint32
	GIDType       uint32
	NetdevIfindex uint32
}

// DestroyCQResp is struct ib_uverbs_destroy_cq_resp.
type DestroyCQResp struct {
	_                   structs.HostLayout
	CompEventsReported  uint32
	AsyncEventsReported uint32
}

// DestroyQPResp is struct ib_uverbs_destroy_qp_resp.
type DestroyQPResp struct {
	_              structs.HostLayout
	EventsReported uint32
}

// DestroySRQResp is struct ib_uverbs_destroy_srq_resp.
type DestroySRQResp struct {
	_              structs.HostLayout
	EventsReported uint32
}

// CompEventDesc is struct ib_uverbs_comp_event_desc, a record of a completion
// event file. CQHandle is the user_handle of the CQ.
type CompEventDesc struct {
	_        structs.HostLayout
	CQHandle uint64
}

// AsyncEventDesc is struct ib_uverbs_async_event_desc, a record of an
// asynchronous event file. Element is a port or a user_handle.
type AsyncEventDesc struct {
	_         structs.HostLayout
	Element   uint64
	EventType uint32
	Reserved  uint32
}

// WC is struct ib_uverbs_wc. Drivers with queues in shared memory use it as the
// entry of their completion queues.
type WC struct {
	_            structs.HostLayout
	WRID         uint64
	Status       uint32
	Opcode       uint32
	VendorErr    uint32
	ByteLen      uint32
	Ex           [4]byte // imm_data, big endian, or invalidate_rkey in host order
	QPNum        uint32
	SrcQP        uint32
	WCFlags      uint32
	PKeyIndex    uint16
	SLID         uint16
	SL           uint8
	DLIDPathBits uint8
	PortNum      uint8
	Reserved     uint8
}

package uapi

import "structs"

// RxeMMInfo is struct mminfo: what to map to reach a queue of Soft-RoCE. Offset
// is a token that works once, in the context that got it.
type RxeMMInfo struct {
	_      structs.HostLayout
	Offset uint64
	Size   uint32
	Pad    uint32
}

// RxeCreateCQResp is struct rxe_create_cq_resp.
type RxeCreateCQResp struct {
	_  structs.HostLayout
	MI RxeMMInfo
}

// RxeCreateQPResp is struct rxe_create_qp_resp. The receive queue comes first.
type RxeCreateQPResp struct {
	_    structs.HostLayout
	RQMI RxeMMInfo
	SQMI RxeMMInfo
}

// RxeResizeCQResp is struct rxe_resize_cq_resp.
type RxeResizeCQResp struct {
	_  structs.HostLayout
	MI RxeMMInfo
}

// RxeCreateSRQResp is struct rxe_create_srq_resp.
type RxeCreateSRQResp struct {
	_        structs.HostLayout
	MI       RxeMMInfo
	SRQNum   uint32
	Reserved uint32
}

// RxeModifySRQCmd is struct rxe_modify_srq_cmd: where the kernel writes the
// RxeMMInfo of a queue of another size, instead of in a response.
type RxeModifySRQCmd struct {
	_            structs.HostLayout
	MMapInfoAddr uint64
}

// RxeCreateAHResp is struct rxe_create_ah_resp. AHNum is 0 of kernels before
// 5.17, which do not write it.
type RxeCreateAHResp struct {
	_        structs.HostLayout
	AHNum    uint32
	Reserved uint32
}

// RxeQueueBuf is struct rxe_queue_buf, the head of every queue. The elements
// follow it. The indices are masked by IndexMask; whoever produces is the only
// one to write ProducerIndex.
type RxeQueueBuf struct {
	_             structs.HostLayout
	Log2ElemSize  uint32
	IndexMask     uint32
	Pad1          [30]uint32
	ProducerIndex uint32
	Pad2          [31]uint32
	ConsumerIndex uint32
	Pad3          [31]uint32
}

// RxeSGE is struct rxe_sge.
type RxeSGE struct {
	_      structs.HostLayout
	Addr   uint64
	Length uint32
	LKey   uint32
}

// RxeDMAInfo is struct rxe_dma_info. RxeSGEs or inline data follow it.
type RxeDMAInfo struct {
	_         structs.HostLayout
	Length    uint32
	Resid     uint32
	CurSGE    uint32
	NumSGE    uint32
	SGEOffset uint32
	Reserved  uint32
}

// RxeSendWR is struct rxe_send_wr. WR holds an RxeWRRDMA, RxeWRAtomic, RxeWRUD or
// RxeWRMW.
type RxeSendWR struct {
	_         structs.HostLayout
	WRID      uint64
	Reserved  uint32
	Opcode    uint32
	SendFlags uint32
	Ex        [4]byte // imm_data, big endian, or invalidate_rkey in host order
	WR        [15]uint64
}

// RxeWRRDMA is the member rdma of the union wr of struct rxe_send_wr.
type RxeWRRDMA struct {
	_          structs.HostLayout
	RemoteAddr uint64
	RKey       uint32
	Reserved   uint32
}

// RxeWRAtomic is the member atomic of the union wr of struct rxe_send_wr.
type RxeWRAtomic struct {
	_          structs.HostLayout
	RemoteAddr uint64
	CompareAdd uint64
	Swap       uint64
	RKey       uint32
	Reserved   uint32
}

// RxeWRUD is the member ud of the union wr of struct rxe_send_wr. With an AHNum
// the kernel does not look at AV (struct rxe_av), which older ones want filled.
type RxeWRUD struct {
	_          structs.HostLayout
	RemoteQPN  uint32
	RemoteQKey uint32
	PKeyIndex  uint16
	Reserved   uint16
	AHNum      uint32
	Pad        [4]uint32
	AV         [88]uint8
}

// RxeWRMW is the member mw of the union wr of struct rxe_send_wr: MWRKey is the
// key that the window has, RKey the one that it gets.
type RxeWRMW struct {
	_      structs.HostLayout
	Addr   uint64
	Length uint64
	MRLKey uint32
	MWRKey uint32
	RKey   uint32
	Access uint32
}

// RxeSendWQE is struct rxe_send_wqe, an element of a send queue. RxeSGEs or
// inline data follow it.
type RxeSendWQE struct {
	_           structs.HostLayout
	WR          RxeSendWR
	Status      uint32
	State       uint32
	IOVA        uint64
	Mask        uint32
	FirstPSN    uint32
	LastPSN     uint32
	AckLength   uint32
	SSN         uint32
	HasRdAtomic uint32
	DMA         RxeDMAInfo
}

// RxeRecvWQE is struct rxe_recv_wqe, an element of a receive queue. RxeSGEs
// follow it.
type RxeRecvWQE struct {
	_        structs.HostLayout
	WRID     uint64
	Reserved uint32
	Padding  uint32
	DMA      RxeDMAInfo
}

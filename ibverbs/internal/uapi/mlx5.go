package uapi

import "structs"

// Flags of MLX5AllocUContextReqV2.LibCaps (enum mlx5_lib_caps). With MLX5LibCapDynUAR
// the context has no UAR pages of its own: each is allocated (ObjectMLX5UAR).
const (
	MLX5LibCap4KUAR  = 1 << 0
	MLX5LibCapDynUAR = 1 << 1
)

// MLX5RespMaskECE in MLX5AllocUContextResp.CompMask says that the device has
// enhanced connection establishment.
const MLX5RespMaskECE = 1 << 2

// MLX5SuppUHWCreateAH in MLX5AllocUContextResp.CmdsSuppUHW says that the kernel
// answers a new address handle with MLX5CreateAHResp.
const MLX5SuppUHWCreateAH = 1 << 1

// MLX5AllocUContextReqV2 is struct mlx5_ib_alloc_ucontext_req_v2.
type MLX5AllocUContextReqV2 struct {
	_                   structs.HostLayout
	TotalNumBFRegs      uint32
	NumLowLatencyBFRegs uint32
	Flags               uint32
	CompMask            uint32
	MaxCQEVersion       uint8
	Reserved0           uint8
	Reserved1           uint16
	Reserved2           uint32
	LibCaps             uint64
}

// MLX5AllocUContextResp is struct mlx5_ib_alloc_ucontext_resp. MaxSQDescSz and
// MaxRQDescSz are bytes; BFRegSize is that of both halves.
type MLX5AllocUContextResp struct {
	_                  structs.HostLayout
	QPTabSize          uint32
	BFRegSize          uint32
	TotBFRegs          uint32
	CacheLineSize      uint32
	MaxSQDescSz        uint16
	MaxRQDescSz        uint16
	MaxSendWQEBB       uint32
	MaxRecvWR          uint32
	MaxSRQRecvWR       uint32
	NumPorts           uint16
	FlowActionFlags    uint16
	CompMask           uint32
	ResponseLength     uint32
	CQEVersion         uint8
	CmdsSuppUHW        uint8
	EthMinInline       uint8
	ClockInfoVersions  uint8
	HCACoreClockOffset uint64
	LogUARSize         uint32
	NumUARsPerPage     uint32
	NumDynBFRegs       uint32
	DumpFillMkey       uint32
}

// MLX5AllocPDResp is struct mlx5_ib_alloc_pd_resp.
type MLX5AllocPDResp struct {
	_   structs.HostLayout
	PDN uint32
}

// Flags of MLX5CreateCQ (enum mlx5_ib_create_cq_flags). UARPageIndex is how a
// context of dynamic UARs says which page arms the queue.
const (
	MLX5CreateCQ128BPad      = 1 << 0
	MLX5CreateCQUARPageIndex = 1 << 1
)

// MLX5CreateCQ is struct mlx5_ib_create_cq.
type MLX5CreateCQ struct {
	_                structs.HostLayout
	BufAddr          uint64
	DBAddr           uint64
	CQESize          uint32
	CQECompEn        uint8
	CQECompResFormat uint8
	Flags            uint16
	UARPageIndex     uint16
	Reserved0        uint16
	Reserved1        uint32
}

// MLX5CreateCQResp is struct mlx5_ib_create_cq_resp.
type MLX5CreateCQResp struct {
	_        structs.HostLayout
	CQN      uint32
	Reserved uint32
}

// MLX5ResizeCQ is struct mlx5_ib_resize_cq.
type MLX5ResizeCQ struct {
	_         structs.HostLayout
	BufAddr   uint64
	CQESize   uint16
	Reserved0 uint16
	Reserved1 uint32
}

// MLX5CreateSRQ is struct mlx5_ib_create_srq.
type MLX5CreateSRQ struct {
	_         structs.HostLayout
	BufAddr   uint64
	DBAddr    uint64
	Flags     uint32
	Reserved0 uint32
	UIdx      uint32
	Reserved1 uint32
}

// MLX5CreateSRQResp is struct mlx5_ib_create_srq_resp.
type MLX5CreateSRQResp struct {
	_        structs.HostLayout
	SRQN     uint32
	Reserved uint32
}

// Flags of MLX5CreateQP. With UARPageIndex its BFRegIndex is the page_id of a UAR.
const (
	MLX5QPFlagSignature    = 1 << 0
	MLX5QPFlagScatterCQE   = 1 << 1
	MLX5QPFlagUARPageIndex = 1 << 10
)

// MLX5CreateQP is struct mlx5_ib_create_qp. The receive queue lies first in the
// buffer, the send queue behind it.
type MLX5CreateQP struct {
	_               structs.HostLayout
	BufAddr         uint64
	DBAddr          uint64
	SQWQECount      uint32 // basic blocks
	RQWQECount      uint32
	RQWQEShift      uint32
	Flags           uint32
	UIdx            uint32
	BFRegIndex      uint32
	SQBufAddr       uint64
	ECEOptions      uint32
	LogNumConcurent uint8
	LogNumErrored   uint8
	Reserved        uint16
}

// MLX5CreateQPResp is struct mlx5_ib_create_qp_resp.
type MLX5CreateQPResp struct {
	_          structs.HostLayout
	BFRegIndex uint32
	ECEOptions uint32
	CompMask   uint32
	TIRN       uint32
	TISN       uint32
	RQN        uint32
	SQN        uint32
	Reserved1  uint32
	TIRICMAddr uint64
}

// MLX5ModifyQP is struct mlx5_ib_modify_qp. ECEOptions count with a change to RTR or
// later.
type MLX5ModifyQP struct {
	_            structs.HostLayout
	CompMask     uint32
	MaxBurstSz   uint32
	TypicalPktSz uint16
	Reserved     uint16
	ECEOptions   uint32
}

// MLX5ModifyQPResp is struct mlx5_ib_modify_qp_resp.
type MLX5ModifyQPResp struct {
	_              structs.HostLayout
	ResponseLength uint32
	DCTN           uint32
	ECEOptions     uint32
	Reserved       uint32
}

// MLX5AllocMW is struct mlx5_ib_alloc_mw.
type MLX5AllocMW struct {
	_         structs.HostLayout
	CompMask  uint32
	NumKLMs   uint8
	Reserved1 uint8
	Reserved2 uint16
}

// MLX5CreateAHResp is struct mlx5_ib_create_ah_resp: the peer's MAC, which only the
// kernel can resolve.
type MLX5CreateAHResp struct {
	_              structs.HostLayout
	ResponseLength uint32
	DMAC           [6]uint8
	Reserved       [6]uint8
}

// MethodMLX5PDQuery of ObjectPD, and attributes that mlx5_ib adds to methods of importing.
const (
	MethodMLX5PDQuery = 0x1000

	AttrMLX5QueryContextRespUCtx = 0x1000

	AttrMLX5QueryPDHandle  = 0x1000
	AttrMLX5QueryPDRespPDN = 0x1001
)

// ObjectMLX5UAR is a UAR page (enum mlx5_ib_objects), with its methods and their
// attributes. The offset is for mmap and means nothing else.
const (
	ObjectMLX5UAR = 0x1008

	MethodMLX5UARAlloc   = 0x1000
	MethodMLX5UARDestroy = 0x1001

	AttrMLX5UARAllocHandle     = 0x1000
	AttrMLX5UARAllocType       = 0x1001
	AttrMLX5UARAllocMMapOffset = 0x1002
	AttrMLX5UARAllocMMapLength = 0x1003
	AttrMLX5UARAllocPageID     = 0x1004

	AttrMLX5UARDestroyHandle = 0x1000

	// MLX5UARTypeBF is a page of send doorbells, mapped write-combining, and
	// MLX5UARTypeNC one without caching (enum mlx5_ib_uapi_uar_alloc_type).
	MLX5UARTypeBF = 0
	MLX5UARTypeNC = 1
)

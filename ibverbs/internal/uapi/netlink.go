package uapi

// RDMA netlink: the family NETLINK_RDMA, and its client that knows devices. A
// message type is client<<10 | command.
const (
	NetlinkRDMA = 20 // NETLINK_RDMA of linux/netlink.h
	NLNLDev     = 5  // RDMA_NL_NLDEV
)

// Commands of the client NLNLDev (enum rdma_nldev_command).
const (
	NLDevCmdGet        = 1
	NLDevCmdPortGet    = 5
	NLDevCmdResGet     = 9
	NLDevCmdResQPGet   = 10
	NLDevCmdResCMIDGet = 11
	NLDevCmdResCQGet   = 12
	NLDevCmdResMRGet   = 13
	NLDevCmdResPDGet   = 14
	NLDevCmdGetChardev = 15
	NLDevCmdResCtxGet  = 22
	NLDevCmdResSRQGet  = 23
)

// Attributes of the client NLNLDev (enum rdma_nldev_attr).
const (
	NLDevAttrDevIndex       = 1  // u32
	NLDevAttrDevName        = 2  // string
	NLDevAttrPortIndex      = 3  // u32; the number of ports in the answer to NLDevCmdGet
	NLDevAttrFWVersion      = 5  // string
	NLDevAttrNodeGUID       = 6  // u64, host order
	NLDevAttrSysImageGUID   = 7  // u64, host order
	NLDevAttrDevNodeType    = 14 // u8, enum ibv_node_type
	NLDevAttrResSummary     = 15 // nested
	NLDevAttrResSummaryItem = 16 // nested
	NLDevAttrResSummaryName = 17 // string
	NLDevAttrResSummaryCurr = 18 // u64
	NLDevAttrResQP          = 19 // nested, and so are the lists of other kinds
	NLDevAttrResLQPN        = 21 // u32
	NLDevAttrResRQPN        = 22 // u32
	NLDevAttrResType        = 26 // u8, enum ib_qp_type
	NLDevAttrResState       = 27 // u8, enum ib_qp_state
	NLDevAttrResPID         = 28 // u32
	NLDevAttrResKernName    = 29 // string
	NLDevAttrResCMID        = 30
	NLDevAttrResCQ          = 35
	NLDevAttrResCQE         = 37 // u32
	NLDevAttrResUseCnt      = 38 // u64
	NLDevAttrResMR          = 40
	NLDevAttrResMRLen       = 45 // u64
	NLDevAttrResPD          = 46
	NLDevAttrNDevIndex      = 50 // u32
	NLDevAttrNDevName       = 51 // string
	NLDevAttrResPDN         = 60 // u32
	NLDevAttrResCQN         = 61 // u32
	NLDevAttrResMRN         = 62 // u32
	NLDevAttrResCtxN        = 64 // u32
	NLDevAttrChardevType    = 69 // string
	NLDevAttrChardevName    = 70 // string
	NLDevAttrChardev        = 72 // u64, dev_t
	NLDevAttrUverbsDriverID = 73 // u64
	NLDevAttrResCtx         = 86
	NLDevAttrResSRQ         = 88
	NLDevAttrResSRQN        = 90 // u32
)

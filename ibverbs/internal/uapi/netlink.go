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
	NLDevCmdGetChardev = 15
)

// Attributes of the client NLNLDev (enum rdma_nldev_attr).
const (
	NLDevAttrDevIndex       = 1  // u32
	NLDevAttrDevName        = 2  // string
	NLDevAttrPortIndex      = 3  // u32; the number of ports in the answer to NLDevCmdGet
	NLDevAttrFWVersion      = 5  // string
	NLDevAttrNodeGUID       = 6  // u64, host order
	NLDevAttrSysImageGUID   = 7  // u64, host order
	NLDevAttrChardevType    = 69 // string
	NLDevAttrChardevName    = 70 // string
	NLDevAttrChardev        = 72 // u64, dev_t
	NLDevAttrUverbsDriverID = 73 // u64
)

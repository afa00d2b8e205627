package uapi

import "structs"

// VerbsIoctl is RDMA_VERBS_IOCTL, the one ioctl of a uverbs file. The size in
// the number is that of IoctlHdr alone; what follows is told by its Length.
const VerbsIoctl = 0xc0181b01

// MaxFrame is the most bytes of header and attributes that the kernel takes
// (a page of 4096, whatever the machine's page size).
const MaxFrame = 4096

// InlineMax is the length up to which the bytes of an input attribute lie in
// Attr.Data instead of being pointed to. Outputs are pointed to at any length.
const InlineMax = 8

// IoctlHdr is struct ib_uverbs_ioctl_hdr. Attributes follow it. Length is
// exactly that of the header and NumAttrs attributes.
type IoctlHdr struct {
	_         structs.HostLayout
	Length    uint16
	ObjectID  uint16
	MethodID  uint16
	NumAttrs  uint16
	Reserved1 uint64
	DriverID  uint32
	Reserved2 uint32
}

// Attr is struct ib_uverbs_attr. Data is a pointer, inline bytes, a handle or a
// descriptor, by the kind of the attribute; the kernel writes new handles and
// descriptors into it, and AttrFValidOutput into Flags.
type Attr struct {
	_        structs.HostLayout
	AttrID   uint16
	Len      uint16
	Flags    uint16
	Reserved uint16 // attr_data
	Data     uint64
}

// Flags of an attribute.
const (
	// AttrFMandatory makes a kernel that does not know the attribute answer
	// EPROTONOSUPPORT; without it the attribute is ignored there.
	AttrFMandatory = 1 << 0
	// AttrFValidOutput is set by the kernel on an output that it wrote. It does
	// so for mandatory ones too, but is not bound to.
	AttrFValidOutput = 1 << 1
)

// Objects (enum uverbs_default_objects).
const (
	ObjectDevice     = 0
	ObjectPD         = 1
	ObjectCQ         = 3
	ObjectQP         = 4
	ObjectSRQ        = 5
	ObjectAH         = 6
	ObjectMR         = 7
	ObjectMW         = 8
	ObjectAsyncEvent = 16
)

// Attributes of any method that belong to the driver.
const (
	AttrUHWIn  = 0x1000
	AttrUHWOut = 0x1001
)

// Methods of ObjectDevice and their attributes.
const (
	MethodInvokeWrite   = 0
	MethodInfoHandles   = 1
	MethodQueryPort     = 2
	MethodGetContext    = 3
	MethodQueryContext  = 4
	MethodQueryGIDTable = 5
	MethodQueryGIDEntry = 6

	AttrCoreIn   = 0
	AttrCoreOut  = 1
	AttrWriteCmd = 2

	AttrInfoObjectID     = 0
	AttrInfoTotalHandles = 1
	AttrInfoHandlesList  = 2

	AttrQueryPortPortNum = 0
	AttrQueryPortResp    = 1

	AttrGetContextNumCompVectors = 0
	AttrGetContextCoreSupport    = 1

	AttrQueryContextNumCompVectors = 0
	AttrQueryContextCoreSupport    = 1

	AttrQueryGIDTableEntrySize      = 0
	AttrQueryGIDTableFlags          = 1
	AttrQueryGIDTableRespEntries    = 2
	AttrQueryGIDTableRespNumEntries = 3

	AttrQueryGIDEntryPort      = 0
	AttrQueryGIDEntryGIDIndex  = 1
	AttrQueryGIDEntryFlags     = 2
	AttrQueryGIDEntryRespEntry = 3
)

// Methods of ObjectPD and ObjectAsyncEvent and their attributes.
const (
	MethodPDDestroy     = 0
	AttrDestroyPDHandle = 0

	MethodAsyncEventAlloc       = 0
	AttrAsyncEventAllocFDHandle = 0
)

// Methods of ObjectCQ and their attributes.
const (
	MethodCQCreate  = 0
	MethodCQDestroy = 1

	AttrCreateCQHandle      = 0
	AttrCreateCQCQE         = 1
	AttrCreateCQUserHandle  = 2
	AttrCreateCQCompChannel = 3
	AttrCreateCQCompVector  = 4
	AttrCreateCQFlags       = 5
	AttrCreateCQRespCQE     = 6
	AttrCreateCQEventFD     = 7

	AttrDestroyCQHandle = 0
	AttrDestroyCQResp   = 1
)

// Methods of ObjectQP and their attributes.
const (
	MethodQPCreate  = 0
	MethodQPDestroy = 1

	AttrCreateQPHandle       = 0
	AttrCreateQPPDHandle     = 2
	AttrCreateQPSRQHandle    = 3
	AttrCreateQPSendCQHandle = 4
	AttrCreateQPRecvCQHandle = 5
	AttrCreateQPUserHandle   = 7
	AttrCreateQPCap          = 8
	AttrCreateQPType         = 9
	AttrCreateQPFlags        = 10
	AttrCreateQPEventFD      = 12
	AttrCreateQPRespCap      = 13
	AttrCreateQPRespQPNum    = 14

	AttrDestroyQPHandle = 0
	AttrDestroyQPResp   = 1
)

// Methods of ObjectSRQ and their attributes.
const (
	MethodSRQCreate  = 0
	MethodSRQDestroy = 1

	AttrCreateSRQHandle     = 0
	AttrCreateSRQPDHandle   = 1
	AttrCreateSRQUserHandle = 4
	AttrCreateSRQMaxWR      = 5
	AttrCreateSRQMaxSGE     = 6
	AttrCreateSRQLimit      = 7
	AttrCreateSRQType       = 9
	AttrCreateSRQEventFD    = 10
	AttrCreateSRQRespMaxWR  = 11
	AttrCreateSRQRespMaxSGE = 12

	AttrDestroySRQHandle = 0
	AttrDestroySRQResp   = 1
)

// Methods of ObjectAH and ObjectMW and their attributes. Both are made by a
// command of the write interface.
const (
	MethodAHDestroy     = 0
	AttrDestroyAHHandle = 0

	MethodMWDestroy     = 0
	AttrDestroyMWHandle = 0
)

// Methods of ObjectMR and their attributes. REG_MR is of Linux 6.17 or about.
const (
	MethodMRDestroy   = 1
	MethodQueryMR     = 3
	MethodRegDMABufMR = 4
	MethodRegMR       = 5

	AttrDestroyMRHandle = 0

	AttrQueryMRHandle     = 0
	AttrQueryMRRespLKey   = 1
	AttrQueryMRRespRKey   = 2
	AttrQueryMRRespLength = 3
	AttrQueryMRRespIOVA   = 4

	AttrRegDMABufMRHandle      = 0
	AttrRegDMABufMRPDHandle    = 1
	AttrRegDMABufMROffset      = 2
	AttrRegDMABufMRLength      = 3
	AttrRegDMABufMRIOVA        = 4
	AttrRegDMABufMRFD          = 5
	AttrRegDMABufMRAccessFlags = 6
	AttrRegDMABufMRRespLKey    = 7
	AttrRegDMABufMRRespRKey    = 8

	AttrRegMRHandle      = 0
	AttrRegMRPDHandle    = 1
	AttrRegMRIOVA        = 3
	AttrRegMRAddr        = 4
	AttrRegMRLength      = 5
	AttrRegMRAccessFlags = 6
	AttrRegMRRespLKey    = 9
	AttrRegMRRespRKey    = 10
)

package uverbstest

import (
	"fmt"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// Kind is how an attribute carries its value.
type Kind uint8

// Kinds of attributes.
const (
	In        Kind = iota + 1 // bytes to the kernel: inline up to eight, else pointed to
	Out                       // bytes from the kernel, always pointed to
	Const                     // a number, eight bytes
	Handle                    // an object
	NewHandle                 // an object that is made
	File                      // a descriptor
	NewFile                   // a descriptor that is made
)

// Method names a command.
type Method struct{ Object, Method uint16 }

// Commands that are decoded.
var (
	InvokeWrite   = Method{uapi.ObjectDevice, uapi.MethodInvokeWrite}
	InfoHandles   = Method{uapi.ObjectDevice, uapi.MethodInfoHandles}
	QueryPort     = Method{uapi.ObjectDevice, uapi.MethodQueryPort}
	GetContext    = Method{uapi.ObjectDevice, uapi.MethodGetContext}
	QueryGIDTable = Method{uapi.ObjectDevice, uapi.MethodQueryGIDTable}
	QueryGIDEntry = Method{uapi.ObjectDevice, uapi.MethodQueryGIDEntry}
	PDDestroy     = Method{uapi.ObjectPD, uapi.MethodPDDestroy}
	CQCreate      = Method{uapi.ObjectCQ, uapi.MethodCQCreate}
	CQDestroy     = Method{uapi.ObjectCQ, uapi.MethodCQDestroy}
	QPCreate      = Method{uapi.ObjectQP, uapi.MethodQPCreate}
	QPDestroy     = Method{uapi.ObjectQP, uapi.MethodQPDestroy}
	SRQCreate     = Method{uapi.ObjectSRQ, uapi.MethodSRQCreate}
	SRQDestroy    = Method{uapi.ObjectSRQ, uapi.MethodSRQDestroy}
	AHDestroy     = Method{uapi.ObjectAH, uapi.MethodAHDestroy}
	MWDestroy     = Method{uapi.ObjectMW, uapi.MethodMWDestroy}
	MRDestroy     = Method{uapi.ObjectMR, uapi.MethodMRDestroy}
	RegDMABufMR   = Method{uapi.ObjectMR, uapi.MethodRegDMABufMR}
	RegMR         = Method{uapi.ObjectMR, uapi.MethodRegMR}
	MLX5UARAlloc  = Method{uapi.ObjectMLX5UAR, uapi.MethodMLX5UARAlloc}
	MLX5UARFree   = Method{uapi.ObjectMLX5UAR, uapi.MethodMLX5UARDestroy}
	AsyncEvents   = Method{uapi.ObjectAsyncEvent, uapi.MethodAsyncEventAlloc}
)

type attrSpec struct {
	name string
	kind Kind
}

type methodSpec struct {
	name  string
	attrs map[uint16]attrSpec
}

var handleOnly = map[uint16]attrSpec{0: {"HANDLE", Handle}}

var handleAndResp = map[uint16]attrSpec{0: {"HANDLE", Handle}, 1: {"RESP", Out}}

var methods = map[Method]methodSpec{
	InvokeWrite: {"DEVICE.INVOKE_WRITE", map[uint16]attrSpec{
		uapi.AttrCoreIn: {"CORE_IN", In}, uapi.AttrCoreOut: {"CORE_OUT", Out}, uapi.AttrWriteCmd: {"WRITE_CMD", Const}}},
	InfoHandles: {"DEVICE.INFO_HANDLES", map[uint16]attrSpec{
		uapi.AttrInfoObjectID: {"OBJECT_ID", Const}, uapi.AttrInfoTotalHandles: {"TOTAL", Out}, uapi.AttrInfoHandlesList: {"LIST", Out}}},
	QueryPort: {"DEVICE.QUERY_PORT", map[uint16]attrSpec{
		uapi.AttrQueryPortPortNum: {"PORT_NUM", Const}, uapi.AttrQueryPortResp: {"RESP", Out}}},
	GetContext: {"DEVICE.GET_CONTEXT", map[uint16]attrSpec{
		uapi.AttrGetContextNumCompVectors: {"NUM_COMP_VECTORS", Out}, uapi.AttrGetContextCoreSupport: {"CORE_SUPPORT", Out}}},
	QueryGIDTable: {"DEVICE.QUERY_GID_TABLE", map[uint16]attrSpec{
		uapi.AttrQueryGIDTableEntrySize: {"ENTRY_SIZE", Const}, uapi.AttrQueryGIDTableFlags: {"FLAGS", In},
		uapi.AttrQueryGIDTableRespEntries: {"RESP_ENTRIES", Out}, uapi.AttrQueryGIDTableRespNumEntries: {"RESP_NUM_ENTRIES", Out}}},
	QueryGIDEntry: {"DEVICE.QUERY_GID_ENTRY", map[uint16]attrSpec{
		uapi.AttrQueryGIDEntryPort: {"PORT", Const}, uapi.AttrQueryGIDEntryGIDIndex: {"GID_INDEX", Const},
		uapi.AttrQueryGIDEntryFlags: {"FLAGS", In}, uapi.AttrQueryGIDEntryRespEntry: {"RESP_ENTRY", Out}}},
	PDDestroy: {"PD.DESTROY", handleOnly},
	CQCreate: {"CQ.CREATE", map[uint16]attrSpec{
		uapi.AttrCreateCQHandle: {"HANDLE", NewHandle}, uapi.AttrCreateCQCQE: {"CQE", In}, uapi.AttrCreateCQUserHandle: {"USER_HANDLE", In},
		uapi.AttrCreateCQCompChannel: {"COMP_CHANNEL", File}, uapi.AttrCreateCQCompVector: {"COMP_VECTOR", In},
		uapi.AttrCreateCQRespCQE: {"RESP_CQE", Out}, uapi.AttrCreateCQEventFD: {"EVENT_FD", File}}},
	CQDestroy: {"CQ.DESTROY", handleAndResp},
	QPCreate: {"QP.CREATE", map[uint16]attrSpec{
		uapi.AttrCreateQPHandle: {"HANDLE", NewHandle}, uapi.AttrCreateQPPDHandle: {"PD_HANDLE", Handle},
		uapi.AttrCreateQPSRQHandle: {"SRQ_HANDLE", Handle}, uapi.AttrCreateQPSendCQHandle: {"SEND_CQ_HANDLE", Handle}, uapi.AttrCreateQPRecvCQHandle: {"RECV_CQ_HANDLE", Handle},
		uapi.AttrCreateQPUserHandle: {"USER_HANDLE", In}, uapi.AttrCreateQPCap: {"CAP", In}, uapi.AttrCreateQPType: {"TYPE", Const},
		uapi.AttrCreateQPFlags: {"FLAGS", In}, uapi.AttrCreateQPEventFD: {"EVENT_FD", File},
		uapi.AttrCreateQPRespCap: {"RESP_CAP", Out}, uapi.AttrCreateQPRespQPNum: {"RESP_QP_NUM", Out}}},
	QPDestroy: {"QP.DESTROY", handleAndResp},
	SRQCreate: {"SRQ.CREATE", map[uint16]attrSpec{
		uapi.AttrCreateSRQHandle: {"HANDLE", NewHandle}, uapi.AttrCreateSRQPDHandle: {"PD_HANDLE", Handle},
		uapi.AttrCreateSRQUserHandle: {"USER_HANDLE", In}, uapi.AttrCreateSRQMaxWR: {"MAX_WR", In},
		uapi.AttrCreateSRQMaxSGE: {"MAX_SGE", In}, uapi.AttrCreateSRQLimit: {"LIMIT", In}, uapi.AttrCreateSRQType: {"TYPE", Const},
		uapi.AttrCreateSRQEventFD: {"EVENT_FD", File}, uapi.AttrCreateSRQRespMaxWR: {"RESP_MAX_WR", Out},
		uapi.AttrCreateSRQRespMaxSGE: {"RESP_MAX_SGE", Out}}},
	SRQDestroy: {"SRQ.DESTROY", handleAndResp},
	AHDestroy:  {"AH.DESTROY", handleOnly},
	MWDestroy:  {"MW.DESTROY", handleOnly},
	MRDestroy:  {"MR.DESTROY", handleOnly},
	RegDMABufMR: {"MR.REG_DMABUF_MR", map[uint16]attrSpec{
		uapi.AttrRegDMABufMRHandle: {"HANDLE", NewHandle}, uapi.AttrRegDMABufMRPDHandle: {"PD_HANDLE", Handle},
		uapi.AttrRegDMABufMROffset: {"OFFSET", In}, uapi.AttrRegDMABufMRLength: {"LENGTH", In}, uapi.AttrRegDMABufMRIOVA: {"IOVA", In},
		uapi.AttrRegDMABufMRFD: {"FD", In}, uapi.AttrRegDMABufMRAccessFlags: {"ACCESS_FLAGS", In},
		uapi.AttrRegDMABufMRRespLKey: {"RESP_LKEY", Out}, uapi.AttrRegDMABufMRRespRKey: {"RESP_RKEY", Out}}},
	RegMR: {"MR.REG_MR", map[uint16]attrSpec{
		uapi.AttrRegMRHandle: {"HANDLE", NewHandle}, uapi.AttrRegMRPDHandle: {"PD_HANDLE", Handle}, uapi.AttrRegMRIOVA: {"IOVA", In},
		uapi.AttrRegMRAddr: {"ADDR", In}, uapi.AttrRegMRLength: {"LENGTH", In}, uapi.AttrRegMRAccessFlags: {"ACCESS_FLAGS", In},
		uapi.AttrRegMRRespLKey: {"RESP_LKEY", Out}, uapi.AttrRegMRRespRKey: {"RESP_RKEY", Out}}},
	MLX5UARAlloc: {"MLX5_UAR.ALLOC", map[uint16]attrSpec{
		uapi.AttrMLX5UARAllocHandle: {"HANDLE", NewHandle}, uapi.AttrMLX5UARAllocType: {"TYPE", Const},
		uapi.AttrMLX5UARAllocMMapOffset: {"MMAP_OFFSET", Out}, uapi.AttrMLX5UARAllocMMapLength: {"MMAP_LENGTH", Out},
		uapi.AttrMLX5UARAllocPageID: {"PAGE_ID", Out}}},
	MLX5UARFree: {"MLX5_UAR.DESTROY", map[uint16]attrSpec{uapi.AttrMLX5UARDestroyHandle: {"HANDLE", Handle}}},
	AsyncEvents: {"ASYNC_EVENT.ALLOC", map[uint16]attrSpec{
		uapi.AttrAsyncEventAllocFDHandle: {"FD_HANDLE", NewFile}}},
}

var driverAttrs = map[uint16]attrSpec{uapi.AttrUHWIn: {"UHW_IN", In}, uapi.AttrUHWOut: {"UHW_OUT", Out}}

func (m Method) attr(id uint16) (attrSpec, bool) {
	if s, ok := methods[m].attrs[id]; ok { // methods of a driver number their own as verbs number the driver's
		return s, true
	}
	s, ok := driverAttrs[id]
	return s, ok
}

// String is the kernel's name, DEVICE.QUERY_PORT for example.
func (m Method) String() string {
	if s, ok := methods[m]; ok {
		return s.name
	}
	return fmt.Sprintf("%d.%d", m.Object, m.Method)
}

var commands = map[uint32]string{
	uapi.CmdQueryDevice:                        "QUERY_DEVICE",
	uapi.CmdQueryDevice | uapi.CmdFlagExtended: "EX_QUERY_DEVICE",
	uapi.CmdAllocPD:                            "ALLOC_PD",
	uapi.CmdCreateAH:                           "CREATE_AH",
	uapi.CmdRegMR:                              "REG_MR",
	uapi.CmdAllocMW:                            "ALLOC_MW",
	uapi.CmdResizeCQ:                           "RESIZE_CQ",
	uapi.CmdAttachMcast:                        "ATTACH_MCAST",
	uapi.CmdDetachMcast:                        "DETACH_MCAST",
	uapi.CmdModifySRQ:                          "MODIFY_SRQ",
	uapi.CmdQuerySRQ:                           "QUERY_SRQ",
	uapi.CmdCreateCompChannel:                  "CREATE_COMP_CHANNEL",
	uapi.CmdReqNotifyCQ:                        "REQ_NOTIFY_CQ",
	uapi.CmdQueryQP:                            "QUERY_QP",
	uapi.CmdModifyQP:                           "MODIFY_QP",
	uapi.CmdModifyQP | uapi.CmdFlagExtended:    "EX_MODIFY_QP",
	uapi.CmdPostSend:                           "POST_SEND",
}

func commandName(cmd uint32) string {
	if s, ok := commands[cmd]; ok {
		return s
	}
	return fmt.Sprintf("command %#x", cmd)
}

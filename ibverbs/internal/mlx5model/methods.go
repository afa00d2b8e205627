package mlx5model

import "github.com/purerdma/purerdma/ibverbs/internal/uapi"

// Methods that are answered before a context is.
const (
	getContext  = "GET_CONTEXT"
	invokeWrite = "INVOKE_WRITE"
)

// methods is what the model answers. It is filled by init, since a method may look
// others up.
var methods map[methodID]method

func init() {
	uhwIn, uhwOut := attr{kind: in, optional: true}, attr{kind: out, optional: true}
	methods = map[methodID]method{
		{uapi.ObjectDevice, uapi.MethodInvokeWrite}: {invokeWrite, map[uint16]attr{
			uapi.AttrCoreIn:   {kind: in, optional: true},
			uapi.AttrCoreOut:  {kind: out, optional: true},
			uapi.AttrWriteCmd: {kind: constant},
			uapi.AttrUHWIn:    uhwIn, uapi.AttrUHWOut: uhwOut,
		}, (*call).invokeWrite},
		{uapi.ObjectDevice, uapi.MethodGetContext}: {getContext, map[uint16]attr{
			uapi.AttrGetContextNumCompVectors: {kind: out, size: 4, optional: true},
			uapi.AttrGetContextCoreSupport:    {kind: out, size: 8, optional: true},
			uapi.AttrUHWIn:                    uhwIn, uapi.AttrUHWOut: uhwOut,
		}, (*call).getContext},
		{uapi.ObjectDevice, uapi.MethodQueryPort}: {"QUERY_PORT", map[uint16]attr{
			uapi.AttrQueryPortPortNum: {kind: constant},
			uapi.AttrQueryPortResp:    {kind: out, size: 48},
		}, (*call).queryPort},
		{uapi.ObjectDevice, uapi.MethodQueryGIDTable}: {"QUERY_GID_TABLE", map[uint16]attr{
			uapi.AttrQueryGIDTableEntrySize:      {kind: constant},
			uapi.AttrQueryGIDTableFlags:          {kind: in, size: 4, optional: true},
			uapi.AttrQueryGIDTableRespEntries:    {kind: out},
			uapi.AttrQueryGIDTableRespNumEntries: {kind: out, size: 8},
		}, (*call).queryGIDTable},
		{uapi.ObjectDevice, uapi.MethodQueryGIDEntry}: {"QUERY_GID_ENTRY", map[uint16]attr{
			uapi.AttrQueryGIDEntryPort:      {kind: constant},
			uapi.AttrQueryGIDEntryGIDIndex:  {kind: constant},
			uapi.AttrQueryGIDEntryFlags:     {kind: in, size: 4, optional: true},
			uapi.AttrQueryGIDEntryRespEntry: {kind: out, size: 32},
		}, (*call).queryGIDEntry},
		{uapi.ObjectAsyncEvent, uapi.MethodAsyncEventAlloc}: {"ASYNC_EVENT_ALLOC", map[uint16]attr{
			uapi.AttrAsyncEventAllocFDHandle: {kind: newFile},
		}, (*call).asyncEvents},
		{uapi.ObjectMLX5UAR, uapi.MethodMLX5UARAlloc}: {"UAR_OBJ_ALLOC", map[uint16]attr{
			uapi.AttrMLX5UARAllocHandle:     {kind: newHandle},
			uapi.AttrMLX5UARAllocType:       {kind: constant},
			uapi.AttrMLX5UARAllocMMapOffset: {kind: out, size: 8},
			uapi.AttrMLX5UARAllocMMapLength: {kind: out, size: 4},
			uapi.AttrMLX5UARAllocPageID:     {kind: out, size: 4},
		}, (*call).allocUAR},
		{uapi.ObjectMLX5UAR, uapi.MethodMLX5UARDestroy}: {"UAR_OBJ_DESTROY", map[uint16]attr{
			uapi.AttrMLX5UARDestroyHandle: {kind: handle},
		}, (*call).freeUAR},
	}
}

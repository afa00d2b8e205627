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
	destroys := func(name string, resp uint16, run func(*call) error) method {
		attrs := map[uint16]attr{0: {kind: handle}}
		if resp != 0 {
			attrs[1] = attr{kind: out, size: resp}
		}
		return method{name, attrs, run}
	}
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
		{uapi.ObjectDevice, uapi.MethodQueryContext}: {"QUERY_CONTEXT", map[uint16]attr{
			uapi.AttrQueryContextNumCompVectors: {kind: out, size: 4, optional: true},
			uapi.AttrQueryContextCoreSupport:    {kind: out, size: 8, optional: true},
			uapi.AttrMLX5QueryContextRespUCtx:   {kind: out},
		}, (*call).queryContext},
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
		{uapi.ObjectCQ, uapi.MethodCQCreate}: {"CQ_CREATE", map[uint16]attr{
			uapi.AttrCreateCQHandle:      {kind: newHandle},
			uapi.AttrCreateCQCQE:         {kind: in, size: 4},
			uapi.AttrCreateCQUserHandle:  {kind: in, size: 8},
			uapi.AttrCreateCQCompChannel: {kind: file, optional: true},
			uapi.AttrCreateCQCompVector:  {kind: in, size: 4},
			uapi.AttrCreateCQFlags:       {kind: in, size: 4, optional: true},
			uapi.AttrCreateCQRespCQE:     {kind: out, size: 4},
			uapi.AttrCreateCQEventFD:     {kind: file, optional: true},
			uapi.AttrUHWIn:               uhwIn, uapi.AttrUHWOut: uhwOut,
		}, (*call).createCQ},
		{uapi.ObjectCQ, uapi.MethodCQDestroy}: destroys("CQ_DESTROY", 8, (*call).destroyCQ),
		{uapi.ObjectQP, uapi.MethodQPCreate}: {"QP_CREATE", map[uint16]attr{
			uapi.AttrCreateQPHandle:       {kind: newHandle},
			uapi.AttrCreateQPPDHandle:     {kind: handle},
			uapi.AttrCreateQPSRQHandle:    {kind: handle, optional: true},
			uapi.AttrCreateQPSendCQHandle: {kind: handle},
			uapi.AttrCreateQPRecvCQHandle: {kind: handle},
			uapi.AttrCreateQPUserHandle:   {kind: in, size: 8},
			uapi.AttrCreateQPCap:          {kind: in, size: 20},
			uapi.AttrCreateQPType:         {kind: constant},
			uapi.AttrCreateQPFlags:        {kind: in, size: 4, optional: true},
			uapi.AttrCreateQPEventFD:      {kind: file, optional: true},
			uapi.AttrCreateQPRespCap:      {kind: out, size: 20},
			uapi.AttrCreateQPRespQPNum:    {kind: out, size: 4},
			uapi.AttrUHWIn:                uhwIn, uapi.AttrUHWOut: uhwOut,
		}, (*call).createQP},
		{uapi.ObjectQP, uapi.MethodQPDestroy}: destroys("QP_DESTROY", 4, (*call).destroyQP),
		{uapi.ObjectSRQ, uapi.MethodSRQCreate}: {"SRQ_CREATE", map[uint16]attr{
			uapi.AttrCreateSRQHandle:     {kind: newHandle},
			uapi.AttrCreateSRQPDHandle:   {kind: handle},
			uapi.AttrCreateSRQUserHandle: {kind: in, size: 8},
			uapi.AttrCreateSRQMaxWR:      {kind: in, size: 4},
			uapi.AttrCreateSRQMaxSGE:     {kind: in, size: 4},
			uapi.AttrCreateSRQLimit:      {kind: in, size: 4},
			uapi.AttrCreateSRQType:       {kind: constant},
			uapi.AttrCreateSRQEventFD:    {kind: file, optional: true},
			uapi.AttrCreateSRQRespMaxWR:  {kind: out, size: 4},
			uapi.AttrCreateSRQRespMaxSGE: {kind: out, size: 4},
			uapi.AttrUHWIn:               uhwIn, uapi.AttrUHWOut: uhwOut,
		}, (*call).createSRQ},
		{uapi.ObjectSRQ, uapi.MethodSRQDestroy}: destroys("SRQ_DESTROY", 4, (*call).destroySRQ),
		{uapi.ObjectAH, uapi.MethodAHDestroy}:   destroys("AH_DESTROY", 0, (*call).destroyAH),
		{uapi.ObjectPD, uapi.MethodPDDestroy}:   destroys("PD_DESTROY", 0, (*call).destroyPD),
		{uapi.ObjectPD, uapi.MethodMLX5PDQuery}: {"PD_QUERY", map[uint16]attr{
			uapi.AttrMLX5QueryPDHandle:  {kind: handle},
			uapi.AttrMLX5QueryPDRespPDN: {kind: out, size: 4},
		}, (*call).queryPD},
		{uapi.ObjectMR, uapi.MethodQueryMR}: {"QUERY_MR", map[uint16]attr{
			uapi.AttrQueryMRHandle:     {kind: handle},
			uapi.AttrQueryMRRespLKey:   {kind: out, size: 4},
			uapi.AttrQueryMRRespRKey:   {kind: out, size: 4},
			uapi.AttrQueryMRRespLength: {kind: out, size: 8},
			uapi.AttrQueryMRRespIOVA:   {kind: out, size: 8, optional: true},
		}, (*call).queryMR},
		{uapi.ObjectMR, uapi.MethodRegDMABufMR}: {"REG_DMABUF_MR", map[uint16]attr{
			uapi.AttrRegDMABufMRHandle:      {kind: newHandle},
			uapi.AttrRegDMABufMRPDHandle:    {kind: handle},
			uapi.AttrRegDMABufMROffset:      {kind: in, size: 8},
			uapi.AttrRegDMABufMRLength:      {kind: in, size: 8},
			uapi.AttrRegDMABufMRIOVA:        {kind: in, size: 8},
			uapi.AttrRegDMABufMRFD:          {kind: in, size: 4},
			uapi.AttrRegDMABufMRAccessFlags: {kind: in, size: 4, optional: true},
			uapi.AttrRegDMABufMRRespLKey:    {kind: out, size: 4},
			uapi.AttrRegDMABufMRRespRKey:    {kind: out, size: 4},
		}, (*call).regDMABuf},
		{uapi.ObjectMR, uapi.MethodMRDestroy}: destroys("MR_DESTROY", 0, (*call).destroyMR),
		{uapi.ObjectMW, uapi.MethodMWDestroy}: destroys("MW_DESTROY", 0, (*call).deallocMW),
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

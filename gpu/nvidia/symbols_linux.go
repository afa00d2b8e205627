package nvidia

// symbol is a function of libcuda.
type symbol int

// The functions, in the order of names.
const (
	cuInit symbol = iota
	cuDriverGetVersion
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceGetUuid
	cuDeviceGetPCIBusId
	cuDeviceTotalMem
	cuDeviceGetAttribute
	cuDeviceCanAccessPeer
	cuDeviceGetP2PAttribute
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxPushCurrent
	cuCtxPopCurrent
	cuCtxEnablePeerAccess
	cuMemAlloc
	cuMemFree
	cuMemGetInfo
	cuMemGetAllocationGranularity
	cuMemGetAllocationPropertiesFromHandle
	cuMemCreate
	cuMemRelease
	cuMemAddressReserve
	cuMemAddressFree
	cuMemMap
	cuMemUnmap
	cuMemSetAccess
	cuMemExportToShareableHandle
	cuMemImportFromShareableHandle
	cuMemGetHandleForAddressRange
	cuMemHostRegister
	cuMemHostGetDevicePointer
	cuMemHostUnregister
	cuPointerGetAttribute
	cuIpcGetMemHandle
	cuIpcOpenMemHandle
	cuIpcCloseMemHandle
	cuMemcpyDtoH
	cuMemcpyHtoD
	cuMemcpyAsync
	cuMemsetD8Async
	cuStreamCreate
	cuStreamDestroy
	cuStreamSynchronize
	cuStreamWaitEvent
	cuStreamWriteValue32
	cuStreamWaitValue32
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventQuery
	cuModuleLoadDataEx
	cuModuleUnload
	cuModuleGetFunction
	cuFuncLoad
	cuLaunchKernel
	symbols
)

// names is the functions with the suffixes that their present forms have in the
// library.
var names = [symbols]string{
	"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetUuid_v2",
	"cuDeviceGetPCIBusId", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute", "cuDeviceCanAccessPeer", "cuDeviceGetP2PAttribute",
	"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
	"cuCtxEnablePeerAccess", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemGetInfo_v2", "cuMemGetAllocationGranularity",
	"cuMemGetAllocationPropertiesFromHandle", "cuMemCreate", "cuMemRelease", "cuMemAddressReserve", "cuMemAddressFree",
	"cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle",
	"cuMemGetHandleForAddressRange", "cuMemHostRegister_v2", "cuMemHostGetDevicePointer_v2", "cuMemHostUnregister",
	"cuPointerGetAttribute", "cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle", "cuMemcpyDtoH_v2",
	"cuMemcpyHtoD_v2", "cuMemcpyAsync", "cuMemsetD8Async", "cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize",
	"cuStreamWaitEvent", "cuStreamWriteValue32_v2", "cuStreamWaitValue32_v2", "cuEventCreate", "cuEventDestroy_v2",
	"cuEventRecord", "cuEventQuery", "cuModuleLoadDataEx", "cuModuleUnload", "cuModuleGetFunction", "cuFuncLoad",
	"cuLaunchKernel",
}

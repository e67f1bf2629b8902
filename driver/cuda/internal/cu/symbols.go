//go:build linux && (amd64 || arm64) && !nocuda

package cu

// A symbol is a function of libcuda, as an index of Lib's table.
type symbol int

const (
	symInit symbol = iota
	symDriverGetVersion
	symGetErrorName
	symGetErrorString

	symDeviceGetCount
	symDeviceGet
	symDeviceGetName
	symDeviceGetUUID
	symDeviceGetPCIBusID
	symDeviceGetAttribute
	symDeviceTotalMem
	symDeviceCanAccessPeer

	symPrimaryCtxRetain
	symPrimaryCtxRelease
	symCtxSetCurrent
	symCtxGetCurrent
	symCtxPushCurrent
	symCtxPopCurrent
	symCtxGetStreamPriorityRange
	symCtxEnablePeerAccess
	symCtxDisablePeerAccess
	symThreadExchangeCaptureMode

	symMemAlloc
	symMemFree
	symMemGetInfo
	symPointerGetAttribute

	symMemAddressReserve
	symMemAddressFree
	symMemCreate
	symMemRelease
	symMemMap
	symMemUnmap
	symMemSetAccess
	symMemGetAllocationGranularity
	symMemExportToShareableHandle
	symMemImportFromShareableHandle

	symMemHostAlloc
	symMemFreeHost
	symMemHostRegister
	symMemHostUnregister

	symStreamCreate
	symStreamDestroy
	symStreamSynchronize
	symStreamWaitEvent
	symStreamGetCtx
	symStreamGetPriority
	symStreamIsCapturing
	symStreamBeginCapture
	symStreamEndCapture
	symStreamGetCaptureInfo

	symEventCreate
	symEventRecord
	symEventQuery
	symEventSynchronize
	symEventDestroy
	symEventElapsedTime

	symMemcpyDtoH
	symMemcpyHtoDAsync
	symMemcpyDtoHAsync
	symMemcpyDtoDAsync
	symMemcpyPeerAsync
	symMemsetD8Async

	symGraphInstantiate
	symGraphLaunch
	symGraphDestroy
	symGraphExecDestroy
	symGraphGetNodes

	symModuleLoadDataEx
	symModuleUnload
	symModuleGetFunction
	symFuncGetAttribute
	symFuncSetAttribute
	symFuncGetParamInfo
	symFuncGetParamCount
	symLaunchKernel

	symIpcGetMemHandle
	symIpcOpenMemHandle
	symIpcCloseMemHandle
	symIpcGetEventHandle
	symIpcOpenEventHandle

	symbolCount
)

// names are the exported names of each symbol, the best first. Those added after CUDA 12.0 are
// cuStreamGetCaptureInfo_v3 (12.3), cuFuncGetParamInfo (12.4), cuEventElapsedTime_v2 (12.8) and cuFuncGetParamCount
// (13.2).
var names = [symbolCount][]string{
	symInit:             {"cuInit"},
	symDriverGetVersion: {"cuDriverGetVersion"},
	symGetErrorName:     {"cuGetErrorName"},
	symGetErrorString:   {"cuGetErrorString"},

	symDeviceGetCount:      {"cuDeviceGetCount"},
	symDeviceGet:           {"cuDeviceGet"},
	symDeviceGetName:       {"cuDeviceGetName"},
	symDeviceGetUUID:       {"cuDeviceGetUuid_v2", "cuDeviceGetUuid"},
	symDeviceGetPCIBusID:   {"cuDeviceGetPCIBusId"},
	symDeviceGetAttribute:  {"cuDeviceGetAttribute"},
	symDeviceTotalMem:      {"cuDeviceTotalMem_v2"},
	symDeviceCanAccessPeer: {"cuDeviceCanAccessPeer"},

	symPrimaryCtxRetain:          {"cuDevicePrimaryCtxRetain"},
	symPrimaryCtxRelease:         {"cuDevicePrimaryCtxRelease_v2"},
	symCtxSetCurrent:             {"cuCtxSetCurrent"},
	symCtxGetCurrent:             {"cuCtxGetCurrent"},
	symCtxPushCurrent:            {"cuCtxPushCurrent_v2"},
	symCtxPopCurrent:             {"cuCtxPopCurrent_v2"},
	symCtxGetStreamPriorityRange: {"cuCtxGetStreamPriorityRange"},
	symCtxEnablePeerAccess:       {"cuCtxEnablePeerAccess"},
	symCtxDisablePeerAccess:      {"cuCtxDisablePeerAccess"},
	symThreadExchangeCaptureMode: {"cuThreadExchangeStreamCaptureMode"},

	symMemAlloc:            {"cuMemAlloc_v2"},
	symMemFree:             {"cuMemFree_v2"},
	symMemGetInfo:          {"cuMemGetInfo_v2"},
	symPointerGetAttribute: {"cuPointerGetAttribute"},

	symMemAddressReserve:            {"cuMemAddressReserve"},
	symMemAddressFree:               {"cuMemAddressFree"},
	symMemCreate:                    {"cuMemCreate"},
	symMemRelease:                   {"cuMemRelease"},
	symMemMap:                       {"cuMemMap"},
	symMemUnmap:                     {"cuMemUnmap"},
	symMemSetAccess:                 {"cuMemSetAccess"},
	symMemGetAllocationGranularity:  {"cuMemGetAllocationGranularity"},
	symMemExportToShareableHandle:   {"cuMemExportToShareableHandle"},
	symMemImportFromShareableHandle: {"cuMemImportFromShareableHandle"},

	symMemHostAlloc:      {"cuMemHostAlloc"},
	symMemFreeHost:       {"cuMemFreeHost"},
	symMemHostRegister:   {"cuMemHostRegister_v2"},
	symMemHostUnregister: {"cuMemHostUnregister"},

	symStreamCreate:         {"cuStreamCreateWithPriority"},
	symStreamDestroy:        {"cuStreamDestroy_v2"},
	symStreamSynchronize:    {"cuStreamSynchronize"},
	symStreamWaitEvent:      {"cuStreamWaitEvent"},
	symStreamGetCtx:         {"cuStreamGetCtx"},
	symStreamGetPriority:    {"cuStreamGetPriority"},
	symStreamIsCapturing:    {"cuStreamIsCapturing"},
	symStreamBeginCapture:   {"cuStreamBeginCapture_v2"},
	symStreamEndCapture:     {"cuStreamEndCapture"},
	symStreamGetCaptureInfo: {"cuStreamGetCaptureInfo_v3", "cuStreamGetCaptureInfo_v2"},

	symEventCreate:      {"cuEventCreate"},
	symEventRecord:      {"cuEventRecord"},
	symEventQuery:       {"cuEventQuery"},
	symEventSynchronize: {"cuEventSynchronize"},
	symEventDestroy:     {"cuEventDestroy_v2"},
	symEventElapsedTime: {"cuEventElapsedTime_v2", "cuEventElapsedTime"},

	symMemcpyDtoH:      {"cuMemcpyDtoH_v2"},
	symMemcpyHtoDAsync: {"cuMemcpyHtoDAsync_v2"},
	symMemcpyDtoHAsync: {"cuMemcpyDtoHAsync_v2"},
	symMemcpyDtoDAsync: {"cuMemcpyDtoDAsync_v2"},
	symMemcpyPeerAsync: {"cuMemcpyPeerAsync"},
	symMemsetD8Async:   {"cuMemsetD8Async"},

	symGraphInstantiate: {"cuGraphInstantiateWithFlags"},
	symGraphLaunch:      {"cuGraphLaunch"},
	symGraphDestroy:     {"cuGraphDestroy"},
	symGraphExecDestroy: {"cuGraphExecDestroy"},
	symGraphGetNodes:    {"cuGraphGetNodes"},

	symModuleLoadDataEx:  {"cuModuleLoadDataEx"},
	symModuleUnload:      {"cuModuleUnload"},
	symModuleGetFunction: {"cuModuleGetFunction"},
	symFuncGetAttribute:  {"cuFuncGetAttribute"},
	symFuncSetAttribute:  {"cuFuncSetAttribute"},
	symFuncGetParamInfo:  {"cuFuncGetParamInfo"},
	symFuncGetParamCount: {"cuFuncGetParamCount"},
	symLaunchKernel:      {"cuLaunchKernel"},

	symIpcGetMemHandle:   {"cuIpcGetMemHandle"},
	symIpcOpenMemHandle:  {"cuIpcOpenMemHandle_v2"},
	symIpcCloseMemHandle: {"cuIpcCloseMemHandle"},

	symIpcGetEventHandle:  {"cuIpcGetEventHandle"},
	symIpcOpenEventHandle: {"cuIpcOpenEventHandle"},
}

// dispensable are the symbols that callers do not need.
var dispensable = [symbolCount]bool{symFuncGetParamCount: true, symThreadExchangeCaptureMode: true}

// unsafeInCaptures are the functions that CUDA refuses, as potentially unsafe, while a stream of this thread or of any
// other captures in a mode that is not relaxed: they would end with an error and break that capture (CUDA Driver API,
// cuStreamBeginCapture, cuThreadExchangeStreamCaptureMode). They wait, or make and free things. Those of which CUDA
// does not say so are here too: it costs them two calls.
var unsafeInCaptures = [symbolCount]bool{
	symPrimaryCtxRetain: true, symPrimaryCtxRelease: true,
	symCtxEnablePeerAccess: true, symCtxDisablePeerAccess: true,

	symMemAlloc: true, symMemFree: true, symMemGetInfo: true,
	symMemHostAlloc: true, symMemFreeHost: true, symMemHostRegister: true, symMemHostUnregister: true,

	symMemAddressReserve: true, symMemAddressFree: true, symMemCreate: true, symMemRelease: true, symMemMap: true,
	symMemUnmap: true, symMemSetAccess: true, symMemExportToShareableHandle: true,
	symMemImportFromShareableHandle: true,

	symStreamCreate: true, symStreamDestroy: true, symStreamSynchronize: true,
	symEventCreate: true, symEventQuery: true, symEventSynchronize: true, symEventDestroy: true,
	symEventElapsedTime: true,

	symGraphInstantiate: true, symGraphDestroy: true, symGraphExecDestroy: true,
	symModuleLoadDataEx: true, symModuleUnload: true, symModuleGetFunction: true, symFuncGetAttribute: true,
	symFuncSetAttribute: true,

	symIpcGetMemHandle: true, symIpcOpenMemHandle: true, symIpcCloseMemHandle: true, symIpcGetEventHandle: true,
	symIpcOpenEventHandle: true,
}

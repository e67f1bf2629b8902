//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

// symbols are the functions that a machine has.
func symbols() []symbol {
	return []symbol{
		{"cuInit", nothing, false, (*call).init},
		{"cuDriverGetVersion", nothing, false, (*call).driverGetVersion},
		{"cuGetErrorName", nothing, false, (*call).getErrorName},
		{"cuGetErrorString", nothing, false, (*call).getErrorString},

		{"cuDeviceGetCount", initialised, false, (*call).deviceGetCount},
		{"cuDeviceGet", initialised, false, (*call).deviceGet},
		{"cuDeviceGetName", initialised, false, (*call).deviceGetName},
		{"cuDeviceGetUuid", initialised, false, (*call).deviceGetUUID},
		{"cuDeviceGetUuid_v2", initialised, false, (*call).deviceGetUUID},
		{"cuDeviceGetPCIBusId", initialised, false, (*call).deviceGetPCIBusID},
		{"cuDeviceGetAttribute", initialised, false, (*call).deviceGetAttribute},
		{"cuDeviceTotalMem_v2", initialised, false, (*call).deviceTotalMem},
		{"cuDeviceCanAccessPeer", initialised, false, (*call).deviceCanAccessPeer},

		{"cuDevicePrimaryCtxRetain", initialised, false, (*call).primaryRetain},
		{"cuDevicePrimaryCtxRelease_v2", initialised, false, (*call).primaryRelease},
		{"cuCtxSetCurrent", initialised, false, (*call).ctxSetCurrent},
		{"cuCtxGetCurrent", initialised, false, (*call).ctxGetCurrent},
		{"cuCtxPushCurrent_v2", initialised, false, (*call).ctxPushCurrent},
		{"cuCtxPopCurrent_v2", initialised, false, (*call).ctxPopCurrent},
		{"cuCtxSynchronize", current, true, (*call).ctxSynchronize},
		{"cuCtxGetStreamPriorityRange", current, false, (*call).ctxGetStreamPriorityRange},
		{"cuCtxEnablePeerAccess", current, true, (*call).ctxEnablePeerAccess},
		{"cuCtxDisablePeerAccess", current, true, (*call).ctxDisablePeerAccess},
		{"cuThreadExchangeStreamCaptureMode", initialised, false, (*call).threadExchangeCaptureMode},

		{"cuMemAlloc_v2", current, true, (*call).memAlloc},
		{"cuMemFree_v2", current, true, (*call).memFree},
		{"cuMemGetInfo_v2", current, false, (*call).memGetInfo},
		{"cuPointerGetAttribute", current, false, (*call).pointerGetAttribute},

		{"cuMemAddressReserve", initialised, false, (*call).memAddressReserve},
		{"cuMemAddressFree", initialised, false, (*call).memAddressFree},
		{"cuMemCreate", initialised, false, (*call).memCreate},
		{"cuMemRelease", initialised, false, (*call).memRelease},
		{"cuMemMap", initialised, false, (*call).memMap},
		{"cuMemUnmap", initialised, false, (*call).memUnmap},
		{"cuMemSetAccess", initialised, false, (*call).memSetAccess},
		{"cuMemGetAllocationGranularity", initialised, false, (*call).memGetAllocationGranularity},
		{"cuMemExportToShareableHandle", initialised, false, (*call).memExportToShareableHandle},
		{"cuMemImportFromShareableHandle", initialised, false, (*call).memImportFromShareableHandle},

		{"cuMemHostAlloc", current, true, (*call).memHostAlloc},
		{"cuMemFreeHost", current, true, (*call).memFreeHost},
		{"cuMemHostRegister_v2", current, true, (*call).memHostRegister},
		{"cuMemHostUnregister", current, true, (*call).memHostUnregister},

		{"cuStreamCreateWithPriority", current, false, (*call).streamCreateWithPriority},
		{"cuStreamDestroy_v2", current, false, (*call).streamDestroy},
		{"cuStreamSynchronize", current, true, (*call).streamSynchronize},
		{"cuStreamWaitEvent", current, false, (*call).streamWaitEvent},
		{"cuStreamGetCtx", current, false, (*call).streamGetCtx},
		{"cuStreamGetPriority", current, false, (*call).streamGetPriority},
		{"cuStreamIsCapturing", current, false, (*call).streamIsCapturing},
		{"cuStreamGetCaptureInfo_v2", current, false, (*call).streamGetCaptureInfo},
		{"cuStreamGetCaptureInfo_v3", current, false, (*call).streamGetCaptureInfo3},
		{"cuStreamBeginCapture_v2", current, false, (*call).streamBeginCapture},
		{"cuStreamEndCapture", current, false, (*call).streamEndCapture},

		{"cuEventCreate", current, false, (*call).eventCreate},
		{"cuEventRecord", current, false, (*call).eventRecord},
		{"cuEventQuery", initialised, false, (*call).eventQuery},
		{"cuEventSynchronize", current, false, (*call).eventSynchronize},
		{"cuEventDestroy_v2", current, false, (*call).eventDestroy},
		{"cuEventElapsedTime", current, false, (*call).eventElapsedTime},
		{"cuEventElapsedTime_v2", current, false, (*call).eventElapsedTime},

		{"cuMemcpyHtoDAsync_v2", current, false, (*call).memcpyHtoDAsync},
		{"cuMemcpyDtoHAsync_v2", current, false, (*call).memcpyDtoHAsync},
		{"cuMemcpyDtoDAsync_v2", current, false, (*call).memcpyDtoDAsync},
		{"cuMemcpyPeerAsync", current, false, (*call).memcpyPeerAsync},
		{"cuMemcpyDtoH_v2", current, true, (*call).memcpyDtoH},
		{"cuMemsetD8Async", current, false, (*call).memsetD8Async},

		{"cuGraphInstantiateWithFlags", initialised, false, (*call).graphInstantiate},
		{"cuGraphLaunch", current, false, (*call).graphLaunch},
		{"cuGraphGetNodes", initialised, false, (*call).graphGetNodes},
		{"cuGraphDestroy", initialised, false, (*call).graphDestroy},
		{"cuGraphExecDestroy", initialised, false, (*call).graphExecDestroy},

		{"cuModuleLoadDataEx", current, false, (*call).moduleLoadDataEx},
		{"cuModuleUnload", current, false, (*call).moduleUnload},
		{"cuModuleGetFunction", current, false, (*call).moduleGetFunction},
		{"cuFuncGetAttribute", current, false, (*call).funcGetAttribute},
		{"cuFuncSetAttribute", current, false, (*call).funcSetAttribute},
		{"cuFuncGetParamInfo", current, false, (*call).funcGetParamInfo},
		{"cuFuncGetParamCount", current, false, (*call).funcGetParamCount},
		{"cuLaunchKernel", current, false, (*call).launchKernel},

		{"cuIpcGetMemHandle", current, false, (*call).ipcGetMemHandle},
		{"cuIpcOpenMemHandle_v2", current, false, (*call).ipcOpenByValue},
		{"cuIpcCloseMemHandle", current, true, (*call).ipcCloseMemHandle},
		{"cuIpcGetEventHandle", current, false, (*call).ipcGetEventHandle},
		{"cuIpcOpenEventHandle", current, false, (*call).ipcOpenEventByValue},
	}
}

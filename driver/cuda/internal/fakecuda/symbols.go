//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

// symbols are the functions that a machine has. Those that wait, make or free are refused while streams capture, also
// where CUDA is known to allow some of them: it does not promise to.
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

		{"cuDevicePrimaryCtxRetain", initialised, true, (*call).primaryRetain},
		{"cuDevicePrimaryCtxRelease_v2", initialised, true, (*call).primaryRelease},
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
		{"cuMemGetInfo_v2", current, true, (*call).memGetInfo},
		{"cuPointerGetAttribute", current, false, (*call).pointerGetAttribute},

		{"cuMemAddressReserve", initialised, true, (*call).memAddressReserve},
		{"cuMemAddressFree", initialised, true, (*call).memAddressFree},
		{"cuMemCreate", initialised, true, (*call).memCreate},
		{"cuMemRelease", initialised, true, (*call).memRelease},
		{"cuMemMap", initialised, true, (*call).memMap},
		{"cuMemUnmap", initialised, true, (*call).memUnmap},
		{"cuMemSetAccess", initialised, true, (*call).memSetAccess},
		{"cuMemGetAllocationGranularity", initialised, false, (*call).memGetAllocationGranularity},
		{"cuMemExportToShareableHandle", initialised, true, (*call).memExportToShareableHandle},
		{"cuMemImportFromShareableHandle", initialised, true, (*call).memImportFromShareableHandle},

		{"cuMemHostAlloc", current, true, (*call).memHostAlloc},
		{"cuMemFreeHost", current, true, (*call).memFreeHost},
		{"cuMemHostRegister_v2", current, true, (*call).memHostRegister},
		{"cuMemHostUnregister", current, true, (*call).memHostUnregister},

		{"cuStreamCreateWithPriority", current, true, (*call).streamCreateWithPriority},
		{"cuStreamDestroy_v2", current, true, (*call).streamDestroy},
		{"cuStreamSynchronize", current, true, (*call).streamSynchronize},
		{"cuStreamWaitEvent", current, false, (*call).streamWaitEvent},
		{"cuStreamGetCtx", current, false, (*call).streamGetCtx},
		{"cuStreamGetPriority", current, false, (*call).streamGetPriority},
		{"cuStreamIsCapturing", current, false, (*call).streamIsCapturing},
		{"cuStreamGetCaptureInfo_v2", current, false, (*call).streamGetCaptureInfo},
		{"cuStreamGetCaptureInfo_v3", current, false, (*call).streamGetCaptureInfo3},
		{"cuStreamBeginCapture_v2", current, false, (*call).streamBeginCapture},
		{"cuStreamEndCapture", current, false, (*call).streamEndCapture},

		{"cuEventCreate", current, true, (*call).eventCreate},
		{"cuEventRecord", current, false, (*call).eventRecord},
		{"cuEventQuery", initialised, false, (*call).eventQuery},
		{"cuEventSynchronize", current, false, (*call).eventSynchronize},
		{"cuEventDestroy_v2", current, true, (*call).eventDestroy},
		{"cuEventElapsedTime", current, true, (*call).eventElapsedTime},
		{"cuEventElapsedTime_v2", current, true, (*call).eventElapsedTime},

		{"cuMemcpyHtoDAsync_v2", current, false, (*call).memcpyHtoDAsync},
		{"cuMemcpyDtoHAsync_v2", current, false, (*call).memcpyDtoHAsync},
		{"cuMemcpyDtoDAsync_v2", current, false, (*call).memcpyDtoDAsync},
		{"cuMemcpyPeerAsync", current, false, (*call).memcpyPeerAsync},
		{"cuMemcpyDtoH_v2", current, true, (*call).memcpyDtoH},
		{"cuMemsetD8Async", current, false, (*call).memsetD8Async},

		{"cuGraphInstantiateWithFlags", initialised, true, (*call).graphInstantiate},
		{"cuGraphLaunch", current, false, (*call).graphLaunch},
		{"cuGraphGetNodes", initialised, false, (*call).graphGetNodes},
		{"cuGraphDestroy", initialised, true, (*call).graphDestroy},
		{"cuGraphExecDestroy", initialised, true, (*call).graphExecDestroy},

		{"cuModuleLoadDataEx", current, true, (*call).moduleLoadDataEx},
		{"cuModuleUnload", current, true, (*call).moduleUnload},
		{"cuModuleGetFunction", current, true, (*call).moduleGetFunction},
		{"cuFuncGetAttribute", current, true, (*call).funcGetAttribute},
		{"cuFuncSetAttribute", current, true, (*call).funcSetAttribute},
		{"cuFuncGetParamInfo", current, false, (*call).funcGetParamInfo},
		{"cuFuncGetParamCount", current, false, (*call).funcGetParamCount},
		{"cuLaunchKernel", current, false, (*call).launchKernel},

		{"cuIpcGetMemHandle", current, true, (*call).ipcGetMemHandle},
		{"cuIpcOpenMemHandle_v2", current, true, (*call).ipcOpenByValue},
		{"cuIpcCloseMemHandle", current, true, (*call).ipcCloseMemHandle},
		{"cuIpcGetEventHandle", current, true, (*call).ipcGetEventHandle},
		{"cuIpcOpenEventHandle", current, true, (*call).ipcOpenEventByValue},
	}
}

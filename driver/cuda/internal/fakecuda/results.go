//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

// A Result is a CUresult.
type Result uint32

// The results that a Machine returns, or that tests make it return.
const (
	Success                  Result = 0
	InvalidValue             Result = 1
	OutOfMemory              Result = 2
	NotInitialized           Result = 3
	Deinitialized            Result = 4
	NoDevice                 Result = 100
	InvalidDevice            Result = 101
	InvalidContext           Result = 201
	MapFailed                Result = 205
	NoBinaryForGPU           Result = 209
	PeerAccessUnsupported    Result = 217
	InvalidPTX               Result = 218
	InvalidHandle            Result = 400
	IllegalState             Result = 401
	NotFound                 Result = 500
	NotReady                 Result = 600
	IllegalAddress           Result = 700
	LaunchOutOfResources     Result = 701
	PeerAccessAlreadyEnabled Result = 704
	PeerAccessNotEnabled     Result = 705
	ContextIsDestroyed       Result = 709
	HostAlreadyRegistered    Result = 712
	HostNotRegistered        Result = 713
	LaunchFailed             Result = 719
	NotPermitted             Result = 800
	NotSupported             Result = 801
	SystemNotReady           Result = 802
	SystemDriverMismatch     Result = 803
	CaptureUnsupported       Result = 900
	CaptureInvalidated       Result = 901
	CaptureMerge             Result = 902
	CaptureUnmatched         Result = 903
	CaptureUnjoined          Result = 904
	CaptureIsolation         Result = 905
	CaptureImplicit          Result = 906
	CapturedEvent            Result = 907
	CaptureWrongThread       Result = 908
	Unknown                  Result = 999
)

// The results of cuGetErrorName and cuGetErrorString.
var resultTexts = map[Result][2]string{
	Success:        {"CUDA_SUCCESS", "no error"},
	InvalidValue:   {"CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	OutOfMemory:    {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	NotInitialized: {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	Deinitialized:  {"CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
	NoDevice:       {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	InvalidDevice:  {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	InvalidContext: {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	MapFailed:      {"CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
	NoBinaryForGPU: {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on " +
		"the device"},
	PeerAccessUnsupported: {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two " +
		"devices"},
	InvalidPTX:               {"CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
	InvalidHandle:            {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	IllegalState:             {"CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
	NotFound:                 {"CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	NotReady:                 {"CUDA_ERROR_NOT_READY", "device not ready"},
	IllegalAddress:           {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	LaunchOutOfResources:     {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
	PeerAccessAlreadyEnabled: {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
	PeerAccessNotEnabled:     {"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
	ContextIsDestroyed:       {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
	HostAlreadyRegistered: {
		"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped",
	},
	HostNotRegistered: {
		"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region",
	},
	LaunchFailed:   {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	NotPermitted:   {"CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
	NotSupported:   {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	SystemNotReady: {"CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
	SystemDriverMismatch: {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver " +
		"combination"},
	CaptureUnsupported: {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
	CaptureInvalidated: {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during " +
		"capture"},
	CaptureMerge: {"CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture " +
		"sequences"},
	CaptureUnmatched: {
		"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
		"capture was not ended in the same stream as it began",
	},
	CaptureUnjoined: {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
	CaptureIsolation: {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in " +
		"another stream"},
	CaptureImplicit: {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a " +
		"capturing blocking stream"},
	CapturedEvent: {"CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a " +
		"capturing stream"},
	CaptureWrongThread: {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture " +
		"sequence from another thread"},
	Unknown: {"CUDA_ERROR_UNKNOWN", "unknown error"},
}

// The texts as C strings, which callers may keep.
var cTexts = func() map[Result][2][]byte {
	c := map[Result][2][]byte{}
	for r, t := range resultTexts {
		c[r] = [2][]byte{append([]byte(t[0]), 0), append([]byte(t[1]), 0)}
	}
	return c
}()

func (c *call) getErrorName(r Result, text **byte) Result   { return errorText(r, 0, text) }
func (c *call) getErrorString(r Result, text **byte) Result { return errorText(r, 1, text) }

func errorText(r Result, which int, text **byte) Result {
	t, ok := cTexts[r]
	if !ok {
		*text = nil
		return InvalidValue
	}
	*text = &t[which][0]
	return Success
}

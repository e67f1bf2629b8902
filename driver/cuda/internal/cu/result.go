//go:build linux && (amd64 || arm64) && !nocuda

package cu

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
)

// A Result is the result of a function of libcuda. Negative results are defined by this package: the symbol is missing.
type Result int32

// The results that callers distinguish. The others only have names.
const (
	Success               Result = 0
	InvalidValue          Result = 1
	OutOfMemory           Result = 2
	NotInitialized        Result = 3
	Deinitialized         Result = 4
	StubLibrary           Result = 34
	DeviceUnavailable     Result = 46
	NoDevice              Result = 100
	InvalidDevice         Result = 101
	InvalidImage          Result = 200
	InvalidContext        Result = 201
	NoBinaryForGPU        Result = 209
	ECCUncorrectable      Result = 214
	PeerAccessUnsupported Result = 217
	InvalidPTX            Result = 218
	UnsupportedPTXVersion Result = 222
	OperatingSystem       Result = 304
	InvalidHandle         Result = 400
	IllegalState          Result = 401
	NotFound              Result = 500
	NotReady              Result = 600
	IllegalAddress        Result = 700
	LaunchOutOfResources  Result = 701
	PeerAlreadyEnabled    Result = 704
	PeerNotEnabled        Result = 705
	ContextIsDestroyed    Result = 709
	HostAlreadyRegistered Result = 712
	HostNotRegistered     Result = 713
	LaunchFailed          Result = 719
	NotPermitted          Result = 800
	NotSupported          Result = 801
	SystemNotReady        Result = 802
	SystemDriverMismatch  Result = 803
	CompatNotSupported    Result = 804
	CaptureUnsupported    Result = 900
	CaptureInvalidated    Result = 901
	CapturedEvent         Result = 907
	Unknown               Result = 999
)

// Missing returns the symbol whose absence r reports, or "".
func (r Result) Missing() string {
	if r < 0 {
		return symbolOf(r)
	}
	return ""
}

// Sticky reports whether the context is permanently lost: every later call in it fails with the same result, and only a
// new process can use the device again. (CUDA driver API, enum CUresult: "leaves the process in an inconsistent
// state".)
func (r Result) Sticky() bool {
	switch r {
	case 214, 220, 226, // uncorrectable ECC, uncorrectable NVLink, contained memory error
		700, 702, 703, 709, 710, // illegal address, launch timeout, incompatible texturing, context destroyed, assert
		// hardware stack, instruction, alignment, address space, pc, launch, tensor memory
		714, 715, 716, 717, 718, 719, 721,
		806, 810, // the MPS server is gone, or ended this client
		911: // an external device failed
		return true
	}
	return false
}

// Code returns the error of package driver for r, or nil for Success. A result without a corresponding error is
// driver.ErrInvalid if libcuda blames the caller, and otherwise a ResultError.
func (r Result) Code() error {
	switch {
	case r == Success:
		return nil
	case r < 0:
		return driver.ErrUnsupported
	case r.Sticky():
		return driver.ErrLost
	}
	switch r {
	case OutOfMemory:
		return driver.ErrNoMemory
	case NotInitialized, Deinitialized:
		return driver.ErrClosed
	case StubLibrary, DeviceUnavailable, NoDevice, InvalidDevice, 102, SystemNotReady, SystemDriverMismatch,
		805, 807, 808, 809:
		return driver.ErrAbsent
	case InvalidValue, InvalidImage, InvalidContext, 202, 208, 211, InvalidPTX, 300, 301, InvalidHandle, IllegalState,
		NotFound, LaunchOutOfResources, PeerAlreadyEnabled, PeerNotEnabled, 708, HostAlreadyRegistered,
		HostNotRegistered,
		720, 912, 914, 915:
		return driver.ErrInvalid
	case NotReady:
		return driver.ErrNotReady
	case NoBinaryForGPU, 215, PeerAccessUnsupported, 221, UnsupportedPTXVersion, 223, 224, 225, 711, NotPermitted,
		NotSupported, CompatNotSupported, 811, 812:
		return driver.ErrUnsupported
	}
	if r >= 900 && r <= 908 {
		return driver.ErrCapturing
	}
	return ResultError(r)
}

// A ResultError is a Result without a corresponding error of package driver.
type ResultError Result

func (e ResultError) Error() string { return (*Lib)(nil).Describe(Result(e)) }

// Describe returns r's name, number and meaning, in libcuda's words if it has them, and otherwise in this package's. It
// may be called on nil.
func (l *Lib) Describe(r Result) string {
	if r < 0 {
		return "the NVIDIA driver on this machine has no function " + symbolOf(r)
	}
	name, meaning := "", ""
	if l != nil {
		name, meaning = l.errorText(symGetErrorName, r), l.errorText(symGetErrorString, r)
	}
	if name == "" {
		known := results[r]
		name, meaning = known[0], known[1]
	}
	switch {
	case name == "":
		return fmt.Sprintf("CUDA error %d", int32(r))
	case meaning == "":
		return fmt.Sprintf("%s (%d)", name, int32(r))
	}
	return fmt.Sprintf("%s (%d): %s", name, int32(r), meaning)
}

func (l *Lib) errorText(s symbol, r Result) string {
	f := frames.Get().(*frame)
	f.cells[0] = 0
	f.args[0], f.args[1] = uintptr(r), f.cell(0)
	failed := l.invoke(s, f, 2)
	address := uintptr(f.cells[0])
	frames.Put(f)
	if failed != Success {
		return ""
	}
	return text(address)
}

// results are the names and meanings of common results, for libraries that cannot report them.
var results = map[Result][2]string{
	Success:           {"CUDA_SUCCESS", "no error"},
	InvalidValue:      {"CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	OutOfMemory:       {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	NotInitialized:    {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	Deinitialized:     {"CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
	StubLibrary:       {"CUDA_ERROR_STUB_LIBRARY", "the library is a stub for linking, not the driver"},
	DeviceUnavailable: {"CUDA_ERROR_DEVICE_UNAVAILABLE", "busy, or in a mode that prohibits contexts"},
	NoDevice:          {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	InvalidDevice:     {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	InvalidImage:      {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
	InvalidContext:    {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	NoBinaryForGPU:    {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
	ECCUncorrectable:  {"CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
	PeerAccessUnsupported: {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two " +
		"devices"},
	InvalidPTX: {"CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
	UnsupportedPTXVersion: {
		"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
		"the PTX is of a newer version than the driver supports",
	},
	OperatingSystem:       {"CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
	InvalidHandle:         {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	IllegalState:          {"CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
	NotFound:              {"CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	NotReady:              {"CUDA_ERROR_NOT_READY", "device not ready"},
	IllegalAddress:        {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	LaunchOutOfResources:  {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
	PeerAlreadyEnabled:    {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
	PeerNotEnabled:        {"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
	ContextIsDestroyed:    {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
	HostAlreadyRegistered: {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the memory is already mapped"},
	HostNotRegistered: {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the pointer does not correspond to a " +
		"registered region"},
	LaunchFailed:   {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	NotPermitted:   {"CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
	NotSupported:   {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	SystemNotReady: {"CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
	SystemDriverMismatch: {
		"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
		"the kernel's driver and the library differ in version",
	},
	CompatNotSupported: {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility was attempted on " +
		"hardware that has none"},
	CaptureUnsupported: {
		"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
		"operation not permitted when stream is capturing",
	},
	CaptureInvalidated: {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error " +
		"during capture"},
	CapturedEvent: {"CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a " +
		"capturing stream"},
	Unknown: {"CUDA_ERROR_UNKNOWN", "unknown error"},
}

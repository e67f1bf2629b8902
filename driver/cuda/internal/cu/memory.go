//go:build linux && (amd64 || arm64) && !nocuda

package cu

import "unsafe"

// Flags of MemHostAlloc and MemHostRegister (cuda.h: CU_MEMHOSTALLOC_*, CU_MEMHOSTREGISTER_*).
const (
	HostPortable  uint32 = 1 // page-locked for every context, not only the current one
	HostDeviceMap uint32 = 2
)

// A PointerAttribute is a property of an address (cuda.h: CUpointer_attribute).
type PointerAttribute int32

// The attributes that Ashlar asks for, with what they are.
const (
	PointerContext       PointerAttribute = 1  // Context
	PointerMemoryType    PointerAttribute = 2  // 1: host, 2: device
	PointerDeviceOrdinal PointerAttribute = 9  // int
	PointerIPCCapable    PointerAttribute = 10 // bool: cuIpcGetMemHandle takes it
	PointerRangeStart    PointerAttribute = 11 // address
	PointerRangeSize     PointerAttribute = 12 // bytes
	PointerMapped        PointerAttribute = 13 // bool
)

// Values of PointerMemoryType.
const (
	MemoryTypeHost   = 1
	MemoryTypeDevice = 2
)

// MemPoolReleaseThreshold is the attribute of a MemPool that says how many bytes it keeps.
const MemPoolReleaseThreshold int32 = 4

// MemAlloc allocates device memory. It may wait for the device.
func (l *Lib) MemAlloc(size int64) (uint64, Result) { return l.get(symMemAlloc, uintptr(size)) }

// MemFree frees it, after waiting for the device.
func (l *Lib) MemFree(p uint64) Result { return l.call(symMemFree, uintptr(p)) }

// MemGetInfo returns the bytes of the current context's device that are free, and all.
func (l *Lib) MemGetInfo() (free, total int64, r Result) {
	a, b, r := l.get2(symMemGetInfo)
	return int64(a), int64(b), r
}

// MemGetAddressRange returns the allocation that p is in.
func (l *Lib) MemGetAddressRange(p uint64) (base uint64, size int64, r Result) {
	base, b, r := l.get2(symMemGetAddressRange, uintptr(p))
	return base, int64(b), r
}

// MemAllocAsync allocates memory for work queued on s from now on.
func (l *Lib) MemAllocAsync(size int64, s Stream) (uint64, Result) {
	return l.get(symMemAllocAsync, uintptr(size), uintptr(s))
}

// MemFreeAsync frees it for work queued on s from now on.
func (l *Lib) MemFreeAsync(p uint64, s Stream) Result {
	return l.call(symMemFreeAsync, uintptr(p), uintptr(s))
}

// MemPoolSetAttribute sets an attribute that is an unsigned 64-bit number.
func (l *Lib) MemPoolSetAttribute(p MemPool, attribute int32, value uint64) Result {
	v := value
	return l.callWith(symMemPoolSetAttribute, uintptr(p), uintptr(attribute), uintptr(unsafe.Pointer(&v)))
}

// PointerGetAttribute returns an attribute of at most 8 bytes.
func (l *Lib) PointerGetAttribute(a PointerAttribute, p uint64) (uint64, Result) {
	return l.get(symPointerGetAttribute, uintptr(a), uintptr(p))
}

// PointerGetAttributes returns attributes of at most 8 bytes each. What libcuda knows nothing of has attributes 0: this
// one does not fail for an address that is none.
func (l *Lib) PointerGetAttributes(p uint64, attributes ...PointerAttribute) ([]uint64, Result) {
	values := make([]uint64, len(attributes))
	places := make([]unsafe.Pointer, len(attributes))
	for i := range places {
		places[i] = unsafe.Pointer(&values[i])
	}
	r := l.callWith(symPointerGetAttributes, uintptr(len(attributes)), uintptr(unsafe.Pointer(&attributes[0])),
		uintptr(unsafe.Pointer(&places[0])), uintptr(p))
	return values, r
}

// MemHostAlloc returns the address of size bytes of page-locked memory, outside Go's heap.
func (l *Lib) MemHostAlloc(size int64, flags uint32) (uintptr, Result) {
	p, r := l.get(symMemHostAlloc, uintptr(size), uintptr(flags))
	return uintptr(p), r
}

// MemFreeHost frees what MemHostAlloc returned.
func (l *Lib) MemFreeHost(p uintptr) Result { return l.call(symMemFreeHost, p) }

// MemHostRegister page-locks memory that must lie outside Go's heap.
func (l *Lib) MemHostRegister(p uintptr, size int64, flags uint32) Result {
	return l.call(symMemHostRegister, p, uintptr(size), uintptr(flags))
}

// MemHostUnregister ends MemHostRegister.
func (l *Lib) MemHostUnregister(p uintptr) Result { return l.call(symMemHostUnregister, p) }

// MemHostGetFlags returns the flags with which memory was page-locked; InvalidValue if it was not.
func (l *Lib) MemHostGetFlags(p uintptr) (uint32, Result) {
	f, r := l.get(symMemHostGetFlags, p)
	return uint32(f), r
}

// An IPCHandle names an allocation or an event to other processes (cuda.h: CUipcMemHandle, CUipcEventHandle).
type IPCHandle [8]uint64

// IPCGetMemHandle returns the name of the allocation that starts at p.
func (l *Lib) IPCGetMemHandle(p uint64) (IPCHandle, Result) {
	h := new(IPCHandle)
	r := l.callWith(symIpcGetMemHandle, uintptr(unsafe.Pointer(h)), uintptr(p))
	return *h, r
}

// ipcLazyPeerAccess is the one flag of cuIpcOpenMemHandle (cuda.h: CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS).
const ipcLazyPeerAccess = 1

// IPCCloseMemHandle unmaps what IPCOpenMemHandle returned.
func (l *Lib) IPCCloseMemHandle(p uint64) Result { return l.call(symIpcCloseMemHandle, uintptr(p)) }

// IPCGetEventHandle returns the name of an event made with EventInterprocess.
func (l *Lib) IPCGetEventHandle(e Event) (IPCHandle, Result) {
	h := new(IPCHandle)
	r := l.callWith(symIpcGetEventHandle, uintptr(unsafe.Pointer(h)), uintptr(e))
	return *h, r
}

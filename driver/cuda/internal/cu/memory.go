//go:build linux && (amd64 || arm64) && !nocuda

package cu

import "unsafe"

// Flags of MemHostAlloc and MemHostRegister (cuda.h: CU_MEMHOSTALLOC_*, CU_MEMHOSTREGISTER_*).
const (
	HostPortable uint32 = 1 // page-locked for every context, not only the current one
)

// A PointerAttribute is a property of an address (cuda.h: CUpointer_attribute).
type PointerAttribute int32

// The attributes that Ashlar queries, with their types.
const (
	PointerRangeStart PointerAttribute = 11 // address
	PointerRangeSize  PointerAttribute = 12 // bytes
)

// MemAlloc allocates device memory. It may wait for the device.
func (l *Lib) MemAlloc(size int64) (uint64, Result) { return l.get(symMemAlloc, uintptr(size)) }

// MemFree frees it, after waiting for the device.
func (l *Lib) MemFree(p uint64) Result { return l.call(symMemFree, uintptr(p)) }

// MemGetInfo returns the free and the total bytes of the current context's device.
func (l *Lib) MemGetInfo() (free, total int64, r Result) {
	a, b, r := l.get2(symMemGetInfo)
	return int64(a), int64(b), r
}

// PointerGetAttribute returns an attribute of at most 8 bytes.
func (l *Lib) PointerGetAttribute(a PointerAttribute, p uint64) (uint64, Result) {
	return l.get(symPointerGetAttribute, uintptr(a), uintptr(p))
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

// An IPCHandle names an allocation or an event to other processes (cuda.h: CUipcMemHandle, CUipcEventHandle).
type IPCHandle [8]uint64

// IPCGetMemHandle returns the handle of the allocation that starts at p.
func (l *Lib) IPCGetMemHandle(p uint64) (IPCHandle, Result) {
	h := new(IPCHandle)
	r := l.callWith(symIpcGetMemHandle, uintptr(unsafe.Pointer(h)), uintptr(p))
	return *h, r
}

// ipcLazyPeerAccess is the one flag of cuIpcOpenMemHandle (cuda.h: CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS).
const ipcLazyPeerAccess = 1

// IPCCloseMemHandle unmaps memory of IPCOpenMemHandle.
func (l *Lib) IPCCloseMemHandle(p uint64) Result { return l.call(symIpcCloseMemHandle, uintptr(p)) }

// IPCGetEventHandle returns the handle of an event made with EventInterprocess.
func (l *Lib) IPCGetEventHandle(e Event) (IPCHandle, Result) {
	h := new(IPCHandle)
	r := l.callWith(symIpcGetEventHandle, uintptr(unsafe.Pointer(h)), uintptr(e))
	return *h, r
}

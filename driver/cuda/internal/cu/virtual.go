//go:build linux && (amd64 || arm64) && !nocuda

package cu

import "unsafe"

// A MemProp describes the memory that MemCreate makes (cuda.h: CUmemAllocationProp, 32 bytes).
type MemProp struct {
	Type         int32 // 1: pinned, the only one
	HandleTypes  int32 // 0: none; 1: a file descriptor
	LocationType int32 // 1: device
	LocationID   int32 // its ordinal
	_            uint64
	Compression  uint8
	RDMA         uint8 // 1: network cards can access it (GPUDirect RDMA)
	Usage        uint16
	_            [4]uint8
}

// HandleFD is a handle type: an open file.
const HandleFD = 1

// DeviceMemory is memory of a device, shareable through the handle types, or none.
func DeviceMemory(d Device, handleTypes int32) MemProp {
	return MemProp{Type: 1, HandleTypes: handleTypes, LocationType: 1, LocationID: int32(d)}
}

// A MemAccess lets a device use mapped memory (cuda.h: CUmemAccessDesc, 12 bytes).
type MemAccess struct {
	LocationType int32 // 1: device
	LocationID   int32 // its ordinal
	Flags        int32 // 3: read and write
}

// ReadWrite lets d read and write.
func ReadWrite(d Device) MemAccess { return MemAccess{1, int32(d), 3} }

// MemGranularity returns the minimum granularity of sizes and addresses of such memory.
func (l *Lib) MemGranularity(prop MemProp) (int64, Result) {
	var g uint64
	r := l.callWith(symMemGetAllocationGranularity, uintptr(unsafe.Pointer(&g)), uintptr(unsafe.Pointer(&prop)), 0)
	return int64(g), r
}

// MemAddressReserve reserves addresses, aligned to align (0: the driver chooses).
func (l *Lib) MemAddressReserve(size, align int64) (uint64, Result) {
	return l.get(symMemAddressReserve, uintptr(size), uintptr(align), 0, 0)
}

// MemAddressFree frees the addresses of MemAddressReserve, where no memory is mapped.
func (l *Lib) MemAddressFree(p uint64, size int64) Result {
	return l.call(symMemAddressFree, uintptr(p), uintptr(size))
}

// MemCreate makes physical memory.
func (l *Lib) MemCreate(size int64, prop MemProp) (MemHandle, Result) {
	var h MemHandle
	r := l.callWith(symMemCreate, uintptr(unsafe.Pointer(&h)), uintptr(size), uintptr(unsafe.Pointer(&prop)), 0)
	return h, r
}

// MemRelease releases one reference. The memory is freed when it is no longer mapped.
func (l *Lib) MemRelease(h MemHandle) Result { return l.call(symMemRelease, uintptr(h)) }

// MemMap maps the whole of h, size bytes, at p. It must not be accessed before MemSetAccess.
func (l *Lib) MemMap(p uint64, size int64, h MemHandle) Result {
	return l.call(symMemMap, uintptr(p), uintptr(size), 0, uintptr(h), 0)
}

// MemUnmap unmaps one or several adjacent mappings as a whole. It does not wait.
func (l *Lib) MemUnmap(p uint64, size int64) Result {
	return l.call(symMemUnmap, uintptr(p), uintptr(size))
}

// MemSetAccess sets the access of devices to the mapped memory at [p, p+size). It does not change the access of other
// devices.
func (l *Lib) MemSetAccess(p uint64, size int64, access ...MemAccess) Result {
	return l.callWith(symMemSetAccess, uintptr(p), uintptr(size), uintptr(unsafe.Pointer(&access[0])),
		uintptr(len(access)))
}

// MemExportFD returns a file descriptor of memory that was created with HandleFD.
func (l *Lib) MemExportFD(h MemHandle) (int, Result) {
	fd, r := l.get(symMemExportToShareableHandle, uintptr(h), HandleFD, 0)
	return int(int32(fd)), r
}

// MemImportFD makes a handle of a file descriptor, which the caller still owns.
func (l *Lib) MemImportFD(fd int) (MemHandle, Result) {
	h, r := l.get(symMemImportFromShareableHandle, uintptr(fd), HandleFD)
	return MemHandle(h), r
}

//go:build linux && (amd64 || arm64) && !nocuda

package cu

import "unsafe"

// A MemProp says what memory MemCreate makes (cuda.h: CUmemAllocationProp, 32 bytes).
type MemProp struct {
	Type         int32 // 1: pinned, the only one
	HandleTypes  int32 // 0: none; 1: a file descriptor
	LocationType int32 // 1: device
	LocationID   int32 // its ordinal
	_            uint64
	Compression  uint8
	RDMA         uint8 // 1: network cards can reach it, if they are told (GPUDirect RDMA)
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

// MemGranularity returns what sizes and addresses of such memory must be multiples of: the least there is.
func (l *Lib) MemGranularity(prop MemProp) (int64, Result) {
	var g uint64
	r := l.callWith(symMemGetAllocationGranularity, uintptr(unsafe.Pointer(&g)), uintptr(unsafe.Pointer(&prop)), 0)
	return int64(g), r
}

// MemAddressReserve reserves addresses, aligned by align (0: as the driver likes).
func (l *Lib) MemAddressReserve(size, align int64) (uint64, Result) {
	return l.get(symMemAddressReserve, uintptr(size), uintptr(align), 0, 0)
}

// MemAddressFree gives back what MemAddressReserve returned, with nothing mapped there.
func (l *Lib) MemAddressFree(p uint64, size int64) Result {
	return l.call(symMemAddressFree, uintptr(p), uintptr(size))
}

// MemCreate makes physical memory.
func (l *Lib) MemCreate(size int64, prop MemProp) (MemHandle, Result) {
	var h MemHandle
	r := l.callWith(symMemCreate, uintptr(unsafe.Pointer(&h)), uintptr(size), uintptr(unsafe.Pointer(&prop)), 0)
	return h, r
}

// MemRelease gives one hold up. The memory stays until it is mapped nowhere.
func (l *Lib) MemRelease(h MemHandle) Result { return l.call(symMemRelease, uintptr(h)) }

// MemMap puts the whole of h, size bytes, at p. It must not be accessed before MemSetAccess.
func (l *Lib) MemMap(p uint64, size int64, h MemHandle) Result {
	return l.call(symMemMap, uintptr(p), uintptr(size), 0, uintptr(h), 0)
}

// MemUnmap unmaps whole mappings: one or several, side by side. It waits for nothing.
func (l *Lib) MemUnmap(p uint64, size int64) Result {
	return l.call(symMemUnmap, uintptr(p), uintptr(size))
}

// MemSetAccess says who may use the mapped memory at [p, p+size). It replaces what was said of those devices before,
// and of no others.
func (l *Lib) MemSetAccess(p uint64, size int64, access ...MemAccess) Result {
	return l.callWith(symMemSetAccess, uintptr(p), uintptr(size), uintptr(unsafe.Pointer(&access[0])),
		uintptr(len(access)))
}

// MemExportFD returns a file descriptor of memory that was created with HandleFD.
func (l *Lib) MemExportFD(h MemHandle) (int, Result) {
	fd, r := l.get(symMemExportToShareableHandle, uintptr(h), HandleFD, 0)
	return int(int32(fd)), r
}

// MemImportFD makes a handle of a file descriptor, which stays the caller's.
func (l *Lib) MemImportFD(fd int) (MemHandle, Result) {
	h, r := l.get(symMemImportFromShareableHandle, uintptr(fd), HandleFD)
	return MemHandle(h), r
}

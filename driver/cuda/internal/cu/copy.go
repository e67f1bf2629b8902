//go:build linux && (amd64 || arm64) && !nocuda

package cu

import "unsafe"

// MemcpyHtoD copies src to the device and returns when src may be used again. It is ordered with the legacy default
// stream only. src is ordinary Go memory: the call keeps it, and Go's collector does not move it.
func (l *Lib) MemcpyHtoD(dst uint64, src []byte) Result {
	return l.callWith(symMemcpyHtoD, uintptr(dst), uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)))
}

// MemcpyDtoH copies from the device and returns when dst has the bytes. It is ordered with the legacy default stream only.
func (l *Lib) MemcpyDtoH(dst []byte, src uint64) Result {
	return l.callWith(symMemcpyDtoH, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src), uintptr(len(dst)))
}

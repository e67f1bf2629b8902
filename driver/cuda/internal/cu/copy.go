//go:build linux && (amd64 || arm64) && !nocuda

package cu

import "unsafe"

// MemcpyDtoH copies from the device and returns when dst has the bytes. It is ordered with the legacy default stream
// only.
func (l *Lib) MemcpyDtoH(dst []byte, src uint64) Result {
	return l.callWith(symMemcpyDtoH, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src), uintptr(len(dst)))
}

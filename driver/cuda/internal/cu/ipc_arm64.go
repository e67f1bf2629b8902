//go:build linux && arm64 && !nocuda

package cu

import "unsafe"

// IPCOpenMemHandle maps an allocation of another process and returns where.
//
// cuIpcOpenMemHandle(CUdeviceptr *p, CUipcMemHandle h, unsigned flags) takes h, 64 bytes, by value. The AArch64 ABI
// passes a structure of more than 16 bytes as the address of a copy.
func (l *Lib) IPCOpenMemHandle(h IPCHandle) (uint64, Result) {
	var p uint64
	r := l.callWith(symIpcOpenMemHandle, uintptr(unsafe.Pointer(&p)), uintptr(unsafe.Pointer(&h)), ipcLazyPeerAccess)
	return p, r
}

// IPCOpenEventHandle opens an event of another process.
//
// cuIpcOpenEventHandle(CUevent *e, CUipcEventHandle h) takes h by value too.
func (l *Lib) IPCOpenEventHandle(h IPCHandle) (Event, Result) {
	var e Event
	r := l.callWith(symIpcOpenEventHandle, uintptr(unsafe.Pointer(&e)), uintptr(unsafe.Pointer(&h)))
	return e, r
}

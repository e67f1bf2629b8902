//go:build linux && amd64 && !nocuda

package cu

import "unsafe"

// IPCOpenMemHandle maps an allocation of another process and returns where.
//
// cuIpcOpenMemHandle(CUdeviceptr *p, CUipcMemHandle h, unsigned flags) takes h, 64 bytes, by value. The x86-64 ABI
// passes a structure of more than 16 bytes as a copy among the arguments on the stack, and takes no register for it. So
// p and flags are the first two of the six arguments in registers, four of no meaning fill the others, and what follows
// is on the stack: h.
func (l *Lib) IPCOpenMemHandle(h IPCHandle) (uint64, Result) {
	var p uint64
	r := l.callWith(symIpcOpenMemHandle, uintptr(unsafe.Pointer(&p)), ipcLazyPeerAccess, 0, 0, 0, 0,
		uintptr(h[0]), uintptr(h[1]), uintptr(h[2]), uintptr(h[3]),
		uintptr(h[4]), uintptr(h[5]), uintptr(h[6]), uintptr(h[7]))
	return p, r
}

// IPCOpenEventHandle opens an event of another process.
//
// cuIpcOpenEventHandle(CUevent *e, CUipcEventHandle h) takes h by value too: behind e and five arguments of no meaning.
func (l *Lib) IPCOpenEventHandle(h IPCHandle) (Event, Result) {
	var e Event
	r := l.callWith(symIpcOpenEventHandle, uintptr(unsafe.Pointer(&e)), 0, 0, 0, 0, 0,
		uintptr(h[0]), uintptr(h[1]), uintptr(h[2]), uintptr(h[3]),
		uintptr(h[4]), uintptr(h[5]), uintptr(h[6]), uintptr(h[7]))
	return e, r
}

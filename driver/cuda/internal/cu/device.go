//go:build linux && (amd64 || arm64) && !nocuda

package cu

import "unsafe"

// An Attribute is a property of a device (cuda.h: CUdevice_attribute).
type Attribute int32

// The attributes that Ashlar queries.
const (
	MultiprocessorCount     Attribute = 16
	L2CacheSize             Attribute = 38
	UnifiedAddressing       Attribute = 41
	ComputeCapabilityMajor  Attribute = 75
	ComputeCapabilityMinor  Attribute = 76
	MaxSharedPerBlockOptin  Attribute = 97
	VirtualMemoryManagement Attribute = 102
	VirtualMemoryRDMA       Attribute = 110
)

// Init calls cuInit. It must not be called in a process that was forked from one that called it. Go programs cannot do
// that, because they never fork without starting another program.
func (l *Lib) Init() Result { return l.call(symInit, 0) }

// DriverVersion calls cuDriverGetVersion: 12040 is CUDA 12.4. It works before Init.
func (l *Lib) DriverVersion() (int, Result) {
	v, r := l.get(symDriverGetVersion)
	return int(int32(v)), r
}

// DeviceCount returns the number of devices that this process may use.
func (l *Lib) DeviceCount() (int, Result) {
	n, r := l.get(symDeviceGetCount)
	return int(int32(n)), r
}

// DeviceGet returns the device with a number from 0.
func (l *Lib) DeviceGet(ordinal int) (Device, Result) {
	d, r := l.get(symDeviceGet, uintptr(ordinal))
	return Device(int32(d)), r
}

// DeviceName returns the product's name; of a slice, with " MIG " and the slice's kind in it.
func (l *Lib) DeviceName(d Device) (string, Result) {
	b := make([]byte, 256)
	r := l.callWith(symDeviceGetName, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(d))
	return trim(b), r
}

// DeviceUUID returns the UUID's bytes: of the slice, if the device is one (MIG), where the driver is of CUDA 11.4 or
// newer.
func (l *Lib) DeviceUUID(d Device) ([16]byte, Result) {
	id := new([16]byte)
	r := l.callWith(symDeviceGetUUID, uintptr(unsafe.Pointer(id)), uintptr(d))
	return *id, r
}

// DevicePCIBusID returns "0000:1b:00.0".
func (l *Lib) DevicePCIBusID(d Device) (string, Result) {
	b := make([]byte, 64)
	r := l.callWith(symDeviceGetPCIBusID, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(d))
	return trim(b), r
}

// DeviceAttribute returns a property of a device.
func (l *Lib) DeviceAttribute(a Attribute, d Device) (int, Result) {
	v, r := l.get(symDeviceGetAttribute, uintptr(a), uintptr(d))
	return int(int32(v)), r
}

// DeviceTotalMem returns the bytes of memory of a device.
func (l *Lib) DeviceTotalMem(d Device) (int64, Result) {
	n, r := l.get(symDeviceTotalMem, uintptr(d))
	return int64(n), r
}

// DeviceCanAccessPeer reports whether d could use the memory of peer directly.
func (l *Lib) DeviceCanAccessPeer(d, peer Device) (bool, Result) {
	can, r := l.get(symDeviceCanAccessPeer, uintptr(d), uintptr(peer))
	return int32(can) != 0, r
}

// PrimaryCtxRetain creates the device's primary context, or adds a reference to it. Creating it takes 0.1 s and more.
func (l *Lib) PrimaryCtxRetain(d Device) (Context, Result) {
	c, r := l.get(symPrimaryCtxRetain, uintptr(d))
	return Context(c), r
}

// PrimaryCtxRelease releases one reference. The last one destroys the context with all that is in it.
func (l *Lib) PrimaryCtxRelease(d Device) Result { return l.call(symPrimaryCtxRelease, uintptr(d)) }

// CtxSetCurrent makes c the context of the calling thread, so the caller must have locked its goroutine to it.
func (l *Lib) CtxSetCurrent(c Context) Result { return l.call(symCtxSetCurrent, uintptr(c)) }

// CtxGetCurrent returns the context of the calling thread.
func (l *Lib) CtxGetCurrent() (Context, Result) {
	c, r := l.get(symCtxGetCurrent)
	return Context(c), r
}

// CtxPushCurrent makes c the context of the calling thread and saves the previous one.
func (l *Lib) CtxPushCurrent(c Context) Result { return l.call(symCtxPushCurrent, uintptr(c)) }

// CtxPopCurrent restores the context before the last CtxPushCurrent and returns the one that was current.
func (l *Lib) CtxPopCurrent() (Context, Result) {
	c, r := l.get(symCtxPopCurrent)
	return Context(c), r
}

// StreamPriorityRange returns the numerically greatest priority, which runs last, and the least.
func (l *Lib) StreamPriorityRange() (last, first int, r Result) {
	a, b, r := l.get2(symCtxGetStreamPriorityRange)
	return int(int32(a)), int(int32(b)), r
}

// EnablePeerAccess lets the current context access the memory of peer.
func (l *Lib) EnablePeerAccess(peer Context) Result {
	return l.call(symCtxEnablePeerAccess, uintptr(peer), 0)
}

// DisablePeerAccess reverts EnablePeerAccess.
func (l *Lib) DisablePeerAccess(peer Context) Result {
	return l.call(symCtxDisablePeerAccess, uintptr(peer))
}

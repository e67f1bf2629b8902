package host

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"golang.org/x/sys/windows"
)

// mapMemory returns size bytes of fresh memory, which count towards the system's commit limit.
func mapMemory(size int64) (driver.Pointer, error) {
	p, err := windows.VirtualAlloc(0, uintptr(size), windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	return driver.Pointer(p), err
}

func unmapMemory(p driver.Pointer, _ int64) error {
	return windows.VirtualFree(uintptr(p), 0, windows.MEM_RELEASE)
}

// lockMemory keeps b from being swapped out, within the working set that the system grants a process.
func lockMemory(b []byte) error {
	return windows.VirtualLock(uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
}

func unlockMemory(b []byte) {
	_ = windows.VirtualUnlock(uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
}

// memoryStatus is MEMORYSTATUSEX, as sysinfoapi.h has it.
type memoryStatus struct {
	length, load                                       uint32
	totalPhys, availPhys, totalPageFile, availPageFile uint64
	totalVirtual, availVirtual, availExtendedVirtual   uint64
}

var globalMemoryStatusEx = windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")

// totalMemory returns the bytes of memory of the machine.
func totalMemory() (int64, error) {
	status := memoryStatus{length: uint32(unsafe.Sizeof(memoryStatus{}))}
	if ok, _, err := globalMemoryStatusEx.Call(uintptr(unsafe.Pointer(&status))); ok == 0 {
		return 0, err
	}
	return int64(status.totalPhys), nil
}

// openPhysical returns nil: placing memory at reserved addresses needs placeholders (VirtualAlloc2), which Windows has
// since 2018 only and golang.org/x/sys does not offer.
func openPhysical(placement) (physical, error) { return nil, nil }

package host

import (
	"sync/atomic"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
)

// This file is the only one that turns a driver.Pointer into memory, or memory into one. Why that is sound:
//
//   - A driver.Pointer of this package is the address of a mapping that the operating system gave to it. Go's heap and
//     stacks are elsewhere, so the garbage collector neither moves nor frees what is there, does not look for pointers
//     in it (the device holds bytes only), and ignores a pointer to it.
//   - The conversion is an offset from a nil pointer rather than unsafe.Pointer(uintptr(p)), whose rules speak of Go
//     memory. The checks of -race and -d=checkptr look up the result, find no Go object, and let it pass.
//   - The addresses [p, p+n) lie within one block or in mapped pages when the work is queued: the device looked. They
//     stay mapped until it is done unless the caller breaks the rule that memory of queued work stays, and then the
//     access faults, which the stream's goroutine turns into ErrFault (debug.SetPanicOnFault).
//   - The slices made here live no longer than one piece of work, but for those of Pinned.AllocHost, which are their
//     caller's until FreeHost or Close, and those of Visible.Bytes, whose caller promises not to use them once the
//     memory is freed.
//   - The counters of an event lie at the start of a mapping, so they are aligned, and stay mapped until its last use.
//     The other processes that change them do so atomically too.
//   - Memory that a caller registers or copies from asynchronously is named by its address alone. The caller promises
//     that it is outside Go's heap and stays: package driver says so, and an address that is neither AllocHost's nor
//     registered is refused.

// view returns the n bytes at p.
func view(p driver.Pointer, n int64) []byte {
	return unsafe.Slice((*byte)(address(p)), n)
}

// pointer returns the address of b.
func pointer(b []byte) driver.Pointer {
	return driver.Pointer(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// address returns p as an argument for system calls.
func address(p driver.Pointer) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(nil), uintptr(p))
}

// counters returns the n counters at p.
func counters(p driver.Pointer, n int) []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(address(p)), n)
}

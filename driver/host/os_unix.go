//go:build linux || darwin

package host

import (
	"github.com/ashlar-go/ashlar/driver"
	"golang.org/x/sys/unix"
)

// mapMemory returns size bytes of fresh memory.
func mapMemory(size int64) (driver.Pointer, error) {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	return driver.Pointer(uintptr(p)), err
}

func unmapMemory(p driver.Pointer, size int64) error {
	return unix.MunmapPtr(address(p), uintptr(size))
}

// lockMemory keeps b from being swapped out, within the limit that the system sets (RLIMIT_MEMLOCK).
func lockMemory(b []byte) error { return unix.Mlock(b) }

func unlockMemory(b []byte) { _ = unix.Munlock(b) }

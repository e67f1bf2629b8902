//go:build linux || darwin

package host

import (
	"github.com/ashlar-go/ashlar/driver"
	"golang.org/x/sys/unix"
)

// mapMemory returns size bytes of fresh memory.
func mapMemory(size int64) (driver.Pointer, error) {
	raw, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return 0, err
	}
	p := driver.Pointer(uintptr(raw))
	if size >= largePage {
		preferLargePages(p, size)
	}
	return p, nil
}

// largePage is the size of a large page on most machines. Smaller blocks do not use large pages.
const largePage = 2 << 20

func unmapMemory(p driver.Pointer, size int64) error {
	return unix.MunmapPtr(address(p), uintptr(size))
}

// lockMemory keeps b from being swapped out, within the limit that the system sets (RLIMIT_MEMLOCK).
func lockMemory(b []byte) error { return unix.Mlock(b) }

func unlockMemory(b []byte) { _ = unix.Munlock(b) }

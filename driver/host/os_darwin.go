package host

import (
	"github.com/ashlar-go/ashlar/driver"
	"golang.org/x/sys/unix"
)

// totalMemory returns the bytes of memory of the machine.
func totalMemory() (int64, error) {
	n, err := unix.SysctlUint64("hw.memsize")
	return int64(n), err
}

// openPhysical returns nil: without cgo, macOS has no memory files without a name.
func openPhysical(placement) (physical, error) { return nil, nil }

// preferLargePages does nothing: the system decides.
func preferLargePages(driver.Pointer, int64) {}

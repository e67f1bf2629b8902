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

// openPhysical returns nil: macOS has no memory file without a name that can be had without cgo.
func openPhysical(placement) (physical, error) { return nil, nil }

// preferLargePages does nothing: the system decides.
func preferLargePages(driver.Pointer, int64) {}

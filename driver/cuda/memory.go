//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// Available returns the result of cuMemGetInfo for the whole device, reduced to the budget. Memory of other processes
// does not count as free.
func (d *device) Available() (free, total int64, err error) {
	const call = "Available"
	if err := d.enter(call); err != nil {
		return 0, 0, err
	}
	defer d.leave()
	free, total, r := d.lib.MemGetInfo()
	free, total = d.budget.limit(free, total)
	return free, total, d.fail(call, r, "")
}

// Alloc calls cuMemAlloc. With Free it takes 55 us and more for a segment (NVIDIA H200), so allocators keep segments.
func (d *device) Alloc(size int64) (driver.Pointer, error) {
	const call = "Alloc"
	if size <= 0 {
		panic(fmt.Sprintf("driver/cuda: Alloc of %d bytes: want a positive size", size))
	}
	if err := d.enter(call); err != nil {
		return 0, err
	}
	defer d.leave()
	if size > d.info.TotalMemory || !d.budget.take(size) {
		return 0, d.full(call, size)
	}
	p, r := d.lib.MemAlloc(size)
	if r != cu.Success {
		d.budget.giveBack(size)
		if r == cu.OutOfMemory {
			return 0, d.full(call, size)
		}
		return 0, d.fail(call, r, "%s", bytesize.Format(size))
	}
	d.known.add(driver.Pointer(p), size, allocated)
	return driver.Pointer(p), nil
}

// full returns the error for a request of size bytes without room. Between enter and leave.
func (d *device) full(call string, size int64) error {
	detail := bytesize.Format(size) + " asked for"
	if free, total, r := d.lib.MemGetInfo(); r == cu.Success {
		free, total = d.budget.limit(free, total)
		detail += fmt.Sprintf(", %s of %s left on device %d", bytesize.Format(free), bytesize.Format(total),
			d.info.Ordinal)
	}
	return &driver.Error{Call: call, Code: driver.ErrNoMemory, Detail: detail}
}

// Free calls cuMemFree, which waits for the device.
func (d *device) Free(p driver.Pointer) error {
	const call = "Free"
	if err := d.enter(call); err != nil {
		return err
	}
	defer d.leave()
	size, ok := d.known.remove(p, allocated)
	if !ok {
		return invalidError(call, "%#x is not the start of a block from Alloc", p)
	}
	if r := d.lib.MemFree(uint64(p)); r != cu.Success {
		d.known.add(p, size, allocated)
		return d.fail(call, r, "%#x", p)
	}
	d.budget.giveBack(size)
	return nil
}

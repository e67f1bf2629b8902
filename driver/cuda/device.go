//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/nvml"
	"github.com/ashlar-go/ashlar/internal/dl"
)

// A device is a GPU's primary context with the resources of this program in it.
type device struct {
	lib  *cu.Lib
	nvml func() (*nvml.Lib, dl.Tries, error)
	dev  cu.Device
	ctx  cu.Context
	info driver.Info
	rdma uint8 // 1 if network cards can reach pages of virtual memory

	life   sync.RWMutex // read from enter to leave, written by Close
	closed bool
	lost   atomic.Pointer[driver.Error] // the first error that made the context unusable

	budget  budget
	known   ranges // addresses that work may access
	events  events
	virtual virtual

	zero        *stream // the default stream
	streamsMu   sync.Mutex
	streams     []*stream // by number; a closed stream stays until its number is reused
	first, last int       // priorities of the streams that run first and last

	deviceExtras
}

// open retains the primary context of a device. The first retain in the process creates it, which takes 0.1 s and more.
func (d *device) open(ordinal int) error {
	const call = "Open"
	dev, info, err := describe(d.lib, ordinal)
	if err != nil {
		return err
	}
	ctx, r := d.lib.PrimaryCtxRetain(dev)
	if r != cu.Success {
		return failure(d.lib, call, r, fmt.Sprintf("the context of device %d", ordinal))
	}
	d.dev, d.ctx, d.info = dev, ctx, info
	if v, r := d.lib.DeviceAttribute(cu.VirtualMemoryRDMA, dev); r == cu.Success && v != 0 {
		d.rdma = 1
	}
	d.zero = newStream(d, 0, 0, true, 0)
	d.streams = []*stream{d.zero}
	if err := d.ask(call); err != nil {
		_ = d.lib.PrimaryCtxRelease(dev)
		return err
	}
	return nil
}

// ask completes the device's properties with those that require a context.
func (d *device) ask(call string) error {
	if err := d.enter(call); err != nil {
		return err
	}
	defer d.leave()
	free, total, r := d.lib.MemGetInfo()
	if r != cu.Success {
		return d.fail(call, r, "memory of device %d", d.info.Ordinal)
	}
	_, d.info.TotalMemory = d.budget.limit(free, total)
	if last, first, r := d.lib.StreamPriorityRange(); r == cu.Success {
		d.last, d.first = last, first
	}
	return nil
}

func (d *device) Info() driver.Info { return d.info }

func (d *device) DefaultStream() driver.Stream { return d.zero }

// ownStream returns s as a stream of this device, and panics if it is not one.
func (d *device) ownStream(call string, s driver.Stream) *stream {
	o, ok := s.(*stream)
	if !ok || o == nil || o.d != d {
		panic("driver/cuda: " + call + ": not a stream of this device")
	}
	return o
}

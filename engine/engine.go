package engine

import (
	"fmt"
	"strings"
	"sync"

	"github.com/ashlar-go/ashlar/collective"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/timeline"
)

// An Engine holds devices, opened by Open. Safe for concurrent use. Devices are named by their numbers, from 0 in the
// order in which they were opened; a number that is none panics.
type Engine struct {
	config  Config
	devices []*device
	workers *workers
	copies  copies
	ranks   ranks
	turn    chan struct{} // holds a token while Close is under way
	found   []error       // by Close, of work that was queued; the holder of the token's

	mu       sync.Mutex
	closing  bool
	closed   bool
	sessions []*Session // that are open
	opened   int        // sessions so far
}

// A device is what the engine holds of one.
type device struct {
	index    int
	spec     string
	device   driver.Device
	inner    *tensor.Place // what compute made of it: closes the backend and the allocator
	place    *tensor.Place // on the default stream, without a scope
	lanes    *lanes
	caches   *caches
	memory   driver.Device // what allocators take memory of: the device, or that under the limit
	limit    int64         // bytes that they may take at most; 0 without a limit
	streams  *driver.StreamPool
	recorder *timeline.Recorder
	tasks    *timeline.Lane // of all tasks of EachDevice

	mu     sync.Mutex
	seated []driver.Stream // by number: streams that sessions have had, and may have left work on
}

// open fails if the engine is closed, or about to be.
func (e *Engine) open() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return ErrClosed
	}
	return nil
}

// at returns the device of a number.
func (e *Engine) at(call string, i int) *device {
	if i < 0 || i >= len(e.devices) {
		panic(fmt.Sprintf("engine: %s of device %d: the engine has %d, from 0 on", call, i, len(e.devices)))
	}
	return e.devices[i]
}

// Devices returns the number of devices.
func (e *Engine) Devices() int { return len(e.devices) }

// DeviceInfo is what a device is, and how full. Sizes are bytes.
type DeviceInfo struct {
	Index   int    // the engine's number for it
	Ordinal int    // the machine's
	Spec    string // what it was opened with
	Driver  string // "cuda", "host", "sim"
	Name    string // the product
	UUID    string // empty where devices have none
	PCI     string // where it sits; empty likewise

	Total     int64 // of the device
	Free      int64 // what the device has left, for this and all other programs
	Allocated int64 // in blocks on loan, as the allocator rounds them
	Peak      int64 // the most that Allocated has been
	Reserved  int64 // what the allocator has of the device, Allocated and what it keeps
	Limit     int64 // Reserved at most; 0 without a limit
}

// DeviceInfo describes a device as it is now. Where its allocator does not count, Allocated, Peak and Reserved are 0.
func (e *Engine) DeviceInfo(i int) (DeviceInfo, error) {
	d := e.at("DeviceInfo", i)
	if err := e.open(); err != nil {
		return DeviceInfo{}, err
	}
	var info DeviceInfo
	err := d.lanes.during(func() (err error) { info, err = d.info(); return err })
	return info, err
}

// info is DeviceInfo, of a device that stays open meanwhile.
func (d *device) info() (DeviceInfo, error) {
	free, total, err := d.device.Available()
	if err != nil {
		return DeviceInfo{}, fmt.Errorf("engine: device %d: %w", d.index, err)
	}
	about := d.device.Info()
	info := DeviceInfo{
		Index: d.index, Ordinal: about.Ordinal, Spec: d.spec, Driver: about.Driver, Name: about.Name, UUID: about.UUID,
		PCI: about.PCI, Total: total, Free: free,
	}
	if r, ok := mem.Find[mem.StatsReporter](d.lanes); ok {
		s := r.Stats()
		info.Allocated, info.Peak = s.AllocatedBytes.All.Current, s.AllocatedBytes.All.Peak
		info.Reserved = s.ReservedBytes.All.Current
	}
	info.Limit = d.limit
	return info, nil
}

// Handles are what other libraries need of a device, and what kernels are shaped by. They are the engine's: nobody
// closes them, and they are good until its Close.
type Handles struct {
	Device  driver.Device
	Stream  driver.Stream // the default stream
	Backend backend.Backend
	BLAS    string // the library that multiplies matrices, "libcublas.so.13"; empty if there is none

	// As in driver.Info; 0 where it means nothing.
	Compute         int // compute capability, ten times the major number plus the minor: 90
	Multiprocessors int
	L2              int64 // bytes of second-level cache
	SharedMemory    int64 // bytes that one block of threads may use

	engine *Engine
	index  int
}

// Communicator is Engine.Communicator of the device. Its Handle is NCCL's. Communicators are made when the first is
// asked for.
func (h Handles) Communicator() (*collective.Communicator, error) {
	return h.engine.Communicator(h.index)
}

// BLASHandle returns a cublasHandle_t on the default stream, for calls of cuBLAS beside the engine's: see BLASHandle of
// compute/cuda's Backend. The error matches driver.ErrUnsupported where the backend has no cuBLAS: what the host has
// needs no handle.
func (h Handles) BLASHandle() (uintptr, error) {
	b, ok := h.Backend.(interface{ BLASHandle() (uintptr, error) })
	if !ok {
		return 0, fmt.Errorf("engine: device %d: %w", h.index, &driver.Error{
			Call: "BLASHandle", Code: driver.ErrUnsupported, Detail: fmt.Sprintf("backend %q has no cuBLAS", h.Backend.Name()),
		})
	}
	var handle uintptr
	err := h.engine.devices[h.index].lanes.during(func() (err error) { handle, err = b.BLASHandle(); return err })
	if err != nil && err != ErrClosed {
		err = fmt.Errorf("engine: device %d: %w", h.index, err)
	}
	return handle, err
}

// Handles returns a device's.
func (e *Engine) Handles(i int) (Handles, error) {
	d := e.at("Handles", i)
	if err := e.open(); err != nil {
		return Handles{}, err
	}
	info := d.device.Info()
	h := Handles{
		Device: d.device, Stream: d.device.DefaultStream(), Backend: d.place.Backend(), Compute: info.Compute,
		Multiprocessors: info.Multiprocessors, L2: info.L2, SharedMemory: info.SharedMemory,
		engine: e, index: i,
	}
	if b, ok := h.Backend.(interface{ Library() (name, why string) }); ok {
		h.BLAS, _ = b.Library()
	}
	return h, nil
}

// Place returns the place of a device on its default stream, without a scope: what is made there is its maker's to
// release. After Close what is asked of it fails with an error that matches driver.ErrClosed.
func (e *Engine) Place(i int) *tensor.Place { return e.at("Place", i).place }

// places are those of all devices.
func (e *Engine) places() []*tensor.Place {
	all := make([]*tensor.Place, len(e.devices))
	for i, d := range e.devices {
		all[i] = d.place
	}
	return all
}

// Allocator returns the allocator of a device's memory: all its layers. After Close its requests fail with ErrClosed,
// and frees are nothing: the memory is gone with the device.
func (e *Engine) Allocator(i int) mem.Allocator { return e.at("Allocator", i).lanes }

// Freeze has a device's allocator bring together what is on loan, and never move it again: for the parameters of a
// model, once they are all there. It can be called again, for what was loaded since. Blocks in caches are not frozen.
// The error matches driver.ErrUnsupported if the allocator moves no blocks, so that there is nothing to freeze, and
// names those that do.
func (e *Engine) Freeze(i int) error {
	d := e.at("Freeze", i)
	if err := e.open(); err != nil {
		return err
	}
	a, ok := mem.Find[interface{ Freeze(driver.Stream) error }](d.lanes)
	if !ok {
		return fmt.Errorf("engine: device %d: %w", i, &driver.Error{
			Call: "Freeze", Code: driver.ErrUnsupported,
			Detail: fmt.Sprintf("its allocator, %T, moves no blocks; of DeviceConfig.Allocator's %s, %q does",
				bottom(d.lanes), strings.Join(mem.Allocators(d.kind()), ", "), "arena"),
		})
	}
	return d.lanes.during(func() error { return a.Freeze(d.place.Stream()) })
}

// bottom returns the lowest layer.
func bottom(a mem.Allocator) (last mem.Allocator) {
	for layer := range mem.Layers(a) {
		last = layer
	}
	return last
}

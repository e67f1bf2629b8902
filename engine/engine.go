package engine

import (
	"fmt"
	"strings"
	"sync"

	"github.com/ashlar-go/ashlar/collective"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/timeline"
)

// An Engine owns devices. Open makes one. It is safe for concurrent use. Devices are numbered from 0 in the order in
// which they were opened; methods panic for a number that is out of range.
type Engine struct {
	config        Config
	devices       []*device
	workers       *workers
	copies        copies
	communicators communicators
	closeToken    chan struct{} // holds a token while Close is under way
	closeErrs     []error       // of queued work, found by Close; guarded by the token

	mu       sync.Mutex
	closing  bool
	closed   bool
	sessions []*Session // that are open
	opened   int        // sessions so far
}

// A device is one device of an engine.
type device struct {
	index     int
	spec      string
	device    driver.Device
	inner     *tensor.Place // owns the backend and the allocator
	place     *tensor.Place // on the default stream, without a scope
	allocator *sessionAllocator
	caches    *caches
	memory    driver.Device       // for allocators: the device, or one that applies the limit
	limit     int64               // the maximum bytes of allocators; 0 without a limit
	users     *layer.TenantDevice // of the memory; nil without tenants
	quotas    *layer.Quotas       // nil without tenants
	streams   *driver.StreamPool
	recorder  *timeline.Recorder
	tasks     *timeline.Lane // of all tasks of EachDevice

	mu          sync.Mutex
	usedStreams []driver.Stream // by number: streams that sessions use or used, which may have queued work
}

// checkOpen returns ErrClosed once Close has begun.
func (e *Engine) checkOpen() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return ErrClosed
	}
	return nil
}

// at returns the device with a number.
func (e *Engine) at(call string, i int) *device {
	if i < 0 || i >= len(e.devices) {
		panic(fmt.Sprintf("engine: %s of device %d: the engine has %d, from 0 on", call, i, len(e.devices)))
	}
	return e.devices[i]
}

// Devices returns the number of devices.
func (e *Engine) Devices() int { return len(e.devices) }

// DeviceInfo describes a device and its memory. Sizes are bytes.
type DeviceInfo struct {
	Index   int    // the engine's number for it
	Ordinal int    // the driver's number for it
	Spec    string // it was opened with
	Driver  string // "cuda", "host", "sim"
	Name    string // the product
	UUID    string // empty if the device has none
	PCI     string // its PCI address; empty if it has none

	Total     int64 // of the device
	Free      int64 // of the device: not used by this or any other program
	Allocated int64 // in live blocks, as the allocator rounds them
	Peak      int64 // the maximum that Allocated has been
	Reserved  int64 // that the allocator has of the device: Allocated and cached memory
	Limit     int64 // the maximum of Reserved; 0 without a limit
}

// DeviceInfo describes a device as it is now. Allocated, Peak and Reserved are 0 if its allocator does not count.
func (e *Engine) DeviceInfo(i int) (DeviceInfo, error) {
	d := e.at("DeviceInfo", i)
	if err := e.checkOpen(); err != nil {
		return DeviceInfo{}, err
	}
	var info DeviceInfo
	err := d.allocator.whileOpen(func() (err error) { info, err = d.info(); return err })
	return info, err
}

// info is DeviceInfo. The caller keeps the device open.
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
	if r, ok := mem.Find[mem.StatsReporter](d.allocator); ok {
		s := r.Stats()
		info.Allocated, info.Peak = s.AllocatedBytes.All.Current, s.AllocatedBytes.All.Peak
		info.Reserved = s.ReservedBytes.All.Current
	}
	info.Limit = d.limit
	return info, nil
}

// Handles are what other libraries and kernel launches need of a device. They belong to the engine and are valid until
// its Close: do not close them.
type Handles struct {
	Device  driver.Device
	Stream  driver.Stream // the default stream
	Backend backend.Backend
	BLAS    string // the library for matrix products, "libcublas.so.13"; empty if there is none

	// As in driver.Info; 0 if the device does not have it.
	Compute         int // compute capability, ten times the major number plus the minor: 90
	Multiprocessors int
	L2              int64 // bytes of second-level cache
	SharedMemory    int64 // bytes that one block of threads may use

	engine *Engine
	index  int
}

// Communicator is Engine.Communicator of the device. Its Handle is NCCL's.
func (h Handles) Communicator() (*collective.Communicator, error) {
	return h.engine.Communicator(h.index)
}

// BLASHandle returns a cublasHandle_t on the default stream, for the program's own calls of cuBLAS: see BLASHandle of
// compute/cuda's Backend. The error matches driver.ErrUnsupported if the backend does not use cuBLAS.
func (h Handles) BLASHandle() (uintptr, error) {
	b, ok := h.Backend.(interface{ BLASHandle() (uintptr, error) })
	if !ok {
		return 0, fmt.Errorf("engine: device %d: %w", h.index, &driver.Error{
			Call: "BLASHandle", Code: driver.ErrUnsupported,
			Detail: fmt.Sprintf("backend %q has no cuBLAS", h.Backend.Name()),
		})
	}
	var handle uintptr
	err := h.engine.devices[h.index].allocator.whileOpen(func() (err error) {
		handle, err = b.BLASHandle()
		return err
	})
	if err != nil && err != ErrClosed {
		err = fmt.Errorf("engine: device %d: %w", h.index, err)
	}
	return handle, err
}

// Handles returns a device's handles.
func (e *Engine) Handles(i int) (Handles, error) {
	d := e.at("Handles", i)
	if err := e.checkOpen(); err != nil {
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

// Place returns the place of a device on its default stream, without a scope: the caller releases the tensors it makes
// there. After Close its operations fail with an error that matches driver.ErrClosed.
func (e *Engine) Place(i int) *tensor.Place { return e.at("Place", i).place }

// places returns the places of all devices.
func (e *Engine) places() []*tensor.Place {
	all := make([]*tensor.Place, len(e.devices))
	for i, d := range e.devices {
		all[i] = d.place
	}
	return all
}

// Allocator returns the allocator of a device's memory, with all its layers. After Close requests fail with ErrClosed,
// and frees are no-ops: the device has the memory back.
func (e *Engine) Allocator(i int) mem.Allocator { return e.at("Allocator", i).allocator }

// Freeze makes a device's allocator compact its live blocks and never move them again: call it when the parameters of a
// model are loaded. It may be called again, for blocks allocated since. Blocks in caches are not frozen. The error
// matches driver.ErrUnsupported if the allocator moves no blocks, and names allocators that do.
func (e *Engine) Freeze(i int) error {
	d := e.at("Freeze", i)
	if err := e.checkOpen(); err != nil {
		return err
	}
	a, ok := mem.Find[interface{ Freeze(driver.Stream) error }](d.allocator)
	if !ok {
		return fmt.Errorf("engine: device %d: %w", i, &driver.Error{
			Call: "Freeze", Code: driver.ErrUnsupported,
			Detail: fmt.Sprintf("its allocator, %T, moves no blocks; of DeviceConfig.Allocator's %s, %q does",
				bottom(d.allocator), strings.Join(mem.Allocators(d.kind()), ", "), "arena"),
		})
	}
	return d.allocator.whileOpen(func() error { return a.Freeze(d.place.Stream()) })
}

// bottom returns the lowest layer.
func bottom(a mem.Allocator) (last mem.Allocator) {
	for layer := range mem.Layers(a) {
		last = layer
	}
	return last
}

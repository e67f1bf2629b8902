// Package raw allocates memory by address for a whole process, for callers that keep no blocks: C code, plugins,
// foreign runtimes. Its functions are those of PyTorch's process-wide interface (c10::cuda::CUDACachingAllocator,
// CUDAAllocator):
//
//	p, err := raw.Alloc(dev, 1<<20)  // raw_alloc
//	raw.RecordStream(p, side)        // recordStream
//	raw.Delete(p)                    // raw_delete: p leads to the device and allocator
//
// Each device has a current allocator. [Current] opens the registered allocator of the highest priority, mem/caching
// unless the program registers another, and [SetCurrent] replaces it at run time. Each function finds the device's
// allocator, or the block that an address lies in, and calls the layer that implements the operation. If no layer does,
// the error names the missing ability and matches driver.ErrUnsupported. [NewAddressed] gives one allocator the same
// interface.
//
// All functions are safe for concurrent use. Errors of allocators and devices are returned unchanged. Bugs of the
// caller, such as an address that is not live, panic with the prefix raw.
//
// The device and the stream are arguments: there is no current one. Addresses of blocks that were allocated through a
// mem.Allocator are unknown here. Private pools, observers and recordings belong to the allocator: find them by
// mem.Find in raw.Current. The package reads no environment; NoCaching does what PYTORCH_NO_CUDA_MEMORY_CACHING does.
package raw

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	_ "github.com/ashlar-go/ashlar/mem/caching" // the default of Init
	"github.com/ashlar-go/ashlar/mem/direct"
)

// Init opens the current allocator of each device that has none, as PyTorch's init does for all. Calling it is
// optional: every function opens the allocator that it needs.
func Init(devs ...driver.Device) error {
	for _, dev := range devs {
		if _, err := Current(dev); err != nil {
			return err
		}
	}
	return nil
}

// Initialized reports whether dev has a current allocator.
func Initialized(dev driver.Device) bool {
	_, ok := FindCurrent(dev)
	return ok
}

// NoCaching replaces dev's current allocator by one without a cache, so that each Alloc and Delete calls the driver, as
// under PYTORCH_NO_CUDA_MEMORY_CACHING for memory checkers. It returns the former allocator with its cache, nil if
// there was none: raw.SetCurrent(dev, former) turns caching on again.
func NoCaching(dev driver.Device) (former mem.Allocator) {
	return SetCurrent(dev, direct.New(dev, direct.Config{}))
}

// Alloc returns the address of at least size bytes of dev's memory for work queued on its default stream from now on. A
// size of zero gives the zero Pointer; a negative size panics. The error matches mem.ErrNoMemory if there is no room.
func Alloc(dev driver.Device, size int64) (driver.Pointer, error) {
	return AllocCurrent(dev, dev.DefaultStream(), size)
}

// AllocOn is Alloc for work queued on s, a stream of dev (raw_alloc_with_stream).
func AllocOn(dev driver.Device, s driver.Stream, size int64) (driver.Pointer, error) {
	return AllocCurrent(dev, s, size)
}

// Delete frees a block that Alloc returned, on any device, to the allocator that it came from. Work queued before this
// call on the block's stream, on those of RecordStream, and on each in used, may still use it. Plug-ins that get a
// stream with each free name it here if it is not the block's. Deleting the zero Pointer is a no-op; any other address
// that is not the start of a live block panics.
func Delete(p driver.Pointer, used ...driver.Stream) { CurrentBlocks().Free(p, used...) }

// RecordStream records that work on s uses the block that contains p: its Delete then also waits for s. The zero
// Pointer is ignored; an address outside the live blocks panics. For an address inside a block, the time grows with the
// number of blocks.
func RecordStream(p driver.Pointer, s driver.Stream) { CurrentBlocks().RecordStream(p, s) }

// DeviceOf returns the device of the live block that p lies in, and false if p lies in none.
func DeviceOf(p driver.Pointer) (driver.Device, bool) {
	l, ok := CurrentBlocks().Holding(p)
	return l.Device, ok
}

// BaseAllocation returns the address and the size of the driver's allocation that contains the block in which p lies
// (getBaseAllocation). Memory that is mapped page by page, as in expandable segments, has no such allocation: the error
// matches driver.ErrUnsupported. For an allocator that does not know the base of a block, or that is below layers, it
// takes a snapshot: do not call it often there. An address outside the live blocks panics.
func BaseAllocation(p driver.Pointer) (base driver.Pointer, size int64, err error) {
	return baseOf(p, holding("BaseAllocation", p))
}

// baseOf finds the base allocation of p, which lies in a live block.
func baseOf(p driver.Pointer, l LiveBlock) (base driver.Pointer, size int64, err error) {
	const call = "BaseAllocation"
	// Only the topmost layer knows the block: adaptors allocate blocks of their own.
	if top, ok := l.From.(interface {
		BaseAllocation(mem.Block) (driver.Pointer, int64, error)
	}); ok {
		if base, size, err = top.BaseAllocation(l.Block); err != nil {
			err = fmt.Errorf("raw: %s: %w: %w", call, err, driver.ErrUnsupported)
		}
		return base, size, err
	}
	snapshotter, ok := mem.Find[mem.Snapshotter](l.From)
	if !ok {
		return 0, 0, lacks(call, l.From, "does not describe its segments")
	}
	for _, s := range snapshotter.Snapshot() {
		if p < s.Ptr || uint64(p-s.Ptr) >= uint64(s.TotalSize) {
			continue
		}
		if s.Expandable {
			return 0, 0, lacks(call, l.From, fmt.Sprintf("has %#x in an expandable segment", uint64(p)))
		}
		return s.Ptr, s.TotalSize, nil
	}
	return 0, 0, lacks(call, l.From, fmt.Sprintf("has no segment at %#x", uint64(p)))
}

// holding returns the block that p lies in, and panics if there is none.
func holding(call string, p driver.Pointer) LiveBlock {
	l, ok := CurrentBlocks().Holding(p)
	if !ok {
		panic(fmt.Sprintf("raw: %s of %#x, which is not in a live block", call, uint64(p)))
	}
	return l
}

// lacks returns the error for an ability that an allocator lacks.
func lacks(call string, a mem.Allocator, what string) error {
	return fmt.Errorf("raw: %s: the allocator %s %s: %w", call, name(a), what, driver.ErrUnsupported)
}

// Name returns the name of dev's current allocator for mem.Open, such as "caching" or "direct": the name of the package
// of its lowest layer.
func Name(dev driver.Device) (string, error) {
	a, err := Current(dev)
	if err != nil {
		return "", err
	}
	return name(a), nil
}

func name(a mem.Allocator) string {
	for layer := range mem.Layers(a) {
		a = layer
	}
	pkg, _, _ := strings.Cut(strings.TrimLeft(fmt.Sprintf("%T", a), "*"), ".")
	return pkg
}

// ability returns the topmost layer of dev's current allocator that is a T.
func ability[T any](call string, dev driver.Device, what string) (T, error) {
	var none T
	a, err := Current(dev)
	if err != nil {
		return none, err
	}
	t, ok := mem.Find[T](a)
	if !ok {
		return none, lacks(call, a, what)
	}
	return t, nil
}

// MemoryFraction returns the part of the device's memory that dev's current allocator may reserve, in [0, 1]; 1 is no
// limit (getMemoryFraction).
func MemoryFraction(dev driver.Device) (float64, error) {
	a, err := ability[interface{ MemoryFraction() float64 }]("MemoryFraction", dev, "has no memory fraction")
	if err != nil {
		return 0, err
	}
	return a.MemoryFraction(), nil
}

// SetMemoryFraction limits what dev's current allocator may reserve to a part of the device's memory, in [0, 1]
// (setMemoryFraction). Another allocator that becomes current has its own limit.
func SetMemoryFraction(dev driver.Device, fraction float64) error {
	a, err := ability[interface{ SetMemoryFraction(float64) error }]("SetMemoryFraction", dev, "has no memory fraction")
	if err != nil {
		return err
	}
	return a.SetMemoryFraction(fraction)
}

// Enable turns caching in dev's current allocator on or off (enable). While it is off, each Alloc and Delete calls the
// driver, and memory that was allocated before is deleted as usual. NoCaching replaces the allocator instead.
func Enable(dev driver.Device, on bool) error {
	a, err := ability[interface{ Enable(bool) }]("Enable", dev, "cannot turn caching off")
	if err == nil {
		a.Enable(on)
	}
	return err
}

// Enabled reports whether dev's current allocator caches (isEnabled).
func Enabled(dev driver.Device) (bool, error) {
	a, err := ability[interface{ Enabled() bool }]("Enabled", dev, "cannot turn caching off")
	return err == nil && a.Enabled(), err
}

// EmptyCache empties the caches of the current allocators of all devices, as PyTorch's emptyCache does. Allocators that
// are no longer current keep theirs. The error joins the errors of all.
func EmptyCache() error {
	var errs []error
	for _, dev := range CurrentDevices() {
		a, ok := FindCurrent(dev)
		if !ok {
			continue // removed since CurrentDevices
		}
		if t, ok := mem.Find[mem.Trimmer](a); ok {
			errs = append(errs, t.EmptyCache())
		} else {
			errs = append(errs, lacks("EmptyCache", a, "has no cache to empty"))
		}
	}
	return errors.Join(errs...)
}

// CacheInfo returns how many bytes dev's current allocator has cached, and an upper bound of the largest request that
// dev could serve: the larger of the largest cached block, on any stream, and the memory that the device has left
// (cacheInfo). An allocator that joins cached memory and new memory behind one block, as mem/paged does, tells the
// bound itself.
func CacheInfo(dev driver.Device) (cachedAndFree, largest int64, err error) {
	a, err := ability[interface {
		CacheInfo() (cachedAndFree, largest int64)
	}]("CacheInfo", dev, "does not report its cached memory")
	if err != nil {
		return 0, 0, err
	}
	free, _, err := dev.Available()
	cachedAndFree, largest = a.CacheInfo()
	if joining, ok := a.(interface{ LargestRequest(free int64) int64 }); ok {
		return cachedAndFree, joining.LargestRequest(free), err
	}
	return cachedAndFree, max(free, largest), err
}

// Stats returns the counters of dev's current allocator (getDeviceStats).
func Stats(dev driver.Device) (mem.Stats, error) {
	a, err := ability[mem.StatsReporter]("Stats", dev, "does not count")
	if err != nil {
		return mem.Stats{}, err
	}
	return a.Stats(), nil
}

// ResetPeakStats sets every peak of dev's current allocator to the current value.
func ResetPeakStats(dev driver.Device) error {
	a, err := ability[mem.StatsReporter]("ResetPeakStats", dev, "does not count")
	if err == nil {
		a.ResetPeakStats()
	}
	return err
}

// ResetAccumulatedStats sets the accumulated counters of dev's current allocator to zero.
func ResetAccumulatedStats(dev driver.Device) error {
	a, err := ability[mem.StatsReporter]("ResetAccumulatedStats", dev, "does not count")
	if err == nil {
		a.ResetAccumulatedStats()
	}
	return err
}

// Snapshot describes every segment of dev's current allocator, in the order of addresses.
func Snapshot(dev driver.Device) ([]mem.SegmentInfo, error) {
	a, err := ability[mem.Snapshotter]("Snapshot", dev, "does not describe its segments")
	if err != nil {
		return nil, err
	}
	return a.Snapshot(), nil
}

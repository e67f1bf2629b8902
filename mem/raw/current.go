package raw

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// The current allocators of the process, at most one for each device. A current allocator serves all callers of the
// process that have only addresses, like PyTorch's current allocator (CUDACachingAllocator::get).
//
//	current     the current allocators, one for each device: a slice that is replaced, never changed
//	liveBlocks  the live blocks by their addresses, each with the allocator that it came from
//
// So an allocator may be replaced while others allocate and free: a block is freed to the allocator that it came from.
// openMu is held during changes and while Current opens an allocator, so an allocator's factory must not call this
// package. Requests take only a lock of liveBlocks.
var (
	openMu     sync.Mutex
	current    atomic.Pointer[[]*source]
	liveBlocks = LiveBlocks{name: "raw", free: "Delete"}
)

// Current returns the allocator of dev's memory that the process shares. The first call opens it with mem.Open and an
// empty spec: the registered allocator with the highest priority. The error is that of mem.Open.
func Current(dev driver.Device) (mem.Allocator, error) {
	l, err := sourceOf(dev)
	if err != nil {
		return nil, err
	}
	return l.Allocator, nil
}

// sourceOf returns dev's current allocator, and opens it if there is none.
func sourceOf(dev driver.Device) (*source, error) {
	if l := findSource(dev); l != nil {
		return l, nil
	}
	if dev == nil {
		panic("raw: the current allocator of a nil device")
	}
	openMu.Lock()
	defer openMu.Unlock()
	if l := findSource(dev); l != nil {
		return l, nil // another goroutine opened it first
	}
	a, err := mem.Open("", dev)
	if err != nil {
		return nil, err
	}
	return setSource(dev, a), nil
}

// findSource returns dev's current allocator, or nil. Processes have few devices, so a walk is faster than a map.
func findSource(dev driver.Device) *source {
	if all := current.Load(); all != nil {
		for _, l := range *all {
			if l.dev == dev {
				return l
			}
		}
	}
	return nil
}

// setSource makes a the current allocator of dev, in place of the former one. A nil a removes it. The caller holds
// openMu.
func setSource(dev driver.Device, a mem.Allocator) *source {
	var all []*source
	if old := current.Load(); old != nil {
		all = slices.Clone(*old)
	}
	at := slices.IndexFunc(all, func(l *source) bool { return l.dev == dev })
	l := &source{a, dev}
	switch {
	case a == nil && at >= 0:
		all = slices.Delete(all, at, at+1)
	case a != nil && at >= 0:
		all[at] = l
	case a != nil:
		all = append(all, l)
	}
	current.Store(&all)
	return l
}

// SetCurrent makes a the process's allocator of dev's memory, and returns the former one, nil if there was none. If a
// is nil, dev has none until Current opens it anew; set it to nil before closing a device whose allocator is current.
//
// Live blocks stay valid, and go back to the former allocator when they are freed. The caller owns the former: it keeps
// its cache until EmptyCache or Close, and concurrent calls may still allocate blocks of it. Its Close fails while
// blocks are live, and a request that finds it closed is repeated with a.
func SetCurrent(dev driver.Device, a mem.Allocator) (former mem.Allocator) {
	if dev == nil {
		panic("raw: SetCurrent of a nil device")
	}
	openMu.Lock()
	defer openMu.Unlock()
	former, _ = FindCurrent(dev)
	setSource(dev, a)
	if a == nil {
		forgetImports(dev)
	}
	return former
}

// FindCurrent returns dev's current allocator, and false if there is none. It opens no allocator.
func FindCurrent(dev driver.Device) (mem.Allocator, bool) {
	if l := findSource(dev); l != nil {
		return l.Allocator, true
	}
	return nil, false
}

// CurrentDevices returns the devices that have a current allocator, in the order in which they got one.
func CurrentDevices() []driver.Device {
	var devs []driver.Device
	if all := current.Load(); all != nil {
		for _, l := range *all {
			devs = append(devs, l.dev)
		}
	}
	return devs
}

// AllocCurrent returns the address of at least size bytes of dev's current allocator, which is opened if there is none,
// for work queued on s from now on. A size of zero gives the zero Pointer; a negative size panics. The error is that of
// the allocator or of Current. It is also an error if a block of another device is live at the same address. This
// happens only with devices that have their own address spaces, such as simulated ones: CUDA's devices and the host
// share one.
//
// A request that fails on an allocator that is no longer current is repeated on the current one.
func AllocCurrent(dev driver.Device, s driver.Stream, size int64) (driver.Pointer, error) {
	if size < 0 {
		panic(fmt.Sprintf("raw: Alloc of %d bytes", size))
	}
	for {
		l, err := sourceOf(dev)
		if err != nil {
			return 0, err
		}
		p, err := liveBlocks.alloc(l, s, size)
		if now := findSource(dev); err == nil || now == l || now == nil {
			return p, err
		}
	}
}

// AllocFrom is AllocCurrent from a given allocator of dev's memory, such as a pool of the current one. The block is
// among CurrentBlocks.
func AllocFrom(dev driver.Device, a mem.Allocator, s driver.Stream, size int64) (driver.Pointer, error) {
	if size < 0 {
		panic(fmt.Sprintf("raw: Alloc of %d bytes", size))
	}
	return liveBlocks.alloc(&source{a, dev}, s, size)
}

// CurrentBlocks returns the live blocks of AllocCurrent on all devices. They are freed through it.
func CurrentBlocks() *LiveBlocks { return &liveBlocks }

// Restored records the live blocks of a pool of an allocator of dev, whose state was restored. Free and Delete then
// take the restored blocks, and no block that the pool had before.
func Restored(dev driver.Device, a mem.Allocator, d *mem.PoolDelta) {
	liveBlocks.replace(&source{a, dev}, d)
}

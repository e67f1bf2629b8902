package caching

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// uncached are the blocks that the driver allocated for themselves, while caching was off. Guarded by Allocator.mu.
type uncached struct {
	live    map[uint64]mem.Block // by their tags
	last    uint64               // the last tag
	refused []mem.Block          // freed, but the driver failed to free them: tried again
}

// Enable turns caching on, the default, or off (PyTorch's enable; PYTORCH_NO_CUDA_MEMORY_CACHING). While it is off,
// each request, also to Pools, goes to the driver with its exact size, and freeing its block frees it in the driver,
// which waits for the device. Memory checkers then find more errors. Those blocks are in no statistic, snapshot, event
// or limit. All blocks may be freed whether caching is on or off. Cached memory stays; EmptyCache releases it.
func (a *Allocator) Enable(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lockShards()
	defer a.unlockShards()
	a.setSlowPath(slowDisabled, !on)
}

// Enabled reports whether caching is on (PyTorch's isEnabled).
func (a *Allocator) Enabled() bool { return a.slowPath.Load()&slowDisabled == 0 }

// allocUncached allocates a block from the driver. The caller holds mu.
func (a *Allocator) allocUncached(size int64) (mem.Block, error) {
	ptr, err := a.dev.Alloc(size)
	if err != nil {
		if errors.Is(err, driver.ErrNoMemory) {
			err = fmt.Errorf("%w: %w", mem.ErrNoMemory, err)
		}
		return mem.Block{}, fmt.Errorf("caching: get %d bytes from the driver, with caching off: %w", size, err)
	}
	u := &a.uncached
	if u.live == nil {
		u.live = map[uint64]mem.Block{}
	}
	for taken := true; taken; _, taken = u.live[u.last] {
		u.last = max(u.last+1<<32, 1<<32) // the lower half, which is a blockRef in other tags, is 0
	}
	b := mem.Block{Ptr: ptr, Size: size, Tag: u.last}
	u.live[b.Tag] = b
	return b, nil
}

// freeUncached frees a block that no shard has. It panics if the block is not one of allocUncached either. The caller
// holds no lock.
func (a *Allocator) freeUncached(b mem.Block) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.uncached.live[b.Tag] != b {
		panicForeign("Free", b)
	}
	delete(a.uncached.live, b.Tag)
	a.uncached.refused = append(a.uncached.refused, b)
	_ = a.returnUncached() // tried again and reported by EmptyCache
}

// returnUncached frees blocks in the driver. The caller holds mu.
func (a *Allocator) returnUncached() error {
	var failures []error
	a.uncached.refused = slices.DeleteFunc(a.uncached.refused, func(b mem.Block) bool {
		err := a.dev.Free(b.Ptr)
		if err != nil {
			failures = append(failures, fmt.Errorf("caching: give %d bytes at %#x back: %w", b.Size, b.Ptr, err))
		}
		return err == nil
	})
	return errors.Join(failures...)
}

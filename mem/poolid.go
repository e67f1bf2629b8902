package mem

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/goroutine"
)

// userPools counts the pools that users made. PyTorch's IDs are unique in a process, whatever the allocator.
var userPools atomic.Uint64

// NewPoolID returns the ID (0, n) of a new pool made by a user: n increases with each call in a process. It is safe for
// concurrent use.
func NewPoolID() PoolID { return PoolID{0, userPools.Add(1)} }

// CurrentGoroutine returns a filter that matches requests of the goroutine that called CurrentGoroutine, on any stream.
// A scope of a private pool with this filter selects that goroutine's requests, as PyTorch's selects the calling
// thread's (torch.cuda.use_mem_pool):
//
//	pool.Use(mem.CurrentGoroutine(), func() { ... })
//
// Goroutines that this goroutine starts are not matched. End the scope before the goroutine ends: a later goroutine may
// get its ID. Requests that move between goroutines, and threads of a foreign runtime, use AllocOptions.Key instead.
func CurrentGoroutine() func(driver.Stream) bool {
	me := goroutine.ID()
	return func(driver.Stream) bool { return goroutine.ID() == me }
}

// A PoolDelta describes the effect of restoring an earlier state of a private pool on the blocks of the pool. Both
// lists are in address order.
type PoolDelta struct {
	// Freed lists the blocks that were live before and are not live after, as they were allocated: their owners have
	// lost them. It includes blocks whose address is live again for another allocation.
	Freed []Block

	// Live lists every block of the pool. All blocks allocated before the restore are invalid, including those that
	// are live again: the caller must distribute these blocks to their owners, and each must be freed once.
	Live []Block
}

// At returns the live block that begins at ptr.
func (d *PoolDelta) At(ptr driver.Pointer) (Block, bool) {
	i, ok := d.Find(ptr)
	if !ok {
		return Block{}, false
	}
	return d.Live[i], true
}

// Find returns the index in Live of the block that begins at ptr.
func (d *PoolDelta) Find(ptr driver.Pointer) (int, bool) {
	return slices.BinarySearchFunc(d.Live, ptr, func(b Block, ptr driver.Pointer) int {
		return cmp.Compare(b.Ptr, ptr)
	})
}

package mem

import (
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/goroutine"
)

// userPools counts the pools that users made. PyTorch's IDs are unique in a process, whatever the allocator.
var userPools atomic.Uint64

// NewPoolID returns the ID of a new pool that a user makes, (0, n): n rises from call to call in a process. Safe for
// concurrent use.
func NewPoolID() PoolID { return PoolID{0, userPools.Add(1)} }

// CurrentGoroutine returns a filter that holds for requests of the goroutine which called CurrentGoroutine, whatever
// their stream, and for no others. A scope of a private pool with this filter catches what the calling goroutine asks
// for, as PyTorch's catches what the calling thread asks for (torch.cuda.use_mem_pool):
//
//	pool.Use(mem.CurrentGoroutine(), func() { ... })
//
// Goroutines that this one starts are others. End the scope before the goroutine ends: a later one can be taken for it.
// Requests that move from goroutine to goroutine, and threads of a foreign runtime, have a key instead: see
// AllocOptions.Key.
func CurrentGoroutine() func(driver.Stream) bool {
	me := goroutine.ID()
	return func(driver.Stream) bool { return goroutine.ID() == me }
}

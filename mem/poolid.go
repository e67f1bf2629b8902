package mem

import (
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/goroutine"
)

// userPools counts the pools that users made. PyTorch's IDs are unique in a process, whatever the allocator.
var userPools atomic.Uint64

// NewPoolID returns the ID (0, n) of a new pool made by a user: n increases with each call in a process. Safe for
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

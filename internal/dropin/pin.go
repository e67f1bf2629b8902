package dropin

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// pins are the pinned blocks. The zero value has none.
type pins struct {
	any atomic.Int64 // number of pinned blocks; while it is 0, Free takes no lock

	mu     sync.Mutex
	blocks map[driver.Pointer]pin
}

// A pin describes a pinned block.
type pin struct {
	count int
	freed bool // Free was called: the last Unpin frees it
}

func (x *pins) add(at driver.Pointer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.blocks == nil {
		x.blocks = map[driver.Pointer]pin{}
	}
	b := x.blocks[at]
	b.count++
	x.blocks[at] = b
	x.any.Store(int64(len(x.blocks)))
}

// keep reports whether the block is pinned. If so, it notes that Free was called.
func (x *pins) keep(at driver.Pointer) bool {
	if x.any.Load() == 0 {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	b, ok := x.blocks[at]
	if ok {
		b.freed = true
		x.blocks[at] = b
	}
	return ok
}

// remove undoes one pin. It reports whether the block must be freed now; ok is false if the block is not pinned.
func (x *pins) remove(at driver.Pointer) (free, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b, ok := x.blocks[at]
	if !ok {
		return false, false
	}
	if b.count--; b.count > 0 {
		x.blocks[at] = b
		return false, true
	}
	delete(x.blocks, at)
	x.any.Store(int64(len(x.blocks)))
	return b.freed, true
}

// restored forgets the blocks that a Restore freed, and the frees of those that it made live again.
func (x *pins) restored(d *mem.PoolDelta) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, b := range d.Freed {
		delete(x.blocks, b.Ptr)
	}
	for _, b := range d.Live {
		if pinned, ok := x.blocks[b.Ptr]; ok {
			pinned.freed = false
			x.blocks[b.Ptr] = pinned
		}
	}
	x.any.Store(int64(len(x.blocks)))
}

// all returns the addresses of the pinned blocks.
func (x *pins) all() []driver.Pointer {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Keys(x.blocks))
}

func (x *pins) count(at driver.Pointer) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.blocks[at].count
}

package magazine

import (
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A ref is the number of an entry. Zero is none.
type ref uint32

// A blockEntry describes a block of the allocator below that went through the cache. It is one cache line, without
// pointers.
//
// The block's owner may read it: the caller that allocated the block, or the holder of the lock of the list that keeps
// it. Only fill and clear change block and class.
type blockEntry struct {
	block mem.Block // as in the allocator below; the zero Block while the entry is unused

	// generation counts the allocations and frees of the block: it is odd while the block is live. A tag holds the
	// value at the allocation, so a second Free finds another one (until 2,147,483,648 allocations later).
	generation atomic.Uint32

	requested      uint32          // bytes of the last request
	requestedBelow uint32          // bytes requested of the allocator below
	class          uint32          // of the request that the allocator below answered; 0 if the block is never held
	stream         driver.StreamID // of its allocation
	next           ref             // in a magazine, or in the list of unused entries
	nextMagazine   ref             // of the first block of a magazine in a depot: the first block of the next magazine

	_ [12]byte
}

// markAllocated makes a block live and returns its tag. The caller holds a per-processor cache and owns the block.
func (r *blockEntry) markAllocated(at ref) uint64 {
	generation := r.generation.Load() + 1
	r.generation.Store(generation)
	return uint64(generation)<<32 | uint64(at)
}

// live reports whether the block is live.
func (r *blockEntry) live() bool { return r.generation.Load()%2 == 1 }

func splitTag(tag uint64) (generation uint32, at ref) { return uint32(tag >> 32), ref(tag) }

const entryChunk = 1 << 10

// A blockTable holds all entries, whose addresses never change.
type blockTable struct {
	chunks atomic.Pointer[[]*[entryChunk]blockEntry]

	_ [64]byte // separates fields that warm calls read, above, from fields that are written, below

	mu     sync.Mutex
	unused ref
}

func (rs *blockTable) init() { rs.chunks.Store(new([]*[entryChunk]blockEntry)) }

// at returns the entry of a valid ref.
func (rs *blockTable) at(at ref) *blockEntry {
	return &(*rs.chunks.Load())[at/entryChunk][at%entryChunk]
}

// find returns the entry of any number, or nil if the number is not a valid ref.
func (rs *blockTable) find(at ref) *blockEntry {
	chunks := *rs.chunks.Load()
	if int(at/entryChunk) >= len(chunks) {
		return nil
	}
	return &chunks[at/entryChunk][at%entryChunk]
}

// take returns a list of n unused entries.
func (rs *blockTable) take(n int) ref {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var list ref
	for range n {
		if rs.unused == 0 {
			rs.grow()
		}
		at := rs.unused
		r := rs.at(at)
		rs.unused, r.next, list = r.next, list, at
	}
	return list
}

func (rs *blockTable) grow() {
	old := *rs.chunks.Load()
	chunks := append(old[:len(old):len(old)], new([entryChunk]blockEntry))
	rs.chunks.Store(&chunks)
	for i := entryChunk - 1; i >= 0; i-- {
		if at := ref(len(old)*entryChunk + i); at != 0 {
			r := rs.at(at)
			r.next, rs.unused = rs.unused, at
		}
	}
}

// release clears a list of entries and makes them unused.
func (rs *blockTable) release(list ref) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for list != 0 {
		at, r := list, rs.at(list)
		list = r.next
		r.block = mem.Block{}
		r.next, rs.unused = rs.unused, at
	}
}

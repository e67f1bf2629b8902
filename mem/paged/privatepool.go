package paged

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// # Private pools
//
// A private pool has a space of its own: addresses and pages that serve no other request, unless the pool lends blocks
// (borrow). While graphs use the pool, its mappings stay, because launches of the graphs access every address that was
// a block's during a capture. A page that is idle may be mapped at a second address of the pool: the graphs are
// launched in an order in which the earlier user of the page is done. So a pool needs about as many pages as its blocks
// touch at the same time, and fresh addresses where a mapping is in the way.
//
// A pool without users keeps its pages until EmptyCache, or until a request needs memory (reclaim.go).

// A privatePool serves the requests of captured graphs, or of one user.
type privatePool struct {
	id       mem.PoolID
	space    space
	useCount int  // an open Pool, its scopes, and callers of BeginAllocateToPool and RetainPool
	own      int  // users that are the Pool or its scopes; the others are graphs, which write to free memory too
	closed   bool // the Pool was closed
	gone     bool // the pool was removed
	noSplit  bool
	launched bool     // graphs used the pool, and their launches may still be queued
	reserved mem.Stat // bytes of pages
	borrowed []mem.Block

	// by tag, of blocks that the last Restore made live again: the tags of their first allocations
	firstTags map[uint64]uint64
}

func newPrivatePool(id mem.PoolID) *privatePool {
	pp := &privatePool{id: id}
	pp.space.owner = pp
	return pp
}

// inGraphs reports whether graphs use the pool; their launches write to its free memory too. Launches may outlast it.
func (pp *privatePool) inGraphs() bool { return pp.useCount > pp.own }

// countReserved counts bytes of pages, or fewer if n is negative.
func (pp *privatePool) countReserved(n int64) {
	if n > 0 {
		pp.reserved.Increase(n)
	} else {
		pp.reserved.Decrease(-n)
	}
}

// stats returns the reserved bytes. All blocks count as large, as in Stats.
func (pp *privatePool) stats() mem.StatArray {
	return mem.StatArray{All: pp.reserved, LargePool: pp.reserved}
}

// ReservedByPrivatePools returns the bytes of each private pool's pages: reserved_bytes_by_private_pools of
// torch.cuda.memory_stats(). Pools that were removed are not included.
func (a *Allocator) ReservedByPrivatePools() map[mem.PoolID]mem.StatArray {
	a.mu.Lock()
	defer a.mu.Unlock()
	reserved := make(map[mem.PoolID]mem.StatArray, len(a.private))
	for id, pp := range a.private {
		reserved[id] = pp.stats()
	}
	return reserved
}

// poolNamed returns the private pool with an ID, or makes it. The caller holds mu.
func (a *Allocator) poolNamed(id mem.PoolID) *privatePool {
	pp := a.private[id]
	if pp == nil {
		pp = newPrivatePool(id)
		a.private[id] = pp
	}
	return pp
}

// mustFind returns the private pool with an ID, and panics if there is none. The caller holds mu.
func (a *Allocator) mustFind(call string, id mem.PoolID) *privatePool {
	pp := a.private[id]
	if pp == nil {
		panic(fmt.Sprintf("paged: %s: there is no pool %v", call, id))
	}
	return pp
}

// RetainPool adds a user to a private pool, and makes the pool if it does not exist: PyTorch's createOrIncrefPool. The
// user counts as a graph; ReleasePool removes it.
func (a *Allocator) RetainPool(id mem.PoolID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == (mem.PoolID{}) {
		panic("paged: RetainPool of the default pool")
	}
	pp := a.poolNamed(id)
	pp.useCount++
	pp.launched = true
}

// ReleasePool ends one use of a pool by BeginAllocateToPool or RetainPool. After the last, EmptyCache and requests that
// need more memory free the pool's pages; live blocks stay valid until they are freed. All launches of the user's
// graphs must be done then, or be on streams of requests to the allocator, which it waits for. It panics if the pool
// does not exist or has no users, or if the last user leaves while requests still go to the pool.
func (a *Allocator) ReleasePool(id mem.PoolID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pp := a.private[id]
	if pp == nil || !pp.inGraphs() {
		panic(fmt.Sprintf("paged: ReleasePool: pool %v has no users", id))
	}
	if pp.useCount-pp.own == 1 && a.scopes.Graph(pp) != nil {
		panic(fmt.Sprintf("paged: ReleasePool: requests still go to pool %v: call EndAllocateToPool first", id))
	}
	pp.useCount--
}

// PoolUseCount returns the number of users of a private pool: see Pool.UseCount. It is 0 if the pool does not exist.
func (a *Allocator) PoolUseCount(id mem.PoolID) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pp := a.private[id]; pp != nil {
		return pp.useCount
	}
	return 0
}

// NeverSplit makes a private pool allocate whole free blocks only: PoolOptions.NoSplit, for pools made by
// BeginAllocateToPool. It panics if the pool does not exist or has memory.
func (a *Allocator) NeverSplit(id mem.PoolID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pp := a.mustFind("NeverSplit", id)
	if len(pp.space.regions) > 0 && !pp.noSplit {
		panic(fmt.Sprintf("paged: NeverSplit: pool %v has memory already", id))
	}
	pp.noSplit = true
}

// SetUseOnOOM sets PoolOptions.UseOnOOM of a private pool. It panics if the pool does not exist.
func (a *Allocator) SetUseOnOOM(id mem.PoolID, yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pp := a.mustFind("SetUseOnOOM", id)
	a.overflow = slices.DeleteFunc(a.overflow, func(other *privatePool) bool { return other == pp })
	if yes {
		a.overflow = append(a.overflow, pp)
	}
}

// borrow serves a request to the default pool that found no room, because of err, from a pool with UseOnOOM. Pools that
// graphs use lend nothing: a launch would write to the block.
func (a *Allocator) borrow(r *request, err error) (ref, error) {
	for _, pp := range a.overflow {
		if pp.space.fixed() {
			continue
		}
		r.space = &pp.space
		if at, failed := a.alloc(r); failed == nil {
			sp := a.spans.at(at)
			pp.borrowed = append(pp.borrowed, mem.Block{Ptr: sp.ptr, Tag: sp.tag(at)})
			return at, nil
		}
	}
	r.space = &a.main
	return 0, err
}

// lent returns a live block that the default pool has borrowed.
func (a *Allocator) lent(pp *privatePool) (b mem.Block, ok bool) {
	pp.borrowed = slices.DeleteFunc(pp.borrowed, func(b mem.Block) bool {
		at := ref(b.Tag)
		sp := a.spans.at(at)
		return !sp.allocated || sp.tag(at) != b.Tag
	})
	if len(pp.borrowed) == 0 {
		return b, false
	}
	return pp.borrowed[0], true
}

// CheckPoolLive returns nil if the live blocks of a private pool are exactly those at the given addresses, and
// otherwise an error that names the difference. It is PyTorch's checkPoolLiveAllocations. Its cost grows with the
// number of the pool's blocks.
func (a *Allocator) CheckPoolLive(id mem.PoolID, live []driver.Pointer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	pp := a.private[id]
	if pp == nil {
		return fmt.Errorf("paged: CheckPoolLive: there is no private pool %v", id)
	}
	expected := map[driver.Pointer]bool{}
	for _, p := range live {
		expected[p] = true
	}
	var failures []error
	for _, sp := range a.liveIn(pp) {
		if !expected[sp.ptr] {
			failures = append(failures, fmt.Errorf("paged: the block of %d bytes at %#x of pool %v is live, and not "+
				"among those that should be", sp.size(), uint64(sp.ptr), id))
		}
		delete(expected, sp.ptr)
	}
	for _, p := range slices.Sorted(maps.Keys(expected)) {
		failures = append(failures, fmt.Errorf("paged: no live block of pool %v begins at %#x", id, uint64(p)))
	}
	return errors.Join(failures...)
}

// liveIn visits the live blocks of a private pool by their addresses in each region. They must not change during the
// visit.
func (a *Allocator) liveIn(pp *privatePool) func(yield func(ref, *span) bool) {
	return func(yield func(ref, *span) bool) {
		for _, n := range pp.space.regions {
			for at, sp := range a.spansAndSlots(a.regions[n]) {
				if (sp.state == block || sp.state == slot) && !yield(at, sp) {
					return
				}
			}
		}
	}
}

// spansAndSlots visits the spans of a region in order. For a slab it visits its slots instead.
func (a *Allocator) spansAndSlots(rg *region) func(yield func(ref, *span) bool) {
	return func(yield func(ref, *span) bool) {
		for at := rg.first; at != 0; at = a.spans.at(at).next {
			sp := a.spans.at(at)
			if sp.state != slabSpan {
				if !yield(at, sp) {
					return
				}
				continue
			}
			for i := sp.next2; i != 0; i = a.spans.at(i).next {
				if !yield(i, a.spans.at(i)) {
					return
				}
			}
		}
	}
}

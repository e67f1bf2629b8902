package pinned

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/poolscope"
)

// A pool is the default pool or a private one. Allocator.mu guards all of it.
type pool struct {
	id       mem.PoolID // zero: the default pool
	buckets  [maxBits + 1]bucketList
	blocks   int // pieces, and requests that are about to get one
	useCount int // graphs: calls of BeginAllocateToPool without their ReleasePool; an open Pool, and its scopes
	own      int // of them, the open Pool and its scopes
	closed   bool
}

// inGraphs reports whether captured graphs use the pool, and so may read and write its free memory.
func (p *pool) inGraphs() bool { return p.useCount > p.own }

type poolScope = poolscope.Scope[*pool]

// BeginAllocateToPool sends the requests for streams for which filter returns true, or all if it is nil, to the private
// pool id, which is made if it does not exist, until EndAllocateToPool: begin_allocate_to_pool of PyTorch's
// CachingHostAllocator, which a capture calls with the ID that its graph has for device memory, too. Each call must be
// matched by a ReleasePool when the graph is gone. A block of the pool serves no other request, and none of its memory
// is freed while the pool has users.
//
// Of several scopes that match, the last begun wins. The stream of a request is the one that it names, or, for Alloc,
// the device's default stream. The filter runs on the goroutine that makes the request (see mem.CurrentGoroutine) and
// under locks: it must not call the allocator, nor wait. BeginAllocateToPool panics if id is that of the default pool,
// or if such a scope of the pool is open already.
func (a *Allocator) BeginAllocateToPool(id mem.PoolID, filter func(driver.Stream) bool) {
	if id == (mem.PoolID{}) {
		panic("pinned: BeginAllocateToPool of the default pool")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.private[id]
	switch {
	case p == nil:
		p = &pool{id: id}
		a.private[id] = p
	case a.scopes.Graph(p) != nil:
		panic(fmt.Sprintf("pinned: BeginAllocateToPool: requests go to pool %v already", id))
	}
	p.useCount++
	a.scopes.Begin(poolScope{Pool: p, Graph: true, Filter: poolscope.Filter{Stream: filter}})
}

// EndAllocateToPool ends BeginAllocateToPool. It panics if that was not called.
func (a *Allocator) EndAllocateToPool(id mem.PoolID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.private[id]; p == nil || !a.scopes.End(a.scopes.Graph(p)) {
		panic(fmt.Sprintf("pinned: EndAllocateToPool: no requests go to pool %v", id))
	}
}

// ReleasePool declares that one of the graphs that use a private pool is destroyed and its launches are done. After the
// last, as if ReleaseCaptured were called for each, no block of the pool is kept for captured work any more: a graph
// that uses blocks of the pool without a BeginAllocateToPool of its own must be destroyed, too. If the pool has no
// users then, EmptyCache and requests without room free its free memory; live blocks stay valid until they are freed.
// It panics if no graph uses the pool, or if the last is released while its scope is open.
func (a *Allocator) ReleasePool(id mem.PoolID) {
	leave := a.releasePool(id)
	a.giveBackAll(leave)
}

func (a *Allocator) releasePool(id mem.PoolID) (leave []*piece) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.private[id]
	if p == nil || !p.inGraphs() {
		panic(fmt.Sprintf("pinned: ReleasePool: no graph uses pool %v", id))
	}
	if p.useCount-p.own == 1 && a.scopes.Graph(p) != nil {
		panic(fmt.Sprintf("pinned: ReleasePool: requests still go to pool %v: call EndAllocateToPool first", id))
	}
	if p.useCount--; !p.inGraphs() {
		for _, r := range slices.Clone(a.byAddress) { // retire removes elements
			if r.pool != p || !r.captured {
				continue
			}
			if r.captured = false; r.state == captured && a.retire(r) {
				leave = append(leave, r)
			}
		}
	}
	a.forget(p)
	return leave
}

// PoolUseCount returns the number of users of a private pool: each BeginAllocateToPool without its ReleasePool, an open
// Pool, and its open scopes. For a pool that does not exist it returns 0.
func (a *Allocator) PoolUseCount(id mem.PoolID) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.private[id]; p != nil {
		return p.useCount
	}
	return 0
}

// poolFor returns the pool of a request. The caller holds mu.
func (a *Allocator) poolFor(r *request) (*pool, error) {
	if r.fixed != nil {
		if r.fixed.closed {
			return nil, ErrPoolClosed
		}
		return r.fixed, nil
	}
	if len(a.scopes) > 0 {
		if p, ok := a.scopes.Find(r.stream, r.key); ok {
			return p, nil
		}
	}
	return &a.defaultPool, nil
}

// forget drops a private pool that has neither users nor blocks. The caller holds mu.
func (a *Allocator) forget(p *pool) {
	if p != &a.defaultPool && p.useCount == 0 && p.blocks == 0 && a.private[p.id] == p {
		delete(a.private, p.id)
	}
}

// trimmable returns the pools whose free memory may be freed: the default one, those without users, and, for a request
// without room, its own if no graph uses it. The caller holds mu.
func (a *Allocator) trimmable(own *pool) []*pool {
	pools := []*pool{&a.defaultPool}
	ids := slices.SortedFunc(maps.Keys(a.private), func(x, y mem.PoolID) int { return slices.Compare(x[:], y[:]) })
	for _, id := range ids {
		if p := a.private[id]; p.useCount == 0 || p == own && !p.inGraphs() {
			pools = append(pools, p)
		}
	}
	return pools
}

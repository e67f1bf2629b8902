package pinned

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/poolscope"
)

// A Pool is a private pool of page-locked memory: its blocks serve no other requests. Requests go
// to it while one of its scopes is open (Begin, BeginKey, Use), or when they are made to the Pool itself. It is for
// host memory what caching.Pool is for a device's. It is safe for concurrent use.
type Pool struct {
	a    *Allocator
	pool *pool
}

// ErrPoolClosed is returned by requests to a closed Pool.
var ErrPoolClosed = errors.New("pinned: the pool is closed")

// NewPool returns a new pool without memory. Close it when it is no longer needed.
func (a *Allocator) NewPool() *Pool {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := mem.NewPoolID()
	for a.private[id] != nil { // already used for BeginAllocateToPool
		id = mem.NewPoolID()
	}
	p := &pool{id: id, useCount: 1, own: 1}
	a.private[id] = p
	return &Pool{a, p}
}

// ID returns the pool's ID, (0, n), which no pool of device memory has.
func (p *Pool) ID() mem.PoolID { return p.pool.id }

// UseCount returns the number of users of the pool: see Allocator.PoolUseCount.
func (p *Pool) UseCount() int {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.pool.useCount
}

// Alloc is Allocator.Alloc from this pool, whatever scopes are open. It fails with ErrPoolClosed after Close. Free the
// block by Allocator.Free.
func (p *Pool) Alloc(size int64) (mem.Block, error) {
	return p.a.alloc(request{size: size, fixed: p.pool})
}

// Begin sends the requests for streams for which filter returns true, or all if it is nil, to the pool, until end is
// called, once. With mem.CurrentGoroutine those of the calling goroutine are sent. Scopes nest and end as those of
// caching.Pool do, and the filter runs as BeginAllocateToPool's does. Begin panics if the pool was closed.
func (p *Pool) Begin(filter func(driver.Stream) bool) (end func()) {
	return p.begin(poolscope.Filter{Stream: filter})
}

// BeginKey is Begin for requests with a key (mem.AllocOptions.Key) that is equal to this one. It panics if key is nil
// or cannot be compared.
func (p *Pool) BeginKey(key any) (end func()) {
	return p.begin(poolscope.ForKey("pinned: BeginKey", key))
}

// Use calls f within a scope of the pool, which ends with f, also if it panics. See Begin.
func (p *Pool) Use(filter func(driver.Stream) bool, f func()) {
	defer p.Begin(filter)()
	f()
}

func (p *Pool) begin(f poolscope.Filter) (end func()) {
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.pool.closed {
		panic(fmt.Sprintf("pinned: Begin of pool %v, which was closed", p.pool.id))
	}
	p.pool.useCount++
	p.pool.own++
	s := a.scopes.Begin(poolScope{Pool: p.pool, Filter: f})
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !a.scopes.End(s) {
			panic(fmt.Sprintf("pinned: a scope of pool %v was ended twice", p.pool.id))
		}
		p.pool.useCount--
		p.pool.own--
		a.forget(p.pool)
	}
}

// EmptyCache frees the pool's cached blocks, unless captured graphs use the pool. See Allocator.EmptyCache.
func (p *Pool) EmptyCache() error {
	p.a.reclaimFinished()
	_, err := p.a.releaseCached(func() []*pool {
		if p.pool.inGraphs() {
			return nil
		}
		return []*pool{p.pool}
	})
	return err
}

// Close ends the use of the pool. Its cached blocks are freed, unless a scope is open or captured graphs use the pool:
// then the allocator's EmptyCache frees them later. Live blocks stay valid until they are freed. Requests to a closed
// pool fail, but those of its open scopes do not. The error is that of the driver for blocks that it failed to free;
// the allocator's EmptyCache tries again. Closing a closed pool is a no-op.
func (p *Pool) Close() error {
	if !p.close() {
		return nil
	}
	return p.EmptyCache()
}

// close marks the pool as closed, and reports whether nothing keeps it now.
func (p *Pool) close() bool {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	if p.pool.closed {
		return false
	}
	p.pool.closed = true
	p.pool.useCount--
	p.pool.own--
	p.a.forget(p.pool)
	return p.pool.useCount == 0
}

// String names the pool: "pool (0, 3)".
func (p *Pool) String() string { return "pool " + p.pool.id.String() }

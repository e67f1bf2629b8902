package paged

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/poolscope"
)

// A poolScope directs requests to a private pool: while a graph is captured, or between Begin of a Pool and its end.
// While any scope is open, requests bypass the processor caches.
type poolScope = poolscope.Scope[*privatePool]

// BeginAllocateToPool directs the requests on streams for which filter returns true to the private pool id, until
// EndAllocateToPool. It makes the pool if it does not exist. If several match, the last begun applies. Each call needs
// a matching ReleasePool when the user of the pool's memory, such as a graph, is gone. The filter runs like that of
// Pool.Begin. The id may be a Pool's: the graph then shares its memory, and keeps it from being released.
func (a *Allocator) BeginAllocateToPool(id mem.PoolID, filter func(driver.Stream) bool) {
	if id == (mem.PoolID{}) {
		panic("paged: BeginAllocateToPool of the default pool")
	}
	a.beginScope(func() poolScope {
		if pp := a.private[id]; pp != nil && a.scopes.Graph(pp) != nil {
			panic(fmt.Sprintf("paged: BeginAllocateToPool: requests go to pool %v already", id))
		}
		pp := a.poolNamed(id)
		pp.useCount++
		pp.launched = true
		return poolScope{Pool: pp, Graph: true, Filter: poolscope.Filter{Stream: filter}}
	})
}

// EndAllocateToPool ends BeginAllocateToPool. It panics if that was not called.
func (a *Allocator) EndAllocateToPool(id mem.PoolID) {
	if !a.endScope(func() *poolScope { return a.scopes.Graph(a.private[id]) }) {
		panic(fmt.Sprintf("paged: EndAllocateToPool: no requests go to pool %v", id))
	}
}

// beginScope begins a scope that add returns. add runs with mu held.
func (a *Allocator) beginScope(add func() poolScope) *poolScope {
	a.scoping.Lock()
	defer a.scoping.Unlock()
	a.caches.suspend(forScopes, true)
	a.mu.Lock()
	defer func() {
		none := len(a.scopes) == 0 // add panicked
		a.mu.Unlock()
		if none {
			a.caches.suspend(forScopes, false)
		}
	}()
	a.flushCaches()
	return a.scopes.Begin(add())
}

// endScope ends the scope that find returns. It returns false if that is nil or has ended already. find runs with mu
// held.
func (a *Allocator) endScope(find func() *poolScope) bool {
	a.scoping.Lock()
	defer a.scoping.Unlock()
	a.mu.Lock()
	ended := a.scopes.End(find())
	last := len(a.scopes) == 0
	a.mu.Unlock()
	if last {
		a.caches.suspend(forScopes, false)
	}
	return ended
}

// Begin directs the allocator's requests on streams for which filter returns true, or on all streams if filter is nil,
// to the pool, until end is called, once. Without a filter the requests of all goroutines go to the pool. With
// mem.CurrentGoroutine those of the calling goroutine do, as with torch.cuda.use_mem_pool for threads. BeginKey
// selects by a key in the request. A caller that has the Pool can call its Alloc directly, which needs no scope and
// does not slow other requests.
//
// Scopes nest: if several match, the last begun applies. They may end in any order and on any goroutine, and a pool
// may have several at once. To capture a graph, use BeginAllocateToPool with the Pool's ID, which also keeps the
// graph's memory from being released; a scope does not.
//
// The filter runs on the goroutine of the request, and may consult any other state that identifies it, such as its
// thread if the goroutine is locked to one. It runs under locks: it must not call the allocator or wait. Begin panics
// if the pool is closed.
func (p *Pool) Begin(filter func(driver.Stream) bool) (end func()) {
	return p.begin(poolscope.Filter{Stream: filter})
}

// BeginKey is Begin for requests with a key (mem.AllocOptions.Key) equal to this one, on any stream and from any
// goroutine: for work that moves between goroutines, and for threads of a foreign runtime. It panics if key is nil or
// not comparable.
func (p *Pool) BeginKey(key any) (end func()) {
	return p.begin(poolscope.ForKey("paged: BeginKey", key))
}

func (p *Pool) begin(f poolscope.Filter) (end func()) {
	a, pp := p.a, p.pool
	s := a.beginScope(func() poolScope {
		if pp.closed {
			panic(fmt.Sprintf("paged: Begin of pool %v, which was closed", pp.id))
		}
		pp.useCount++
		pp.own++
		return poolScope{Pool: pp, Filter: f}
	})
	return func() {
		if !a.endScope(func() *poolScope { return s }) {
			panic(fmt.Sprintf("paged: a scope of pool %v was ended twice", pp.id))
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		pp.useCount--
		pp.own--
	}
}

// Use calls f within a scope of the pool, which ends when f returns or panics. See Begin.
func (p *Pool) Use(filter func(driver.Stream) bool, f func()) {
	defer p.Begin(filter)()
	f()
}

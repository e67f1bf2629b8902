package caching

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/poolscope"
)

// A poolScope directs requests to a private pool: while a graph is captured, or between Begin of a Pool and its end.
type poolScope = poolscope.Scope[*privatePool]

// BeginAllocateToPool directs the requests on streams for which filter returns true to the private pool id, until
// EndAllocateToPool. It makes the pool if it does not exist. If several match, the last begun applies. Until the end
// only released pools return memory to the driver, and frees that wait for other streams go on waiting. Each call
// needs a matching ReleasePool when the user of the pool's memory, such as a graph, is gone. The filter runs like that
// of Pool.Begin. The id may be a Pool's: the graph then shares its memory, and keeps it from being released.
func (a *Allocator) BeginAllocateToPool(id mem.PoolID, filter func(driver.Stream) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == (mem.PoolID{}) {
		panic("caching: BeginAllocateToPool of the default pool")
	}
	pp := a.private[id]
	if pp == nil {
		pp = newPrivatePool(id)
		a.private[id] = pp
	} else if a.scopes.Graph(pp) != nil {
		panic(fmt.Sprintf("caching: BeginAllocateToPool: requests go to pool %v already", id))
	}
	pp.useCount++
	a.scopes.Begin(poolScope{Pool: pp, Graph: true, Filter: poolscope.Filter{Stream: filter}})
	a.setSlowPath(slowCapture, true)
}

// EndAllocateToPool ends BeginAllocateToPool. It panics if that was not called.
func (a *Allocator) EndAllocateToPool(id mem.PoolID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pp := a.private[id]; pp == nil || !a.endScope(a.scopes.Graph(pp)) {
		panic(fmt.Sprintf("caching: EndAllocateToPool: no requests go to pool %v", id))
	}
}

// endScope ends a scope. It returns false if the scope is nil or has ended already. The caller holds mu.
func (a *Allocator) endScope(s *poolScope) bool {
	ended := a.scopes.End(s)
	a.setSlowPath(slowCapture, len(a.scopes) > 0)
	return ended
}

// capturing reports whether a graph may be being captured: then the device must be neither waited for nor asked to
// free memory. Scopes of Pools do not count. The caller holds mu.
func (a *Allocator) capturing() bool { return a.scopes.Capturing() }

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
// As in PyTorch, while any scope is open, Allocator.EmptyCache releases only released pools, frees that wait for other
// streams go on waiting, and every request except those to a Pool takes Allocator.mu. As in later versions of PyTorch,
// a request that finds no room still releases all free memory, unless a graph is being captured.
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
	return p.begin(poolscope.ForKey("caching: BeginKey", key))
}

func (p *Pool) begin(f poolscope.Filter) (end func()) {
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.pool.closed {
		panic(fmt.Sprintf("caching: Begin of pool %v, which was closed", p.pool.id))
	}
	p.pool.useCount++
	p.pool.own++
	s := a.scopes.Begin(poolScope{Pool: p.pool, Filter: f})
	a.setSlowPath(slowCapture, true)
	return func() { a.endOwn(s) }
}

// endOwn ends a scope of a Pool.
func (a *Allocator) endOwn(s *poolScope) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pp := s.Pool
	if !a.endScope(s) {
		panic(fmt.Sprintf("caching: a scope of pool %v was ended twice", pp.id))
	}
	pp.useCount--
	pp.own--
}

// Use calls f within a scope of the pool, which ends when f returns or panics. See Begin.
func (p *Pool) Use(filter func(driver.Stream) bool, f func()) {
	defer p.Begin(filter)()
	f()
}

// poolFor returns the pool that serves a rounded size on a shard's stream: the private pool of the options, or the
// current one. The caller holds mu and the shard.
func (a *Allocator) poolFor(sh *shard, rounded int64, w *requestOptions) (*shardPool, error) {
	to := w.to
	switch {
	case to == nil:
		var private bool
		if to, private = a.scopes.Find(sh.stream, w.key); !private {
			return sh.defaultPool(rounded), nil
		}
	case to.closed:
		return nil, ErrPoolClosed
	}
	return to.poolIn(sh, classOf(rounded))
}

package caching

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/poolscope"
)

// A poolScope sends requests to a private pool: while a graph is captured, or from Begin of a Pool on.
type poolScope = poolscope.Scope[*privatePool]

// BeginAllocateToPool sends the requests on streams for which filter returns true to the private pool id, which is made
// if it does not exist, until EndAllocateToPool. Of several, the last begun wins. Until then nothing is given back to
// the driver but what released pools hold, and frees that wait for other streams go on waiting. Each call must be
// matched by a ReleasePool when whatever uses the pool's memory (a graph, say) is gone. The filter runs as Begin's does. The
// id may be a Pool's: the graph shares its memory then, and keeps it from being given back.
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

// EndAllocateToPool ends what BeginAllocateToPool began. It panics if nothing was begun.
func (a *Allocator) EndAllocateToPool(id mem.PoolID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pp := a.private[id]; pp == nil || !a.endScope(a.scopes.Graph(pp)) {
		panic(fmt.Sprintf("caching: EndAllocateToPool: no requests go to pool %v", id))
	}
}

// endScope ends a scope, and returns false if that is nil or has ended already. The caller holds mu.
func (a *Allocator) endScope(s *poolScope) bool {
	ended := a.scopes.End(s)
	a.setSlowPath(slowCapture, len(a.scopes) > 0)
	return ended
}

// capturing reports whether a graph may be being captured: then the device must be neither waited for nor asked to take
// memory back. Scopes of Pools are no reason. The caller holds mu.
func (a *Allocator) capturing() bool { return a.scopes.Capturing() }

// Begin sends the allocator's requests on streams for which filter returns true, or on all if it is nil, to the pool,
// until end is called, once. Without a filter the requests of all goroutines go to the pool. With mem.CurrentGoroutine
// those of the calling one do, which is what torch.cuda.use_mem_pool does for threads. BeginKey goes by a key that
// requests carry. A caller that has the Pool at hand can ask it directly, which needs no scope and slows nobody else.
//
// Scopes nest: of several that match, the last begun wins. They may end in any order and on any goroutine, and a pool may
// have several at once. A graph is captured under BeginAllocateToPool with the Pool's ID, which also keeps what the graph
// uses from being given back: a scope does not.
//
// As in PyTorch, as long as there is any scope, Allocator.EmptyCache gives back only what released pools hold, frees
// that wait for other streams go on waiting, and every request but a Pool's takes Allocator.mu. As in later versions of
// PyTorch, a request that finds no room has all that is free given back even so, unless a graph is being captured.
//
// The filter runs on the goroutine that makes the request, and may look at whatever else tells that apart, such as its
// thread if the goroutine is locked to one. It runs under locks: it must not call the allocator, nor wait for anything.
// Begin panics if the pool was closed.
func (p *Pool) Begin(filter func(driver.Stream) bool) (end func()) {
	return p.begin(poolscope.Filter{Stream: filter})
}

// BeginKey is Begin for requests with a key (mem.AllocOptions.Key) that is equal to this one, on any stream and from any
// goroutine: for work that moves between goroutines, and for threads of a foreign runtime. It panics if key is nil or
// cannot be compared.
func (p *Pool) BeginKey(key any) (end func()) {
	if key == nil {
		panic("caching: BeginKey without a key")
	}
	poolscope.CheckKey("caching: BeginKey", key)
	return p.begin(poolscope.Filter{Key: key})
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

// Use calls f within a scope of the pool, which ends with f, also if it panics. See Begin.
func (p *Pool) Use(filter func(driver.Stream) bool, f func()) {
	defer p.Begin(filter)()
	f()
}

// poolFor is the pool that serves a rounded size on a shard's stream: the private one that is asked for, or the one that
// is current. The caller holds mu and the shard.
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

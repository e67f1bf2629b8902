package caching

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A capture sends the requests on some streams to a private pool: while a graph is captured, or in a scope of a Pool.
type capture struct {
	id     mem.PoolID
	filter func(driver.Stream) bool // nil: all streams
	pool   *privatePool
	scope  *scope // nil: of BeginAllocateToPool
}

// A scope is one Begin of a Pool.
type scope struct{ of *Pool }

// BeginAllocateToPool sends the requests on streams for which filter returns true to the private pool id, which is made
// if it does not exist, until EndAllocateToPool. Of several, the last begun wins. Until then nothing is given back to
// the driver but what released pools hold, and frees that wait for other streams go on waiting. Each call must be
// matched by a ReleasePool when whatever uses the pool's memory (a graph, say) is gone. The filter runs under locks. The
// id may be a Pool's: the graph shares its memory then, and keeps it from being given back.
func (a *Allocator) BeginAllocateToPool(id mem.PoolID, filter func(driver.Stream) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == (mem.PoolID{}) {
		panic("caching: BeginAllocateToPool of the default pool")
	}
	if slices.ContainsFunc(a.captures, func(c capture) bool { return c.id == id && c.scope == nil }) {
		panic(fmt.Sprintf("caching: BeginAllocateToPool: requests go to pool %v already", id))
	}
	pp := a.private[id]
	if pp == nil {
		pp = newPrivatePool(id)
		a.private[id] = pp
	}
	pp.useCount++
	a.captures = append(a.captures, capture{id: id, filter: filter, pool: pp})
	a.attend(attendCapture, true)
}

// EndAllocateToPool ends what BeginAllocateToPool began. It panics if nothing was begun.
func (a *Allocator) EndAllocateToPool(id mem.PoolID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.endCapture(func(c capture) bool { return c.id == id && c.scope == nil }) {
		panic(fmt.Sprintf("caching: EndAllocateToPool: no requests go to pool %v", id))
	}
}

// endCapture removes the capture that is meant, and returns false if there is none. The caller holds mu.
func (a *Allocator) endCapture(meant func(capture) bool) bool {
	i := slices.IndexFunc(a.captures, meant)
	if i < 0 {
		return false
	}
	a.captures = slices.Delete(a.captures, i, i+1)
	a.attend(attendCapture, len(a.captures) > 0)
	return true
}

// capturing reports whether a graph may be being captured: then the device must be neither waited for nor asked to take
// memory back. Scopes of Pools are no reason. The caller holds mu.
func (a *Allocator) capturing() bool {
	return slices.ContainsFunc(a.captures, func(c capture) bool { return c.scope == nil })
}

// Begin sends the allocator's requests on streams for which filter returns true, or on all if it is nil, to the pool,
// until end is called, once. It is what torch.cuda.use_mem_pool does, and there are no threads here to tell apart: a
// goroutine that has streams of its own filters on them, or asks the Pool itself, which needs no scope. Without a filter
// the requests of all goroutines go to the pool. Scopes nest: of several that match, the last begun wins. They may end in
// any order, and a pool may have several at once. A graph is captured under BeginAllocateToPool with the Pool's ID, which
// also keeps what the graph uses from being given back: a scope does not.
//
// As in PyTorch, as long as there is any scope, Allocator.EmptyCache gives back only what released pools hold, frees
// that wait for other streams go on waiting, and every request but a Pool's takes Allocator.mu. As in later versions of
// PyTorch, a request that finds no room has all that is free given back even so, unless a graph is being captured. The
// filter runs under locks. Begin panics if the pool was closed.
func (p *Pool) Begin(filter func(driver.Stream) bool) (end func()) {
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.pool.closed {
		panic(fmt.Sprintf("caching: Begin of pool %v, which was closed", p.pool.id))
	}
	p.pool.useCount++
	p.pool.own++
	s := &scope{p}
	a.captures = append(a.captures, capture{id: p.pool.id, filter: filter, pool: p.pool, scope: s})
	a.attend(attendCapture, true)
	return s.end
}

func (s *scope) end() {
	a, pp := s.of.a, s.of.pool
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.endCapture(func(c capture) bool { return c.scope == s }) {
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
func (a *Allocator) poolFor(sh *shard, rounded int64, to *privatePool) (*pool, error) {
	if to == nil {
		for _, c := range slices.Backward(a.captures) {
			if c.filter == nil || c.filter(sh.stream) {
				return c.pool.poolIn(sh, classOf(rounded))
			}
		}
		return sh.defaultPool(rounded), nil
	}
	if to.closed {
		return nil, ErrPoolClosed
	}
	return to.poolIn(sh, classOf(rounded))
}

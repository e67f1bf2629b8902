package caching

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A privatePool serves the requests of a captured graph, or of a user who wants memory apart. Its segments serve no
// other request; they are given back once it has been released as often as it was begun.
type privatePool struct {
	id       mem.PoolID
	families [2]*family // small and large
	useCount int
}

// A capture sends the requests on some streams to a private pool.
type capture struct {
	id     mem.PoolID
	filter func(driver.Stream) bool
}

// BeginAllocateToPool sends the requests on streams for which filter returns true to the private pool id, which is made
// if it does not exist, until EndAllocateToPool. Of several, the last begun wins. Until then nothing is given back to
// the driver but what released pools hold, and frees that wait for other streams go on waiting. Each call must be
// matched by a ReleasePool when whatever uses the pool's memory (a graph, say) is gone. The filter runs under locks.
func (a *Allocator) BeginAllocateToPool(id mem.PoolID, filter func(driver.Stream) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == (mem.PoolID{}) {
		panic("caching: BeginAllocateToPool of the default pool")
	}
	if slices.ContainsFunc(a.captures, func(c capture) bool { return c.id == id }) {
		panic(fmt.Sprintf("caching: BeginAllocateToPool: requests go to pool %v already", id))
	}
	pp := a.private[id]
	if pp == nil {
		pp = &privatePool{id: id, families: [2]*family{{id: id, class: classSmall}, {id: id, class: classLarge}}}
		a.private[id] = pp
	}
	pp.useCount++
	a.captures = append(a.captures, capture{id, filter})
	a.attend(attendCapture, true)
}

// EndAllocateToPool ends what BeginAllocateToPool began. It panics if nothing was begun.
func (a *Allocator) EndAllocateToPool(id mem.PoolID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.captures, func(c capture) bool { return c.id == id })
	if i < 0 {
		panic(fmt.Sprintf("caching: EndAllocateToPool: no requests go to pool %v", id))
	}
	a.captures = slices.Delete(a.captures, i, i+1)
	a.attend(attendCapture, len(a.captures) > 0)
}

// ReleasePool says that one user of the pool is gone. After the last, EmptyCache and requests that find no room give
// its free segments back; blocks that are still live stay valid until they are freed. It panics if the pool does not
// exist or has no users, or if the last user goes while requests still go to the pool.
func (a *Allocator) ReleasePool(id mem.PoolID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pp := a.private[id]
	if pp == nil || pp.useCount == 0 {
		panic(fmt.Sprintf("caching: ReleasePool: pool %v has no users", id))
	}
	if pp.useCount == 1 && slices.ContainsFunc(a.captures, func(c capture) bool { return c.id == id }) {
		panic(fmt.Sprintf("caching: ReleasePool: requests still go to pool %v: call EndAllocateToPool first", id))
	}
	pp.useCount--
}

// NeverSplit makes a private pool hand out whole free blocks only, however small the request: what PyTorch's MemPool does
// with no_split. It panics if the pool does not exist.
func (a *Allocator) NeverSplit(id mem.PoolID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pp := a.private[id]
	if pp == nil {
		panic(fmt.Sprintf("caching: NeverSplit: there is no pool %v", id))
	}
	a.lockShards()
	defer a.unlockShards()
	for _, f := range pp.families {
		f.noSplit = true
		for _, p := range a.poolsOf(f) {
			p.noSplit = true
		}
	}
}

// poolFor is the pool that serves a rounded size on a shard's stream. The caller holds mu and the shard.
func (a *Allocator) poolFor(sh *shard, rounded int64) *pool {
	for _, c := range slices.Backward(a.captures) {
		if !c.filter(sh.stream) {
			continue
		}
		f := a.private[c.id].families[1]
		if rounded <= smallSize {
			f = a.private[c.id].families[0]
		}
		for _, p := range sh.pools {
			if p != nil && p.family == f {
				return p
			}
		}
		return sh.addPool(f)
	}
	return sh.defaultPool(rounded)
}

// releaseFreeablePools gives back what released pools hold, and forgets those that hold nothing. The caller holds mu
// and every shard.
func (a *Allocator) releaseFreeablePools() error {
	var failures []error
	for _, id := range a.privateIDs() {
		pp := a.private[id]
		if pp.useCount > 0 {
			continue
		}
		failures = append(failures, a.releaseFamily(pp.families[0]), a.releaseFamily(pp.families[1]))
		if !a.holds(pp) {
			delete(a.private, id)
			for _, sh := range a.live {
				for i, p := range sh.pools {
					if p != nil && (p.family == pp.families[0] || p.family == pp.families[1]) {
						sh.pools[i] = nil
					}
				}
			}
		}
	}
	return errors.Join(failures...)
}

// holds reports whether a private pool has memory or addresses.
func (a *Allocator) holds(pp *privatePool) bool {
	for _, f := range pp.families {
		if f.reserved > 0 || slices.ContainsFunc(a.poolsOf(f), func(p *pool) bool { return len(p.unmapped) > 0 }) {
			return true
		}
	}
	return false
}

// privateIDs are the private pools' IDs in ascending order: maps have none.
func (a *Allocator) privateIDs() []mem.PoolID {
	ids := make([]mem.PoolID, 0, len(a.private))
	for id := range a.private {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(x, y mem.PoolID) int { return slices.Compare(x[:], y[:]) })
	return ids
}

package caching

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A privatePool serves the requests of captured graphs, or of one user. Its segments serve no other request, unless it
// lends blocks (borrow.go). They are released once it has no users.
type privatePool struct {
	id         mem.PoolID
	blockPools [2]*blockPool // small and large
	// users: an open Pool, its scopes, and callers of BeginAllocateToPool; guarded by Allocator.mu
	useCount int
	// users that are the Pool or its scopes; the others are graphs, which write to free memory too
	own      int
	requests int  // on the slow path: the pool outlives them
	closed   bool // the Pool was closed; changes only with mu and every shard locked

	// by stream ID; grows under mu; entries are nil until the pool serves the stream
	byShard atomic.Pointer[[]*shardPools]

	source   mem.Allocator                // where segments come from; nil: the device
	segments map[driver.Pointer]mem.Block // the source's blocks, by address; nil if there is no source
	reserved mem.StatArray                // bytes of segments and mapped pages

	// by tag, of blocks that the last Restore made live again: the tags of their first allocations
	firstTags map[uint64]uint64
}

// inGraphs reports whether graphs use the pool; their launches write to its free memory too. The caller holds mu.
func (pp *privatePool) inGraphs() bool { return pp.useCount > pp.own }

// shardPools are the pools of a private pool in one shard.
type shardPools struct {
	sh    *shard
	pools [2]*shardPool // small and large; nil until used; guarded by the shard's lock
}

func newPrivatePool(id mem.PoolID) *privatePool {
	pp := &privatePool{id: id}
	for class := range pp.blockPools {
		pp.blockPools[class] = &blockPool{id: id, owner: pp, class: class}
	}
	return pp
}

// inShard returns the pool's shardPools in a shard, or nil. It needs no lock.
func (pp *privatePool) inShard(shard int) *shardPools {
	if homes := pp.byShard.Load(); homes != nil && shard < len(*homes) {
		return (*homes)[shard]
	}
	return nil
}

// errTooManyPools is the error of a request that would need more pools than a shard has room for.
var errTooManyPools = fmt.Errorf("caching: requests on one stream go to more than %d private pools: close some",
	maxPools/2)

// poolIn returns the shardPool of a class in a shard, and makes it if it does not exist. The caller holds mu and the
// shard.
func (pp *privatePool) poolIn(sh *shard, class int) (*shardPool, error) {
	h := pp.inShard(sh.index)
	if h != nil && h.pools[class] != nil {
		return h.pools[class], nil
	}
	if len(sh.pools) == maxPools && len(sh.vacant) == 0 {
		return nil, errTooManyPools
	}
	if h == nil {
		var old []*shardPools
		if homes := pp.byShard.Load(); homes != nil {
			old = *homes
		}
		grown := make([]*shardPools, max(sh.index+1, len(old)))
		copy(grown, old)
		h = &shardPools{sh: sh}
		grown[sh.index] = h
		pp.byShard.Store(&grown)
	}
	h.pools[class] = sh.addPool(pp.blockPools[class])
	return h.pools[class], nil
}

// classOf returns the class of the pool that serves a rounded size.
func classOf(rounded int64) int {
	if rounded <= smallSize {
		return classSmall
	}
	return classLarge
}

// addReserved and subReserved count the reserved bytes of a private pool.
func (f *blockPool) addReserved(n int64) {
	if f.owner != nil {
		f.owner.reserved.All.Increase(n)
		f.owner.ofClass(f.class).Increase(n)
	}
}

func (f *blockPool) subReserved(n int64) {
	if f.owner != nil {
		f.owner.reserved.All.Decrease(n)
		f.owner.ofClass(f.class).Decrease(n)
	}
}

func (pp *privatePool) ofClass(class int) *mem.Stat {
	if class == classSmall {
		return &pp.reserved.SmallPool
	}
	return &pp.reserved.LargePool
}

func (pp *privatePool) resetPeaks() {
	for _, s := range []*mem.Stat{&pp.reserved.All, &pp.reserved.SmallPool, &pp.reserved.LargePool} {
		s.Peak = s.Current
	}
}

func (pp *privatePool) resetAccumulated() {
	for _, s := range []*mem.Stat{&pp.reserved.All, &pp.reserved.SmallPool, &pp.reserved.LargePool} {
		s.Allocated, s.Freed = 0, 0
	}
}

// ReservedByPrivatePools returns the bytes that each private pool has in segments and mapped pages:
// reserved_bytes_by_private_pools of torch.cuda.memory_stats(). Pools that were removed are not included.
func (a *Allocator) ReservedByPrivatePools() map[mem.PoolID]mem.StatArray {
	a.mu.Lock()
	defer a.mu.Unlock()
	reserved := make(map[mem.PoolID]mem.StatArray, len(a.private))
	for id, pp := range a.private {
		reserved[id] = pp.reserved
	}
	return reserved
}

// ReleasePool ends one use of a pool by BeginAllocateToPool. After the last, EmptyCache and requests that find no room
// release its free segments; live blocks stay valid until they are freed. It panics if the pool does not exist or has
// no users, or if the last user leaves while requests still go to the pool.
func (a *Allocator) ReleasePool(id mem.PoolID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pp := a.private[id]
	if pp == nil || !pp.inGraphs() {
		panic(fmt.Sprintf("caching: ReleasePool: pool %v has no users", id))
	}
	if pp.useCount-pp.own == 1 && a.scopes.Graph(pp) != nil {
		panic(fmt.Sprintf("caching: ReleasePool: requests still go to pool %v: call EndAllocateToPool first", id))
	}
	pp.useCount--
}

// NeverSplit makes a private pool allocate whole free blocks only, however small the request: PoolOptions.NoSplit, for
// pools made by BeginAllocateToPool. It panics if the pool does not exist.
func (a *Allocator) NeverSplit(id mem.PoolID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pp := a.private[id]
	if pp == nil {
		panic(fmt.Sprintf("caching: NeverSplit: there is no pool %v", id))
	}
	a.lockShards()
	defer a.unlockShards()
	a.neverSplit(pp)
}

// neverSplit sets noSplit in a pool and its shardPools. The caller holds mu and every shard.
func (a *Allocator) neverSplit(pp *privatePool) {
	for _, f := range pp.blockPools {
		f.noSplit = true
		for _, p := range a.poolsOf(f) {
			p.noSplit = true
		}
	}
}

// CheckPoolLive returns nil if the live blocks of a private pool are exactly those at the given addresses, and
// otherwise an error that names the difference. The order of the addresses does not matter, and one may be given twice.
// Freed blocks are not live, even if they wait for other streams. It is PyTorch's checkPoolLiveAllocations. Its cost
// grows with the number of blocks on the pool's streams.
func (a *Allocator) CheckPoolLive(id mem.PoolID, live []driver.Pointer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	pp := a.private[id]
	if pp == nil {
		return fmt.Errorf("caching: CheckPoolLive: there is no private pool %v", id)
	}
	a.lockShards()
	defer a.unlockShards()
	expected := slices.Clone(live)
	slices.Sort(expected)
	expected = slices.Compact(expected)
	found := make([]bool, len(expected))
	var failures []error
	for _, sh := range a.live {
		if pp.inShard(sh.index) == nil {
			continue
		}
		for ref := range blockRef(sh.slab.n) {
			blk := sh.slab.at(ref)
			if blk.state != stateLive || sh.pools[blk.pool].blockPool.owner != pp {
				continue
			}
			if i, ok := slices.BinarySearch(expected, blk.ptr); ok {
				found[i] = true
			} else {
				failures = append(failures, fmt.Errorf("caching: the block of %d bytes at %#x of pool %v is live, "+
					"and not among those that should be",
					blk.size(), blk.ptr, id))
			}
		}
	}
	for i, ptr := range expected {
		if !found[i] {
			failures = append(failures, fmt.Errorf("caching: no live block of pool %v begins at %#x", id, ptr))
		}
	}
	return errors.Join(failures...)
}

// releaseFreeablePools releases the free memory of released pools, and removes those that are empty. The caller holds
// mu and every shard.
func (a *Allocator) releaseFreeablePools() error {
	var failures []error
	for _, id := range a.privateIDs() {
		if pp := a.private[id]; pp.useCount == 0 {
			failures = append(failures, a.releaseAll(pp))
		}
	}
	return errors.Join(failures...)
}

// releaseAll releases the free memory of a private pool, and removes the pool if it has no users and is empty. The
// caller holds mu and every shard.
func (a *Allocator) releaseAll(pp *privatePool) error {
	err := errors.Join(a.releaseBlockPool(pp.blockPools[0]), a.releaseBlockPool(pp.blockPools[1]))
	a.forget(pp)
	return err
}

// forget removes a private pool that has no users and is empty. If it was removed before, its ID may belong to another
// pool by now. The caller holds mu and every shard.
func (a *Allocator) forget(pp *privatePool) {
	if pp.useCount > 0 || a.holds(pp) || a.private[pp.id] != pp {
		return
	}
	delete(a.private, pp.id)
	for _, f := range pp.blockPools {
		for _, p := range a.poolsOf(f) {
			p.sh.dropPool(p)
		}
	}
	pp.byShard.Store(nil)
}

// holds reports whether a private pool has memory or addresses, or a request is about to get it some.
func (a *Allocator) holds(pp *privatePool) bool {
	for _, f := range pp.blockPools {
		if f.reserved > 0 || slices.ContainsFunc(a.poolsOf(f), func(p *shardPool) bool { return len(p.unmapped) > 0 }) {
			return true
		}
	}
	return pp.requests > 0
}

// privateIDs returns the private pools' IDs in ascending order.
func (a *Allocator) privateIDs() []mem.PoolID {
	ids := make([]mem.PoolID, 0, len(a.private))
	for id := range a.private {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(x, y mem.PoolID) int { return slices.Compare(x[:], y[:]) })
	return ids
}

package caching

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Pool is memory of its own within an allocator: segments that serve no other requests, perhaps from another source.
// It is PyTorch's torch.cuda.MemPool. Requests go to it while one of its scopes is open (Begin, Use), and when they
// are made to the Pool itself, which is an allocator too. It is safe for concurrent use.
//
// Its free segments are released by its EmptyCache, by Close, and when a request to it finds no room.
// Allocator.EmptyCache and requests to other pools do not release them. As long as captured graphs use the pool
// (BeginAllocateToPool with its ID), none of its memory is released.
//
// Interfaces that mem.Find finds beyond Allocator, Trimmer and Snapshotter are those of the whole allocator.
type Pool struct {
	a    *Allocator
	pool *privatePool
}

// PoolOptions are the options of a Pool.
type PoolOptions struct {
	// Upstream is the source of segments, each requested on the stream that it is for; nil is the device. As in
	// PyTorch, its segments count as reserved and against the limit like those of the device. They are never
	// expandable. Its blocks must be aligned as a device's are, and must not be moved. An error that matches
	// mem.ErrNoMemory means that it has no room. It is called without locks, also during captures. It may be another
	// pool, or the default pool, of the same allocator, if no scope redirects its own requests; the other pool then
	// counts the segments as live until this pool is closed. Its Free must not call the allocator's Alloc, EmptyCache
	// or Close.
	Upstream mem.Allocator
	// UseOnOOM lets requests to the default pool for which there is no memory left take free blocks of this pool on
	// the same stream. The blocks return to the pool when they are freed. While captured graphs use the pool it lends
	// no blocks: their launches write to its free memory.
	UseOnOOM bool
	// NoSplit makes the pool allocate whole free blocks only, however small the request.
	NoSplit bool
}

// ErrPoolClosed is returned by requests to a closed Pool.
var ErrPoolClosed = errors.New("caching: the pool is closed")

// NewPool returns a pool without memory. Close it when it is no longer needed.
func (a *Allocator) NewPool(o PoolOptions) *Pool {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := mem.NewPoolID()
	for a.private[id] != nil { // the ID was chosen for BeginAllocateToPool
		id = mem.NewPoolID()
	}
	pp := newPrivatePool(id)
	pp.useCount, pp.own = 1, 1
	if o.Upstream != nil {
		pp.source, pp.segments = o.Upstream, map[driver.Pointer]mem.Block{}
	}
	if o.NoSplit {
		a.neverSplit(pp)
	}
	if o.UseOnOOM {
		a.overflow = append(a.overflow, pp)
	}
	a.private[id] = pp
	return &Pool{a, pp}
}

// ID returns the pool's ID, (0, n). Every pool of the process has a larger n than the pools made before it.
func (p *Pool) ID() mem.PoolID { return p.pool.id }

// UseCount returns the number of users that keep the pool: the Pool itself until it is closed, each open scope, and
// each BeginAllocateToPool with its ID without a matching ReleasePool.
func (p *Pool) UseCount() int {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.pool.useCount
}

// Alloc is Allocator.Alloc from this pool. It fails with ErrPoolClosed after Close. Once the pool has served a stream,
// warm requests on that stream take the stream's lock only.
func (p *Pool) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	if size <= 0 || s == nil {
		return p.a.Alloc(s, size)
	}
	if b, ok := p.allocWarm(s, size); ok {
		return b, nil
	}
	return p.a.allocSlow(s, size, requestOptions{to: p.pool})
}

// allocWarm is Allocator.allocWarm from this pool.
func (p *Pool) allocWarm(s driver.Stream, size int64) (mem.Block, bool) {
	a, pp := p.a, p.pool
	if h := pp.inShard(int(s.ID())); h != nil {
		sh := h.sh
		sh.mu.Lock()
		// Scopes and captures do not concern this pool's own requests. Frees that wait have a reason of their own.
		if a.slowPath.Load()&^slowCapture == 0 && sh.stream == s && size < maxRequest && !pp.closed {
			rounded := a.cfg.roundSize(size)
			expandable := a.cfg.ExpandableSegments && pp.source == nil
			if from := h.pools[classOf(rounded)]; from != nil {
				if ref, blk := from.find(rounded, expandable); ref != 0 {
					cut := a.cfg.shouldSplit(from, blk.size(), rounded, expandable)
					b := from.allocateBlock(ref, blk, rounded, size, cut)
					over := sh.stats.over
					sh.verify()
					sh.mu.Unlock()
					if over {
						a.fold()
					}
					return b, true
				}
			}
		}
		sh.mu.Unlock()
	}
	return mem.Block{}, false
}

// AllocWith is Alloc with options: see Allocator.AllocWith.
func (p *Pool) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	size, o = o.Rounded(size)
	if size <= 0 || s == nil || !o.NoRetry && !o.Tentative {
		return p.Alloc(s, size)
	}
	if !o.NoRetry {
		if b, ok := p.allocWarm(s, size); ok {
			return b, nil
		}
	}
	return p.a.allocSlow(s, size, requestOptions{to: p.pool, noRetry: o.NoRetry, tentative: o.Tentative})
}

// Free frees a block of this pool, also after Close, and also a block that the default pool has borrowed from it.
// Allocator.Free accepts all these blocks too. It panics as Allocator.Free does, and if the block belongs to another
// pool.
func (p *Pool) Free(b mem.Block, used ...driver.Stream) {
	a := p.a
	if b.Tag == 0 {
		a.Free(b)
		return
	}
	index, generation, ref := splitTag(b.Tag)
	shards := *a.shards.Load()
	if index >= len(shards) || shards[index] == nil {
		a.freeUncached(b)
		return
	}
	sh := shards[index]
	sh.mu.Lock()
	blk := sh.lookup(ref, generation, b)
	if blk == nil {
		sh.mu.Unlock()
		a.freeUncached(b)
		return
	}
	from := sh.pools[blk.pool]
	if f := from.blockPool; f.owner != p.pool {
		sh.mu.Unlock()
		panic(fmt.Sprintf("caching: Free through pool %v of a block of pool %v (address %#x, %d bytes)", p.pool.id,
			f.id, b.Ptr, b.Size))
	}
	if len(used) > 0 || a.slowPath.Load()&slowFrees != 0 {
		sh.mu.Unlock()
		a.freeSlow(b, used)
		return
	}
	from.freeRequested(blk)
	from.freeBlock(ref, blk)
	over := sh.stats.over
	sh.verify()
	sh.mu.Unlock()
	if over {
		a.fold()
	}
}

// Unwrap returns the allocator that the pool is part of.
func (p *Pool) Unwrap() mem.Allocator { return p.a }

// Snapshot describes the segments of the pool, in address order: see Allocator.Snapshot.
func (p *Pool) Snapshot() []mem.SegmentInfo { return p.a.snapshot(p.pool) }

// Reserved returns the bytes of the pool's segments and mapped pages.
func (p *Pool) Reserved() mem.StatArray {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.pool.reserved
}

// EmptyCache waits for pending frees in the pool, if there are any, and releases the pool's free segments and pages to
// their source. It does nothing while a graph is being captured or captured graphs use the pool: they use its free
// memory. The error lists the memory that the driver refused, which stays cached.
func (p *Pool) EmptyCache() error {
	a := p.a
	a.mu.Lock()
	defer a.unlockAndReturn()
	switch {
	case a.closed:
		return ErrClosed
	case a.capturing() || p.pool.inGraphs():
		return nil
	}
	return a.emptyPool(p.pool)
}

// Close ends the use of the pool by its owner. It releases the pool's free memory, unless a scope is open or captured
// graphs use the pool; then Allocator.EmptyCache releases it later. Live blocks stay valid until they are freed, and
// keep the Upstream in use until then; their segments are released in the same way. Requests to a closed pool fail;
// requests through its open scopes do not. The error lists the memory that the driver refused, or names a stream that
// could not be waited for; Allocator.EmptyCache tries again. Closing a closed pool is a no-op.
func (p *Pool) Close() error {
	a, pp := p.a, p.pool
	a.mu.Lock()
	defer a.unlockAndReturn()
	if pp.closed {
		return nil
	}
	a.lockShards()
	pp.closed = true
	a.unlockShards()
	a.overflow = slices.DeleteFunc(a.overflow, func(other *privatePool) bool { return other == pp })
	pp.useCount--
	pp.own--
	if pp.useCount > 0 {
		return nil
	}
	return a.emptyPool(pp)
}

// emptyPool releases the free memory of a private pool that no graph uses. The caller holds mu.
func (a *Allocator) emptyPool(pp *privatePool) error {
	a.lockShards()
	waits := a.waits(pp)
	a.unlockShards()
	var err error
	if waits && !a.capturing() {
		err = a.waitPending()
	}
	a.lockShards()
	defer a.unlockShards()
	a.foldPeaks()
	return errors.Join(err, a.releaseAll(pp))
}

// waits reports whether a freed block of a private pool waits for other streams. The caller holds every lock.
func (a *Allocator) waits(pp *privatePool) bool {
	in := func(sh *shard, ref blockRef) bool {
		return sh.pools[sh.slab.at(ref).pool].blockPool.owner == pp
	}
	return slices.ContainsFunc(a.deferred, func(d *deferredFree) bool { return in(d.sh, d.ref) }) ||
		slices.ContainsFunc(a.pending, func(l *waitList) bool {
			return slices.ContainsFunc(l.waits, func(w wait) bool { return in(w.sh, w.ref) })
		})
}

// releaseOwn releases the free memory of the pool whose request found no room, unless graphs use the pool. PyTorch
// releases nothing of a pool in use. The caller holds mu and r's shard.
func (a *Allocator) releaseOwn(r *request) error {
	pp := r.pool.blockPool.owner
	if pp == nil || pp.inGraphs() || a.cfg.PyTorchExact {
		return nil
	}
	a.lockShards()
	defer a.unlockShards()
	return a.releaseAll(pp)
}

var _ interface {
	mem.OptionsAllocator
	mem.Trimmer
	mem.Snapshotter
	mem.Wrapper
	fmt.Stringer
} = (*Pool)(nil)

// String returns the pool's name: "pool (0, 3)".
func (p *Pool) String() string { return "pool " + p.pool.id.String() }

package caching

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Pool is memory apart from the rest of an allocator's: segments that serve no other requests, perhaps from another
// source. It is PyTorch's torch.cuda.MemPool. Requests go to it while one of its scopes is open (Begin, Use), or, whatever
// is current, when they are made to the Pool itself, which is an allocator too. Safe for concurrent use.
//
// Its free segments are given back by its EmptyCache, by Close, and when a request to it finds no room, but not by
// Allocator.EmptyCache, nor for requests to other pools. As long as captured graphs use the pool (BeginAllocateToPool with
// its ID) nothing of it is given back.
//
// What mem.Find finds beyond an Allocator, a Trimmer and a Snapshotter is the whole allocator's.
type Pool struct {
	a    *Allocator
	pool *privatePool
}

// PoolOptions say what is special about a Pool.
type PoolOptions struct {
	// Upstream is where segments come from, each on the stream that it is for; nil is the device. What it gives counts as
	// reserved, and against the limit, like what the device gives, as in PyTorch; it is never expandable. Its blocks are
	// as aligned as a device's, and are not moved. An error that matches mem.ErrNoMemory is taken for a full device. It
	// is called without locks, and is not told of captures, during which it may be asked. It may be another pool, or the
	// default pool, of the same allocator, if no scope catches its own requests: to that, what it gives is live until
	// the pool is closed. But its Free must not call the allocator's Alloc, EmptyCache or Close.
	Upstream mem.Allocator
	// UseOnOOM lets requests to the default pool for which there is no memory left take free blocks of this pool that were
	// on the same stream. They go back to it when they are freed. While captured graphs use the pool it lends nothing:
	// they write to what is free in it.
	UseOnOOM bool
	// NoSplit makes the pool allocate whole free blocks only, however small the request.
	NoSplit bool
}

// ErrPoolClosed is returned by requests to a closed Pool.
var ErrPoolClosed = errors.New("caching: the pool is closed")

// NewPool makes a pool, which asks for nothing yet. Close it when it is no longer needed.
func (a *Allocator) NewPool(o PoolOptions) *Pool {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := mem.NewPoolID()
	for a.private[id] != nil { // it was chosen for BeginAllocateToPool
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

// ID is the pool's, (0, n): n rises from pool to pool of the process.
func (p *Pool) ID() mem.PoolID { return p.pool.id }

// UseCount is how many keep the pool: the Pool itself until it is closed, each open scope, and each
// BeginAllocateToPool with its ID that was not matched by a ReleasePool.
func (p *Pool) UseCount() int {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.pool.useCount
}

// Alloc is Allocator.Alloc from this pool. It fails with ErrPoolClosed after Close. Once it has served a stream, warm
// requests on it take that stream's lock alone.
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
		// Scopes and captures do not matter here, but for frees that wait, which ask for attention themselves.
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

// AllocWith is Alloc with wishes: see Allocator.AllocWith.
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

// Free takes back a block of this pool, also after Close. A block that the default pool has borrowed from it is one;
// Allocator.Free takes all of them back too. It panics as Allocator.Free does, and if the block is of another pool.
func (p *Pool) Free(b mem.Block, used ...driver.Stream) {
	a := p.a
	if b.Tag == 0 {
		a.Free(b)
		return
	}
	index, gen, ref := splitTag(b.Tag)
	shards := *a.shards.Load()
	if index >= len(shards) || shards[index] == nil {
		a.freeUncached(b)
		return
	}
	sh := shards[index]
	sh.mu.Lock()
	blk := sh.lookup(ref, gen, b)
	if blk == nil {
		sh.mu.Unlock()
		a.freeUncached(b)
		return
	}
	from := sh.pools[blk.pool]
	if f := from.blockPool; f.owner != p.pool {
		sh.mu.Unlock()
		panic(fmt.Sprintf("caching: Free through pool %v of a block of pool %v (address %#x, %d bytes)", p.pool.id, f.id, b.Ptr, b.Size))
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

// Snapshot describes the segments of the pool, in the order of addresses: see Allocator.Snapshot.
func (p *Pool) Snapshot() []mem.SegmentInfo { return p.a.snapshot(p.pool) }

// Reserved is the bytes that the pool has in segments and mapped pages.
func (p *Pool) Reserved() mem.StatArray {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.pool.reserved
}

// EmptyCache waits for pending frees, if there are any in the pool, and gives the pool's free segments and pages back to
// where they came from. It does nothing while a graph is being captured, or while captured graphs use the pool: they
// use memory that is free here. The error is what the driver refused to take; that stays cached.
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

// Close says that the pool is no longer needed. What is free of it is given back, unless a scope is open or captured
// graphs use the pool: then EmptyCache of the allocator gives it back later. Blocks that are live stay valid until they
// are freed, and their segments are then given back in the same way; until then they keep the Upstream. Requests to a
// closed pool fail, those of its open scopes do not. The error is what the driver refused to take, or a stream that could
// not be waited for; the allocator's EmptyCache tries again, and to close again does nothing.
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

// emptyPool gives back what a private pool that no graph uses has free. The caller holds mu.
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

// releaseOwn gives back what the pool of a request that found no room has free itself, unless graphs use it. PyTorch
// gives back nothing of a pool that is in use. The caller holds mu and r's shard.
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

// String names the pool: "pool (0, 3)".
func (p *Pool) String() string { return fmt.Sprintf("pool (%d, %d)", p.pool.id[0], p.pool.id[1]) }

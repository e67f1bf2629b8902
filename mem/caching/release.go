package caching

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// EmptyCache waits for pending frees and releases every segment, and every page, without a live block. While requests
// go to private pools it releases only pools that were released. The error lists the memory that the driver refused,
// which stays cached.
func (a *Allocator) EmptyCache() error {
	a.mu.Lock()
	defer a.unlockAndReturn()
	if a.closed {
		return ErrClosed
	}
	returned := a.returnUncached()
	if len(a.scopes) > 0 {
		return errors.Join(returned, a.releaseFreeable())
	}
	return errors.Join(returned, a.waitPending(), a.releaseCached())
}

// releaseCached releases all free segments of the default pool and of released private pools: large blocks first, then
// by stream, small sizes first. The caller holds mu and perhaps one shard.
func (a *Allocator) releaseCached() error {
	a.lockShards()
	defer a.unlockShards()
	a.foldPeaks()
	failures := []error{
		a.releaseBlockPool(a.default_[1]),
		a.releaseBlockPool(a.default_[0]),
		a.releaseFreeablePools(),
		a.dropOrphans(),
	}
	return errors.Join(failures...)
}

func (a *Allocator) releaseFreeable() error {
	a.lockShards()
	defer a.unlockShards()
	return a.releaseFreeablePools()
}

// releaseBlockPool releases the unsplit free blocks of a blockPool, then unmaps the whole pages inside free blocks of
// its expandable segments.
func (a *Allocator) releaseBlockPool(f *blockPool) error {
	var failures []error
	type span struct {
		p   *shardPool
		ref blockRef
	}
	var toUnmap []span
	for _, p := range a.poolsOf(f) {
		var whole []blockRef
		for c := p.free.first(); c.ok(); c = p.free.next(c) {
			ref := c.entry().ref()
			if blk := p.sh.slab.at(ref); blk.expandable {
				toUnmap = append(toUnmap, span{p, ref})
			} else if !blk.isSplit() {
				whole = append(whole, ref)
			}
		}
		for _, ref := range whole {
			failures = append(failures, a.releaseSegment(p, ref))
		}
	}
	for _, s := range toUnmap {
		failures = append(failures, a.unmapSpan(s.p, s.ref))
	}
	for _, p := range a.poolsOf(f) {
		failures = append(failures, a.releaseReservations(p))
		p.free.dropSpare()
		p.sh.verify()
	}
	return errors.Join(failures...)
}

// poolsOf returns the shardPools of a blockPool, by stream.
func (a *Allocator) poolsOf(f *blockPool) []*shardPool {
	var pools []*shardPool
	for _, sh := range a.live {
		if f.owner == nil {
			pools = append(pools, sh.pools[f.class])
		} else if h := f.owner.inShard(sh.index); h != nil && h.pools[f.class] != nil {
			pools = append(pools, h.pools[f.class])
		}
	}
	return pools
}

// releaseSegment returns a segment that is one free block to its source. If the driver fails, it stays.
func (a *Allocator) releaseSegment(p *shardPool, ref blockRef) error {
	blk := p.sh.slab.at(ref)
	if p.upstream() != nil {
		a.queueReturn(p, blk.ptr)
	} else if err := a.dev.Free(blk.ptr); err != nil {
		return fmt.Errorf("caching: give %d bytes at %#x back: %w", blk.size(), blk.ptr, err)
	}
	a.totals.numDeviceFree++
	a.observe(mem.ActionSegmentFree, p, blk.ptr, blk.size())
	a.reserved -= blk.size()
	p.blockPool.reserved -= blk.size()
	p.blockPool.subReserved(blk.size())
	p.sh.stats.markChanged()
	p.stats.sub(segment, 1)
	p.stats.sub(reservedBytes, blk.size())
	if blk.size() >= a.cfg.MaxSplitSize {
		p.stats.sub(oversizeSegments, 1)
	}
	p.free.remove(blk.size(), uint64(blk.ptr))
	p.sh.slab.freeBlock(ref)
	return nil
}

// releaseOversize applies if a split limit is set. It releases one oversize block that is large enough, or else as
// many as needed, the largest first, and reports whether that makes room for r. Free memory of a pool that captured
// graphs use stays: their launches write to it.
func (a *Allocator) releaseOversize(r *request) (bool, error) {
	if a.cfg.MaxSplitSize == Unlimited {
		return false, nil
	}
	if owner := r.pool.blockPool.owner; owner != nil && owner.inGraphs() && !a.cfg.PyTorchExact {
		return false, nil
	}
	p := r.pool
	a.foldFor(p.sh)
	// Blocks may have been split before the limit was set: those share their segments.
	whole := func(c cursor) bool {
		blk := p.sh.slab.at(c.entry().ref())
		return !blk.expandable && !blk.isSplit()
	}
	want := max(r.size, a.cfg.MaxSplitSize)
	p.free.insertHot()
	c := p.free.lowerBound(want)
	if c.ok() && whole(c) {
		err := a.releaseSegment(p, c.entry().ref())
		return err == nil, err
	}
	var failures []error
	var released int64
	var oversize []blockRef
	if c.ok() {
		c = p.free.prev(c)
	} else {
		c = p.free.last()
	}
	for ; c.ok() && c.entry().size() >= a.cfg.MaxSplitSize && released < want; c = p.free.prev(c) {
		if whole(c) {
			released += c.entry().size()
			oversize = append(oversize, c.entry().ref())
		}
	}
	for _, ref := range oversize {
		size := p.sh.slab.at(ref).size()
		if err := a.releaseSegment(p, ref); err != nil {
			failures = append(failures, err)
			released -= size
		}
	}
	return released >= want, errors.Join(failures...)
}

// collecting reports whether garbage collection is on: it needs a threshold and a limit.
func (a *Allocator) collecting() bool {
	return a.limit != noLimit && a.cfg.GarbageCollectionThreshold > 0
}

// collectGarbage releases unsplit blocks of the large default pool, the longest unused first, once more is reserved
// than the threshold allows. The age of a block is the number of searches since it became free. Each pass releases all
// blocks of at least average age, and passes go on until enough is released.
func (a *Allocator) collectGarbage() error {
	threshold := int64(a.cfg.GarbageCollectionThreshold * float64(a.limit))
	if a.reserved <= threshold {
		return nil
	}
	a.lockShards()
	defer a.unlockShards()
	f := a.default_[1]
	calls := f.searches.Load()
	target := a.reserved - threshold
	var totalAge, count int64
	type candidate struct {
		p   *shardPool
		ref blockRef
		age int64
	}
	var candidates []candidate
	for _, p := range a.poolsOf(f) {
		for c := p.free.first(); c.ok(); c = p.free.next(c) {
			blk := p.sh.slab.at(c.entry().ref())
			if blk.isSplit() {
				continue
			}
			age := calls - p.sh.slab.coldAt(c.entry().ref()).gcBase
			totalAge += age
			count++
			if !blk.expandable {
				candidates = append(candidates, candidate{p, c.entry().ref(), age})
			}
		}
	}
	var failures []error
	var reclaimed int64
	for freed := true; reclaimed < target && freed && count > 0; {
		freed = false
		average := float64(totalAge) / float64(count)
		rest := candidates[:0]
		for _, c := range candidates {
			if float64(c.age) < average {
				rest = append(rest, c)
				continue
			}
			size := c.p.sh.slab.at(c.ref).size()
			if err := a.releaseSegment(c.p, c.ref); err != nil {
				failures = append(failures, err)
				continue
			}
			freed = true
			reclaimed += size
			totalAge -= c.age
			count--
		}
		candidates = rest
	}
	return errors.Join(failures...)
}

// Close frees all memory and closes all pools. Live blocks are an error; then nothing is freed. Blocks that a Pool has
// as an upstream's from this same allocator count as live until that Pool is closed. Memory that the driver refused is
// an error too; Close again to try again. After a successful Close, Alloc and EmptyCache fail with ErrClosed.
func (a *Allocator) Close() error {
	a.mu.Lock()
	defer a.unlockAndReturn()
	if a.closed {
		return nil
	}
	if n := len(a.scopes); n > 0 {
		last, ends := a.scopes[n-1], "end its scope"
		if last.Graph {
			ends = "call EndAllocateToPool"
		}
		return fmt.Errorf("caching: Close while requests go to pool %v: %s first", last.Pool.id, ends)
	}
	if a.inFlight > 0 {
		return fmt.Errorf("caching: Close while a request waits for %d bytes from the driver", a.inFlight)
	}
	if n := len(a.uncached.live); n > 0 {
		return fmt.Errorf("caching: Close: %d blocks that were allocated with caching off are still live", n)
	}
	err := errors.Join(a.returnUncached(), a.waitPending())
	// From here on no request is served without mu: nothing is allocated once no block is live.
	a.lockShards()
	a.setSlowPath(slowClosed, true)
	n, _ := a.sum(active, classAll)
	live, _ := a.sum(activeBytes, classAll)
	if n > 0 {
		a.setSlowPath(slowClosed, false)
		a.unlockShards()
		return errors.Join(fmt.Errorf("caching: Close: %d blocks of %d bytes are still live; layer.NewLeakTracker "+
			"shows where they were allocated", n, live), err)
	}
	for _, pp := range a.private {
		pp.useCount, pp.own, pp.closed = 0, 0, true
	}
	a.overflow = nil
	a.unlockShards()
	err = errors.Join(err, a.releaseCached())
	a.closed = err == nil
	a.setSlowPath(slowClosed, a.closed)
	return err
}

var _ interface {
	mem.Allocator
	mem.Trimmer
	mem.Snapshotter
	mem.StatsReporter
} = (*Allocator)(nil)

// dropOrphans tries again to drop unmapped pages. The caller holds mu.
func (a *Allocator) dropOrphans() error {
	var failures []error
	var left []driver.Page
	for _, page := range a.orphans {
		if err := a.vm.Drop(page); err != nil {
			failures = append(failures, fmt.Errorf("caching: drop a page of %d bytes: %w", page.Size, err))
			left = append(left, page)
		}
	}
	a.orphans = left
	return errors.Join(failures...)
}

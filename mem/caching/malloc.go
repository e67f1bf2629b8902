package caching

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// allocSlow serves a request that allocWarm did not. Its order of attempts is PyTorch's malloc: process waiting frees;
// search; call the callbacks and search; collect garbage; ask the driver; borrow from another pool; release oversize
// blocks and ask; wait for all pending frees, search (unless PyTorchExact), release everything and ask a last time.
// Under ThrowOnOOM a request fails where the driver would be asked for more than the limit leaves.
func (a *Allocator) allocSlow(s driver.Stream, requested int64, w requestOptions) (mem.Block, error) {
	if id := s.ID(); id > maxStreams {
		panic(fmt.Sprintf("caching: stream ID %d: drivers number streams densely, and at most to %d", id, maxStreams))
	}
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return mem.Block{}, ErrClosed
	}
	if requested >= maxRequest {
		a.mu.Unlock()
		return mem.Block{}, &mem.OutOfMemory{Requested: requested, TooLarge: true}
	}
	if !a.Enabled() {
		defer a.mu.Unlock()
		if w.to != nil && w.to.closed {
			return mem.Block{}, ErrPoolClosed
		}
		return a.allocUncached(requested)
	}
	sh := a.shardOf(s)
	a.processPendingFor(sh)
	r := &request{requestOptions: w, requested: requested, size: a.cfg.roundSize(requested)}
	r.segment = a.cfg.segmentSize(r.size)
	a.lock(sh)
	err := a.pinPool(r, sh)
	ok := false
	if err == nil {
		ok, err = a.obtain(r)
		a.unpinPool(r)
	}
	if ok {
		blk := sh.slab.at(r.found)
		cut := a.cfg.shouldSplit(r.pool, blk.size(), r.size, r.expandable)
		b := r.pool.allocateBlock(r.found, blk, r.size, requested, cut)
		if r.pool.blockPool.owner != r.pinned {
			r.pool.addBorrowed(b.Tag)
		}
		a.foldFor(sh)
		sh.verify()
		a.unlock(sh)
		a.unlockAndReturn()
		return b, nil
	}
	a.foldFor(sh)
	if err != nil {
		a.unlock(sh)
		a.unlockAndReturn()
		return mem.Block{}, err
	}
	if r.tentative {
		a.unlock(sh)
		a.unlockAndReturn()
		return mem.Block{}, refusal(requested)
	}
	oom := a.outOfMemory(r)
	a.unlock(sh)
	return mem.Block{}, a.reportOutOfMemory(oom)
}

// allocSlowDefault is allocSlow without options. Passing options from Alloc would cost its warm path one hundredth of
// its time: the compiler keeps registers free for them.
//
//go:noinline
func (a *Allocator) allocSlowDefault(s driver.Stream, size int64) (mem.Block, error) {
	return a.allocSlow(s, size, requestOptions{})
}

// lock locks a shard for the holder of mu and records it in locked.
func (a *Allocator) lock(sh *shard) {
	sh.mu.Lock()
	a.locked = sh
}

func (a *Allocator) unlock(sh *shard) {
	a.locked = nil
	sh.mu.Unlock()
}

// obtain makes the attempts in order until one leaves a block in r.found. It returns an error only for failures other
// than a lack of room.
func (a *Allocator) obtain(r *request) (bool, error) {
	if a.search(r) {
		return true, nil
	}
	if len(a.lowMemory) > 0 && !r.noRetry {
		freed, err := a.runCallbacks(r)
		if err != nil {
			return false, err
		}
		if freed && a.search(r) {
			return true, nil
		}
	}
	var failures []error // of releases; reported only if the request fails
	if a.collecting() && !r.noRetry {
		if err := a.collectGarbage(); err != nil {
			failures = append(failures, err)
		}
	}
	if ok, err := a.grow(r); ok || err != nil || r.rejected {
		return ok, err
	}
	if a.borrow(r) {
		return true, nil
	}
	if r.noRetry {
		return false, nil
	}
	released, err := a.releaseOversize(r)
	if err != nil {
		failures = append(failures, err)
	}
	if released {
		if ok, err := a.growAgain(r); ok || err != nil || r.rejected {
			return ok, err
		}
	}
	if !a.capturing() {
		if err := a.waitPending(); err != nil {
			failures = append(failures, err)
		}
		if !a.cfg.PyTorchExact && a.search(r) {
			return true, nil
		}
		if err := errors.Join(a.releaseCached(), a.releaseOwn(r)); err != nil {
			failures = append(failures, err)
		}
		a.totals.numAllocRetries++
		if ok, err := a.growAgain(r); ok || err != nil {
			return ok, err
		}
	}
	r.err = errors.Join(append(failures, r.err)...)
	return false, nil
}

func (a *Allocator) search(r *request) bool {
	if a.collecting() {
		a.aged.Store(true)
		r.pool.blockPool.searches.Add(1)
	}
	r.found, _ = r.pool.find(r.size, r.expandable)
	return r.found != 0
}

// runCallbacks calls the callbacks of OnLowMemory, and reports whether one freed memory. It holds no locks during the
// calls, since callbacks call Free. Another goroutine may change anything in the meantime, so the request chooses its
// pool again.
func (a *Allocator) runCallbacks(r *request) (freed bool, err error) {
	callbacks, sh := a.lowMemory.all(), r.pool.sh
	a.unlocked(sh, func() {
		for _, callback := range callbacks {
			if callback() {
				freed = true
			}
		}
	})
	if a.closed {
		return false, ErrClosed
	}
	before := *r
	if err := a.pinPool(r, sh); err != nil {
		return false, err
	}
	a.unpinPool(&before)
	return freed, nil
}

// unlocked calls f with mu and the shard unlocked.
func (a *Allocator) unlocked(sh *shard, f func()) {
	a.unlock(sh)
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.lock(sh)
	}()
	f()
}

// grow gets memory from the driver for r. It returns false if there is no room. It checks the limit before it asks the
// driver. Under ThrowOnOOM a request over the limit is rejected for good; a request that the driver refuses is not.
func (a *Allocator) grow(r *request) (bool, error) {
	r.err, r.addresses = nil, 0
	if r.limited = a.reserved+r.segment > a.limit; r.limited {
		if r.rejected = a.cfg.ThrowOnOOM; r.rejected && !r.tentative {
			a.totals.numOOMRejections++
		}
		return false, nil
	}
	var err error
	if r.expandable {
		r.found, err = a.growExpandable(r)
	} else {
		r.found, err = a.newSegment(r)
	}
	if err == nil || r.addresses > 0 {
		return err == nil, nil
	}
	if errors.Is(err, driver.ErrNoMemory) || errors.Is(err, mem.ErrNoMemory) {
		r.err = err
		return false, nil
	}
	source := "the driver"
	if r.pool.upstream() != nil {
		source = fmt.Sprintf("the upstream of pool %v", r.pool.blockPool.id)
	}
	return false, fmt.Errorf("caching: get %d bytes from %s: %w", r.segment, source, err)
}

// newSegment gets a segment from the driver as one block.
func (a *Allocator) newSegment(r *request) (blockRef, error) {
	p := r.pool
	if r.segment >= maxBlockSize {
		return 0, &driver.Error{
			Call: "Alloc", Code: driver.ErrNoMemory,
			Detail: "a segment has to be smaller than 2 TiB",
		}
	}
	// Counted before the call: ReleaseLock and upstreams release the locks during it, and other requests must see the
	// limit's remainder and that the pool is not empty.
	a.reserved += r.segment
	a.inFlight += r.segment
	p.blockPool.reserved += r.segment
	ptr, err := a.segmentMemory(p, r.segment)
	a.inFlight -= r.segment
	if err != nil {
		a.reserved -= r.segment
		p.blockPool.reserved -= r.segment
		return 0, err
	}
	p.blockPool.addReserved(r.segment)
	ref, blk := p.sh.slab.newBlock()
	blk.init(ptr, r.segment, 0, 0, p.index)
	p.sh.stats.markChanged()
	p.stats.add(segment, 1)
	p.stats.add(reservedBytes, r.segment)
	if r.segment >= a.cfg.MaxSplitSize {
		p.stats.add(oversizeSegments, 1)
	}
	a.totals.numDeviceAlloc++
	a.observe(mem.ActionSegmentAlloc, p, ptr, r.segment)
	return ref, nil
}

// reportOutOfMemory calls the observers of an out-of-memory error and returns it. The caller holds mu, which
// reportOutOfMemory unlocks.
func (a *Allocator) reportOutOfMemory(oom *mem.OutOfMemory) error {
	observers := a.oomObservers
	if oom.Rejected {
		observers = slices.Concat(a.rejectionObservers.all(), observers)
	}
	a.unlockAndReturn()
	oom.AddProcesses(a.dev)
	for _, observer := range observers {
		observer(oom)
	}
	return oom
}

// freeSlow is Free if other streams use the block or an observer is set.
func (a *Allocator) freeSlow(b mem.Block, used []driver.Stream) {
	check.Used("caching: Free", used)
	a.mu.Lock()
	index, generation, ref := splitTag(b.Tag)
	shards := *a.shards.Load()
	if index >= len(shards) || shards[index] == nil {
		a.mu.Unlock()
		a.freeUncached(b)
		return
	}
	sh := shards[index]
	a.lock(sh)
	blk := sh.lookup(ref, generation, b)
	if blk == nil {
		a.unlock(sh)
		a.mu.Unlock()
		a.freeUncached(b)
		return
	}
	p := sh.pools[blk.pool]
	p.freeRequested(blk)
	if !a.deferFree(sh, ref, blk, used) {
		p.freeBlock(ref, blk)
	}
	a.foldFor(sh)
	sh.verify()
	a.unlock(sh)
	a.mu.Unlock()
}

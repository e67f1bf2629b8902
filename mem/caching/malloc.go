package caching

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A request is an allocation on its way through the slow path.
type request struct {
	pool       *pool
	requested  int64 // what the caller asked for
	size       int64 // rounded
	segment    int64 // what the driver would be asked for
	expandable bool
	found      blockRef // taken out of its free set
	err        error    // what the driver said last; nil for a refusal by the limit
}

// allocSlow goes through the whole order of attempts. It is PyTorch's malloc: look whether waiting frees are done;
// search; ask the callbacks and search; collect garbage; ask the driver; give back oversize blocks and ask; wait for
// all pending frees, search (not if PyTorchExact), give everything back and ask a last time.
func (a *Allocator) allocSlow(s driver.Stream, requested int64) (mem.Block, error) {
	if id := s.ID(); id > maxStreams {
		panic(fmt.Sprintf("caching: stream ID %d: drivers number streams densely, and at most to %d", id, maxStreams))
	}
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return mem.Block{}, ErrClosed
	}
	if requested >= maxRequest {
		a.totals.numOOMs++
		return mem.Block{}, a.giveUp(&mem.OutOfMemory{Requested: requested, TooLarge: true})
	}
	sh := a.shardOf(s)
	if len(a.captures) == 0 {
		a.processPending()
	}
	r := &request{requested: requested, size: a.cfg.roundSize(requested), expandable: a.cfg.ExpandableSegments}
	r.segment = a.cfg.segmentSize(r.size)
	a.lock(sh)
	r.pool = a.poolFor(sh, r.size)
	ok, err := a.obtain(r)
	if ok {
		blk := sh.slab.at(r.found)
		cut := a.cfg.shouldSplit(r.pool, blk.size(), r.size, r.expandable)
		b := r.pool.hand(r.found, blk, r.size, requested, cut)
		a.foldFor(sh)
		sh.verify()
		a.unlock(sh)
		a.mu.Unlock()
		return b, nil
	}
	a.foldFor(sh)
	if err != nil {
		a.unlock(sh)
		a.mu.Unlock()
		return mem.Block{}, err
	}
	oom := a.outOfMemory(r)
	a.unlock(sh)
	return mem.Block{}, a.giveUp(oom)
}

// lock takes a shard's lock on behalf of the holder of mu and notes it; unlock gives it back.
func (a *Allocator) lock(sh *shard) {
	sh.mu.Lock()
	a.locked = sh
}

func (a *Allocator) unlock(sh *shard) {
	a.locked = nil
	sh.mu.Unlock()
}

// obtain makes the attempts in their order until one leaves a block in r.found. The error is one that has nothing to do
// with room.
func (a *Allocator) obtain(r *request) (bool, error) {
	if a.search(r) {
		return true, nil
	}
	if len(a.callbacks) > 0 {
		freed := a.runCallbacks(r.pool.sh)
		if a.closed {
			return false, ErrClosed
		}
		r.pool = a.poolFor(r.pool.sh, r.size) // captures may have begun or ended meanwhile
		if freed && a.search(r) {
			return true, nil
		}
	}
	var failures []error // what could not be given back; told only if the request fails
	if a.collecting() {
		if err := a.collectGarbage(); err != nil {
			failures = append(failures, err)
		}
	}
	if ok, err := a.grow(r); ok || err != nil {
		return ok, err
	}
	if a.cfg.ThrowOnOOM {
		a.totals.numOOMRejections++
		return false, nil
	}
	released, err := a.releaseOversize(r)
	if err != nil {
		failures = append(failures, err)
	}
	if released {
		if ok, err := a.grow(r); ok || err != nil {
			return ok, err
		}
	}
	if len(a.captures) == 0 {
		if err := a.waitPending(); err != nil {
			failures = append(failures, err)
		}
		if !a.cfg.PyTorchExact && a.search(r) {
			return true, nil
		}
		if err := a.releaseCached(); err != nil {
			failures = append(failures, err)
		}
		a.totals.numAllocRetries++
		if ok, err := a.grow(r); ok || err != nil {
			return ok, err
		}
	}
	r.err = errors.Join(append(failures, r.err)...)
	return false, nil
}

func (a *Allocator) search(r *request) bool {
	if a.collecting() {
		a.aged.Store(true)
		r.pool.family.calls.Add(1)
	}
	r.found, _ = r.pool.find(r.size, r.expandable)
	return r.found != 0
}

// runCallbacks asks everyone who may hold memory to give some up, and reports whether somebody did. It runs without
// locks, since they will call Free: anything may happen meanwhile.
func (a *Allocator) runCallbacks(sh *shard) bool {
	callbacks := a.callbacks
	a.unlock(sh)
	a.mu.Unlock()
	freed := false
	for _, callback := range callbacks {
		if callback() {
			freed = true
		}
	}
	a.mu.Lock()
	a.lock(sh)
	return freed
}

// grow gets memory from the driver for r. It returns false if there is no room.
func (a *Allocator) grow(r *request) (bool, error) {
	r.err = nil
	if a.reserved+r.segment > a.limit {
		return false, nil
	}
	var err error
	if r.expandable {
		r.found, err = a.growExpandable(r)
	} else {
		r.found, err = a.newSegment(r)
	}
	if err == nil {
		return true, nil
	}
	if errors.Is(err, driver.ErrNoMemory) {
		r.err = err
		return false, nil
	}
	return false, fmt.Errorf("caching: get %d bytes from the driver: %w", r.segment, err)
}

// newSegment asks the driver for a segment that is one block.
func (a *Allocator) newSegment(r *request) (blockRef, error) {
	p := r.pool
	if r.segment >= maxBlockSize {
		return 0, &driver.Error{Call: "Alloc", Code: driver.ErrNoMemory, Detail: "a segment has to be smaller than 2 TiB"}
	}
	// At once, since with ReleaseLock other calls come in between: they must see what the limit has left, and that the
	// pool is not empty.
	a.reserved += r.segment
	a.inFlight += r.segment
	p.family.reserved += r.segment
	ptr, err := a.driverAlloc(p.sh, r.segment)
	a.inFlight -= r.segment
	if err != nil {
		a.reserved -= r.segment
		p.family.reserved -= r.segment
		return 0, err
	}
	ref, blk := p.sh.slab.take()
	blk.make(ptr, r.segment, 0, 0, p.index)
	p.stats.add(segment, 1)
	p.stats.add(reservedBytes, r.segment)
	if r.segment >= a.cfg.MaxSplitSize {
		p.stats.add(oversizeSegments, 1)
	}
	a.totals.numDeviceAlloc++
	a.observe(mem.ActionSegmentAlloc, p, ptr, r.segment)
	return ref, nil
}

func (a *Allocator) driverAlloc(sh *shard, size int64) (driver.Pointer, error) {
	if !a.cfg.ReleaseLock {
		return a.dev.Alloc(size)
	}
	a.unlock(sh)
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.lock(sh)
	}()
	return a.dev.Alloc(size)
}

// giveUp tells the observers of an out-of-memory error and returns it. The caller holds mu, which giveUp releases.
func (a *Allocator) giveUp(oom *mem.OutOfMemory) error {
	observers := a.oomObservers
	a.mu.Unlock()
	if !oom.TooLarge {
		a.describeProcesses(oom)
	}
	for _, observer := range observers {
		observer(oom)
	}
	return oom
}

// freeSlow is Free when other streams use the block or somebody watches.
func (a *Allocator) freeSlow(b mem.Block, used []driver.Stream) {
	for _, s := range used {
		_ = s.ID() // a nil stream panics here, before anything is locked
	}
	a.mu.Lock()
	index, gen, ref := splitTag(b.Tag)
	shards := *a.shards.Load()
	if index >= len(shards) || shards[index] == nil {
		a.mu.Unlock()
		panicForeign("Free", b)
	}
	sh := shards[index]
	a.lock(sh)
	blk := sh.lookup(ref, gen, b)
	if blk == nil {
		a.unlock(sh)
		a.mu.Unlock()
		panicForeign("Free", b)
	}
	p := sh.pools[blk.pool]
	p.freeRequested(blk)
	if !a.deferFree(sh, ref, blk, used) {
		p.release(ref, blk)
	}
	a.foldFor(sh)
	sh.verify()
	a.unlock(sh)
	a.mu.Unlock()
}

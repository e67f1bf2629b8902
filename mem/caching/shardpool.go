package caching

import (
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A shardPool holds the free blocks of one blockPool in one shard.
type shardPool struct {
	free      freeSet
	unmapped  []blockRef // by address
	blockPool *blockPool
	sh        *shard
	index     uint16 // in shard.pools
	class     int    // classSmall or classLarge
	noSplit   bool   // copy of blockPool.noSplit
	stats     *classStats

	// tags of blocks that the default pool has borrowed, and of some returned since: see borrow.go
	borrowedTags []uint64
}

func (p *shardPool) small() bool { return p.class == classSmall }

// A blockPool is the pools of one class, small or large, in all shards: PyTorch's BlockPool.
type blockPool struct {
	id       mem.PoolID
	owner    *privatePool // nil: the default pool
	class    int
	noSplit  bool         // free blocks are never split
	searches atomic.Int64 // searches for free blocks, counted while garbage collection is on
	reserved int64        // bytes of segments and mapped pages; guarded by Allocator.mu
}

// find removes the best free block for a rounded size from the free set: the smallest that fits, and the lowest
// address among equals. It returns 0 if there is none. An expandable block counts with the size that it could grow to.
func (p *shardPool) find(size int64, expandable bool) (blockRef, *block) {
	e, c := p.free.best(size)
	if e.word == 0 {
		return 0, nil
	}
	ref := e.ref()
	blk := p.sh.slab.at(ref)
	if blk.expandable {
		if !expandable {
			// Expandable segments were turned off after this block was made: only ordinary blocks qualify.
			p.free.insertHot()
			for c = p.free.lowerBound(size); c.ok() && blk.expandable; {
				if c = p.free.next(c); c.ok() {
					ref = c.entry().ref()
					blk = p.sh.slab.at(ref)
				}
			}
			if !c.ok() {
				return 0, nil
			}
		} else if reach := p.growableSize(blk); reach > blk.size() {
			// The block could grow, so it counts with its growable size. A larger block whose growable size is smaller
			// is better.
			p.free.insertHot()
			c = p.free.lowerBound(size)
			for next := p.free.next(c); next.ok() && blk.expandable; next = p.free.next(next) {
				candidate := p.sh.slab.at(next.entry().ref())
				r := p.growableSize(candidate)
				if r >= reach {
					break
				}
				c, ref, blk, reach = next, next.entry().ref(), candidate, r
			}
		}
	}
	cfg := &p.sh.a.cfg
	if size < cfg.MaxSplitSize {
		if blk.size() >= cfg.MaxSplitSize {
			return 0, nil
		}
	} else if blk.size()-size >= cfg.MaxNonSplitRounding {
		return 0, nil
	}
	p.free.takeBest(c)
	return ref, blk
}

// growableSize returns the size of a free block together with the unmapped span that follows it.
func (p *shardPool) growableSize(blk *block) int64 {
	if blk.next != 0 {
		if next := p.sh.slab.at(blk.next); next.state == stateUnmapped {
			return blk.size() + next.size()
		}
	}
	return blk.size()
}

// allocateBlock makes a block live that is in no free set. If cut is set, it splits off what exceeds size and puts
// that into the free set.
func (p *shardPool) allocateBlock(ref blockRef, blk *block, size, requested int64, cut bool) mem.Block {
	sh := p.sh
	sh.stats.markChanged()
	cfg := &sh.a.cfg
	wasSplit := blk.isSplit()
	if cut {
		// The new block is the front part, which becomes live. The old block is the rest.
		restRef, rest := ref, blk
		ref, blk = sh.slab.newBlock()
		blk.init(rest.ptr, size, rest.prev, restRef, rest.pool)
		if rest.expandable {
			sh.slab.inSegment(ref, sh.slab.coldAt(restRef).segment)
		}
		if blk.prev != 0 {
			sh.slab.at(blk.prev).next = ref
		}
		rest.prev = ref
		rest.ptr += driver.Pointer(size)
		rest.setSize(rest.size() - size)
		p.putFree(restRef, rest)
		if !blk.expandable {
			if wasSplit {
				p.stats.sub(inactiveSplitBytes, size)
			} else {
				p.stats.countSplit(rest.size())
			}
		}
	} else if wasSplit && !blk.expandable {
		p.stats.sub(inactiveSplitBytes, blk.size())
		p.stats.sub(inactiveSplit, 1)
	}
	blk.state = stateLive
	blk.setRequested(requested)
	blk.generation++
	p.stats.countAllocation(blk.size(), requested)
	if blk.size() >= cfg.MaxSplitSize {
		p.stats.add(oversizeAllocations, 1)
	}
	if sh.a.observer != nil {
		sh.a.observe(mem.ActionAlloc, p, blk.ptr, requested)
	}
	return mem.Block{Ptr: blk.ptr, Size: blk.size(), Tag: makeTag(sh.index, blk.generation, ref)}
}

// freeRequested counts a block as no longer allocated.
func (p *shardPool) freeRequested(blk *block) {
	p.sh.stats.markChanged()
	p.stats.sub(allocation, 1)
	p.stats.sub(allocatedBytes, blk.size())
	if blk.size() >= p.sh.a.cfg.MaxSplitSize {
		p.stats.sub(oversizeAllocations, 1)
	}
	if p.sh.a.observer != nil {
		p.sh.a.observe(mem.ActionFreeRequested, p, blk.ptr, blk.requested())
	}
}

// freeBlock makes a live or pending block free: it merges it with its free neighbours and puts it into the free set.
func (p *shardPool) freeBlock(ref blockRef, blk *block) {
	sh := p.sh
	sh.stats.markChanged()
	if sh.a.observer != nil {
		sh.a.observe(mem.ActionFreeCompleted, p, blk.ptr, blk.requested())
	}
	if blk.state == statePending {
		p.stats.sub(active, 1)
		p.stats.sub(activeBytes, blk.size())
	}
	// Both neighbours are read before either is merged, so that their two cache misses overlap.
	prev, next := sh.slab.at(blk.prev), sh.slab.at(blk.next)
	prevState, nextState := prev.state, next.state
	var merged, mergedBytes int64
	if prevState == stateFree {
		merged, mergedBytes = 1, p.mergeNeighbor(ref, blk, blk.prev, prev)
	}
	if nextState == stateFree {
		merged, mergedBytes = merged+1, mergedBytes+p.mergeNeighbor(ref, blk, blk.next, next)
	}
	p.putFree(ref, blk)
	if !blk.expandable {
		count, bytes := -merged, -mergedBytes
		if blk.isSplit() {
			count, bytes = count+1, bytes+blk.size()
		}
		p.stats.change(inactiveSplit, count)
		p.stats.change(inactiveSplitBytes, bytes)
	}
	p.stats.sub(requestedBytes, blk.requested())
}

func (p *shardPool) putFree(ref blockRef, blk *block) {
	blk.state = stateFree
	if p.sh.a.aged.Load() {
		p.sh.slab.coldAt(ref).gcBase = p.blockPool.searches.Load()
	}
	p.free.insert(blk.size(), uint64(blk.ptr), ref)
}

// mergeNeighbor merges a free or unmapped neighbour into blk, which is in no set, and returns the neighbour's size.
func (p *shardPool) mergeNeighbor(ref blockRef, blk *block, other blockRef, o *block) int64 {
	slab := &p.sh.slab
	if o.state == stateFree {
		p.free.remove(o.size(), uint64(o.ptr))
	} else {
		p.dropUnmapped(other)
	}
	if blk.prev == other {
		blk.ptr = o.ptr
		if blk.prev = o.prev; blk.prev != 0 {
			slab.at(blk.prev).next = ref
		}
	} else if blk.next = o.next; blk.next != 0 {
		slab.at(blk.next).prev = ref
	}
	size := o.size()
	blk.setSize(blk.size() + size)
	slab.freeBlock(other)
	return size
}

// mergeNeighbors merges the neighbours that are in the given state into blk.
func (p *shardPool) mergeNeighbors(ref blockRef, blk *block, state blockState) {
	if prev := p.sh.slab.at(blk.prev); prev.state == state {
		p.mergeNeighbor(ref, blk, blk.prev, prev)
	}
	if next := p.sh.slab.at(blk.next); next.state == state {
		p.mergeNeighbor(ref, blk, blk.next, next)
	}
}

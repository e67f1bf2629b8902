package caching

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Snapshot describes every segment, in the order of addresses. Each run of mapped pages of an expandable segment counts
// as a segment. It takes all locks: do not call it often.
func (a *Allocator) Snapshot() []mem.SegmentInfo { return a.snapshot(nil) }

// snapshot describes the segments of a private pool, or all if it is nil.
func (a *Allocator) snapshot(of *privatePool) []mem.SegmentInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lockShards()
	defer a.unlockShards()
	segments := a.segments(of)
	if a.observer != nil {
		var total int64
		for i := range segments {
			total += segments[i].ActiveSize
		}
		e := mem.Event{Action: mem.ActionSnapshot, Size: total}
		if of != nil {
			e.Pool = of.id
		}
		a.observer(e)
	}
	return segments
}

// segments lists the segments of a private pool, or all if it is nil. The caller holds every lock.
func (a *Allocator) segments(of *privatePool) []mem.SegmentInfo {
	var segments []mem.SegmentInfo
	for _, sh := range a.live {
		if of != nil && of.inShard(sh.index) == nil {
			continue
		}
		for ref := range blockRef(sh.slab.n) {
			blk := sh.slab.at(ref)
			if blk.state == stateNone || blk.state == stateUnmapped {
				continue
			}
			if blk.prev != 0 && sh.slab.at(blk.prev).mapped() || of != nil && sh.pools[blk.pool].blockPool.owner != of {
				continue
			}
			segments = append(segments, sh.segmentAt(ref))
		}
	}
	slices.SortFunc(segments, func(x, y mem.SegmentInfo) int {
		if x.Ptr < y.Ptr {
			return -1
		}
		return 1
	})
	return segments
}

// segmentAt describes the segment that starts with a block.
func (sh *shard) segmentAt(ref blockRef) mem.SegmentInfo {
	blk := sh.slab.at(ref)
	p := sh.pools[blk.pool]
	info := mem.SegmentInfo{
		Ptr:        blk.ptr,
		Stream:     sh.stream.ID(),
		Pool:       p.blockPool.id,
		Large:      !p.small(),
		Expandable: blk.expandable,
	}
	for {
		b := mem.BlockInfo{Ptr: blk.ptr, Size: blk.size(), RequestedSize: blk.requested()}
		switch blk.state {
		case stateLive:
			b.State = mem.ActiveAllocated
			info.AllocatedSize += blk.size()
		case statePending:
			b.State = mem.ActivePendingFree
		default:
			b.GCCount = p.blockPool.searches.Load() - sh.slab.coldAt(ref).gcBase
		}
		if b.State != mem.Inactive {
			info.ActiveSize += blk.size()
			info.RequestedSize += blk.requested()
		}
		info.TotalSize += blk.size()
		info.Blocks = append(info.Blocks, b)
		if blk.next == 0 {
			return info
		}
		ref = blk.next
		if blk = sh.slab.at(ref); !blk.mapped() {
			return info
		}
	}
}

// LargestFree returns the size of the largest cached block, on any stream and in any pool: an upper bound of a request
// that needs no driver call.
func (a *Allocator) LargestFree() int64 {
	_, largest := a.CacheInfo()
	return largest
}

// CacheInfo returns the bytes cached on all streams and in all pools, and the size of the largest cached block:
// PyTorch's cacheInfo, formerly cachedAndFree.
func (a *Allocator) CacheInfo() (cachedAndFree, largest int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lockShards()
	defer a.unlockShards()
	for _, sh := range a.live {
		for _, p := range sh.pools {
			if p == nil {
				continue
			}
			for c := p.free.first(); c.ok(); c = p.free.next(c) {
				cachedAndFree += c.entry().size()
				largest = max(largest, c.entry().size())
			}
		}
	}
	return cachedAndFree, largest
}

// BaseAllocation returns the driver's allocation that contains b. It returns an error for a block of an expandable
// segment, which has none. It panics if b is not live.
func (a *Allocator) BaseAllocation(b mem.Block) (driver.Pointer, int64, error) {
	index, generation, ref := splitTag(b.Tag)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.uncached.live[b.Tag] == b && b.Tag != 0 {
		return b.Ptr, b.Size, nil
	}
	shards := *a.shards.Load()
	if index >= len(shards) || shards[index] == nil {
		panicForeign("BaseAllocation", b)
	}
	sh := shards[index]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	blk := sh.lookup(ref, generation, b)
	if blk == nil {
		panicForeign("BaseAllocation", b)
	}
	if blk.expandable {
		return 0, 0, fmt.Errorf("caching: the block at %#x is in an expandable segment, which is not one allocation "+
			"of the driver; allocate it with expandable_segments:False", b.Ptr)
	}
	for blk.prev != 0 {
		blk = sh.slab.at(blk.prev)
	}
	ptr := blk.ptr
	size := blk.size()
	for blk.next != 0 {
		blk = sh.slab.at(blk.next)
		size += blk.size()
	}
	return ptr, size, nil
}

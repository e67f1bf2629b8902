package caching

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// A Delta describes the effect of a Restore on the blocks of a pool.
type Delta = mem.PoolDelta

// Restore puts a private pool back into an earlier state, to the block: PyTorch's setCheckpointPoolState. A graph can
// then be captured again after graphs before it were launched, whose results become live without a request.
//
// It frees every live block of the pool, as Free does without other streams; the caller must order any work of other
// streams on them. Then the blocks that were live at the checkpoint are live again, with the same addresses and sizes.
// It does not touch memory, and its only questions to the device are whether pending frees are done. Segments and
// pages that the pool has gained since stay cached; PyTorch fails if an expandable segment has grown (its issue
// 161356). Its cost grows with the number of the allocator's blocks.
//
// The restored blocks are new: freeing a block allocated before panics. The owner of memory whose address is live
// again takes its block from the Delta. For a tensor's storage over such an address, use tensor.FromPointer with a
// deleter that frees the block of Delta.At.
//
// The error matches driver.ErrNotReady if a freed block of the pool still waits for other streams, or if the default
// pool has borrowed a block (PoolOptions.UseOnOOM), whose owner does not know of the Restore; PyTorch takes that block
// away. It matches driver.ErrInvalid if the pool was released, if requests are going to it, or if a segment of the
// state, or a page of an expandable one, was released since. A segment that was allocated again at the same address
// counts as the same segment. On an error nothing has changed. Restore panics if another allocator made the state.
//
// Events and statistics report the frees and the blocks that are live again. PyTorch also reports free blocks that it
// allocates and frees on the way.
func (a *Allocator) Restore(s *PoolState) (*Delta, error) {
	if s.of != a {
		panic("caching: Restore of a state that another allocator took")
	}
	a.ProcessPending()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, ErrClosed
	}
	pp := a.private[s.pool]
	if pp == nil || pp.useCount == 0 {
		return nil, noSuchPool("Restore", s.pool)
	}
	if a.scopes.SendTo(pp) {
		return nil, fmt.Errorf("caching: Restore: requests are going to pool %v: %w", s.pool, driver.ErrInvalid)
	}
	a.lockShards()
	defer a.unlockShards()
	runs, err := a.runsOf(pp)
	if err == nil {
		err = s.plan(runs)
	}
	if err != nil {
		return nil, fmt.Errorf("caching: Restore of pool %v: %w", s.pool, err)
	}
	d := &Delta{}
	for i := range runs {
		r := &runs[i]
		d.Freed = r.freeLive(d.Freed)
		if r.pool.sh.stats.over {
			a.foldPeaks() // freed blocks may have made a new peak of inactive splits; fold before other streams change
		}
	}
	for _, r := range runs {
		d.Live = r.pool.restoreBlocks(r.ref, r.wanted, d.Live)
	}
	a.foldPeaks()
	d.Freed = slices.DeleteFunc(d.Freed, func(b mem.Block) bool {
		i, ok := d.Find(b.Ptr)
		return ok && s.tags[i] == pp.firstTag(b.Tag)
	})
	pp.firstTags = make(map[uint64]uint64, len(d.Live))
	for i, b := range d.Live {
		pp.firstTags[b.Tag] = s.tags[i]
	}
	for _, sh := range a.live {
		sh.verify()
	}
	return d, nil
}

// plan finds the run that contains each segment of the state, and records the wanted blocks in it.
func (s *PoolState) plan(runs []run) error {
	i := 0
	for k := range s.segments {
		seg := &s.segments[k]
		for i < len(runs) && runs[i].end() <= seg.Ptr {
			i++
		}
		if i == len(runs) || !runs[i].has(seg) {
			return fmt.Errorf("it no longer has the %d bytes at %#x, or not on stream %d: %w", seg.TotalSize, seg.Ptr,
				seg.Stream, driver.ErrInvalid)
		}
		runs[i].wanted = append(runs[i].wanted, seg.Blocks...)
	}
	return nil
}

// has reports whether the run contains a segment of the state. A segment that is not expandable must be the whole run.
func (r *run) has(seg *mem.SegmentInfo) bool {
	head, end := r.pool.sh.slab.at(r.ref), seg.Ptr+driver.Pointer(seg.TotalSize)
	if head.expandable != seg.Expandable || r.pool.small() == seg.Large || r.pool.sh.stream.ID() != seg.Stream {
		return false
	}
	if seg.Expandable {
		return r.ptr <= seg.Ptr && end <= r.end()
	}
	return r.ptr == seg.Ptr && end == r.end()
}

// freeLive frees the live blocks of a run, which leaves one free block, and appends them to freed.
func (r *run) freeLive(freed []mem.Block) []mem.Block {
	p := r.pool
	var live []blockRef // these blocks stay valid: freeBlock merges neighbours into the block that it frees
	for ref := range r.blocks() {
		if blk := p.sh.slab.at(ref); blk.state == stateLive {
			live = append(live, ref)
			tag := makeTag(p.sh.index, blk.generation, ref)
			freed = append(freed, mem.Block{Ptr: blk.ptr, Size: blk.size(), Tag: tag})
		}
	}
	for _, ref := range live {
		blk := p.sh.slab.at(ref)
		p.freeRequested(blk)
		p.freeBlock(ref, blk)
		r.ref = ref // all other blocks are merged into the last one
	}
	return freed
}

// restoreBlocks splits a free block so that the wanted blocks in it are live, and appends those to live. The spans
// between them stay free. An inactive entry among the wanted blocks only sets the requested size of its span. The
// wanted blocks are in address order.
func (p *shardPool) restoreBlocks(ref blockRef, wanted []mem.BlockInfo, live []mem.Block) []mem.Block {
	slab := &p.sh.slab
	blk := slab.at(ref)
	p.sh.stats.markChanged()
	p.free.remove(blk.size(), uint64(blk.ptr))
	if blk.isSplit() && !blk.expandable {
		p.stats.sub(inactiveSplit, 1)
		p.stats.sub(inactiveSplitBytes, blk.size())
	}
	blocks := tile(blk.ptr, blk.size(), wanted)
	first, after := ref, blk.next
	blk.setSize(blocks[0].Size)
	for _, b := range blocks[1:] {
		nextRef, next := slab.newBlock()
		next.init(b.Ptr, b.Size, ref, after, p.index)
		if blk.expandable {
			slab.inSegment(nextRef, slab.coldAt(ref).segment)
		}
		blk.next = nextRef
		ref, blk = nextRef, next
	}
	if after != 0 {
		slab.at(after).prev = ref
	}
	ref = first
	for _, b := range blocks {
		blk := slab.at(ref)
		shares := blk.isSplit() && !blk.expandable
		if b.State == mem.Inactive {
			blk.setRequested(b.RequestedSize)
			p.putFree(ref, blk)
			if shares {
				p.stats.countSplit(b.Size)
			}
		} else {
			if shares { // allocateBlock subtracts the block from the inactive splits
				p.stats.cur[inactiveSplit]++
				p.stats.cur[inactiveSplitBytes] += b.Size
			}
			live = append(live, p.allocateBlock(ref, blk, b.Size, b.RequestedSize, false))
		}
		ref = blk.next
	}
	return live
}

// tile returns blocks that cover a span, in which the wanted ones are live.
func tile(ptr driver.Pointer, size int64, wanted []mem.BlockInfo) []mem.BlockInfo {
	var blocks []mem.BlockInfo
	end := ptr + driver.Pointer(size)
	free := mem.BlockInfo{Ptr: ptr}
	freeUpTo := func(at driver.Pointer) {
		if free.Size = int64(at - free.Ptr); free.Size > 0 {
			blocks = append(blocks, free)
		}
	}
	for _, b := range wanted {
		if b.State == mem.Inactive {
			free.RequestedSize = b.RequestedSize
			continue
		}
		freeUpTo(b.Ptr)
		blocks = append(blocks, b)
		free = mem.BlockInfo{Ptr: b.Ptr + driver.Pointer(b.Size)}
	}
	freeUpTo(end)
	return blocks
}

// AllocAt allocates requested bytes at ptr, regardless of the policy, from a free block of a pool on stream s: a
// private pool, or the default pool if id is zero. The replay of a recording uses it to follow a pool that was put
// back into an earlier state, block by block: by Restore, which records the requested sizes, or by PyTorch, which
// records block sizes. So a multiple of 512 bytes is taken as the block's size, and any other number is rounded like a
// request. A rest that the policy would not split off belongs to the block. It returns false if the bytes are not all
// free in one block, or if the distance of ptr from the block's start is not a multiple of 512 bytes. It panics if
// requested is not positive.
func (a *Allocator) AllocAt(s driver.Stream, id mem.PoolID, ptr driver.Pointer, requested int64) (mem.Block, bool) {
	check.Stream("caching: AllocAt", s)
	if requested <= 0 {
		panic(fmt.Sprintf("caching: AllocAt of %d bytes", requested))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	pp := a.private[id] // nil: the default pool, whose block pools have no owner
	if a.closed || pp == nil && id != (mem.PoolID{}) || requested >= maxRequest {
		return mem.Block{}, false
	}
	size := requested
	if size%minBlockSize != 0 {
		size = a.cfg.roundSize(requested)
	}
	sh := a.shardOf(s)
	a.lock(sh)
	defer a.unlock(sh)
	for _, p := range sh.pools {
		if p == nil || p.blockPool.owner != pp {
			continue
		}
		p.free.insertHot()
		for c := p.free.lowerBound(size); c.ok(); c = p.free.next(c) {
			ref := c.entry().ref()
			blk := sh.slab.at(ref)
			off := int64(ptr - blk.ptr)
			if ptr < blk.ptr || off > blk.size()-size || off%minBlockSize != 0 {
				continue
			}
			if rest := blk.size() - off; !a.cfg.shouldSplit(p, rest, size, blk.expandable) {
				size = rest
			}
			kept := mem.BlockInfo{RequestedSize: blk.requested()}
			at := mem.BlockInfo{Ptr: ptr, Size: size, RequestedSize: requested, State: mem.ActiveAllocated}
			live := p.restoreBlocks(ref, []mem.BlockInfo{kept, at, kept}, nil)
			a.foldFor(sh)
			sh.verify()
			return live[0], true
		}
	}
	return mem.Block{}, false
}

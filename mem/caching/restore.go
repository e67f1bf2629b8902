package caching

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/internal/check"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Delta is what a Restore did to the blocks of a pool. Both lists are in the order of addresses.
type Delta struct {
	// Freed is what was live and is not any more, as it was allocated: whoever holds it has lost it. A block that came to
	// lie where another was at the checkpoint is among them.
	Freed []mem.Block

	// Live is every block of the pool, to be freed once by whoever takes it over: all that were allocated before a
	// Restore are not good any more, those that are live again included.
	Live []mem.Block
}

// At finds the block that begins at ptr among those that are live.
func (d *Delta) At(ptr driver.Pointer) (mem.Block, bool) {
	i, ok := d.find(ptr)
	if !ok {
		return mem.Block{}, false
	}
	return d.Live[i], true
}

func (d *Delta) find(ptr driver.Pointer) (int, bool) {
	return slices.BinarySearchFunc(d.Live, ptr, func(b mem.Block, ptr driver.Pointer) int { return cmp.Compare(b.Ptr, ptr) })
}

// Restore puts a private pool back into a state that it was in, to the block: PyTorch's setCheckpointPoolState. That is
// how a graph is captured again after graphs before it were launched, which makes their results live without a request.
//
// It frees every block of the pool that is live, as Free does without other streams: what such streams still do to them
// is the caller's to order. Then what was live at the checkpoint is live again: same addresses, same sizes. Memory is not
// touched, and the device is asked for nothing, but whether pending frees are done. Segments and pages that the pool has
// got since stay cached: PyTorch fails if an expandable segment has grown (its issue 161356). It looks at every block of
// the allocator.
//
// The blocks are new ones: to free one that was allocated before panics. An owner of memory whose address is live again
// takes its block from the delta. A tensor's storage over such an address, say, is made by tensor.FromPointer, with a
// deleter that frees what Delta.At returned.
//
// The error matches driver.ErrNotReady if a freed block of the pool still waits for other streams, or if the default pool
// has borrowed one (PoolOptions.UseOnOOM), whose holder knows nothing of a restore: PyTorch takes it from him. It matches
// driver.ErrInvalid if the pool was released, requests are going to it, or a segment of the state, or a page of an
// expandable one, was given back meanwhile. (One that came back since at the same address counts as the one it was.)
// Nothing is changed then. It panics if another allocator took the state.
//
// Events and statistics tell of the frees and of what is live again. PyTorch's also tell of free blocks that it allocates
// on the way and frees again.
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
	if a.scopes.Lead(pp) {
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
			a.foldPeaks() // there may be a new peak of what is free but split, and other streams change next
		}
	}
	for _, r := range runs {
		d.Live = r.pool.restoreBlocks(r.ref, r.wanted, d.Live)
	}
	a.foldPeaks()
	d.Freed = slices.DeleteFunc(d.Freed, func(b mem.Block) bool {
		i, ok := d.find(b.Ptr)
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

// plan finds the run that each segment of the state lies in, and notes in it what to make of it.
func (s *PoolState) plan(runs []run) error {
	i := 0
	for k := range s.segments {
		seg := &s.segments[k]
		for i < len(runs) && runs[i].end() <= seg.Ptr {
			i++
		}
		if i == len(runs) || !runs[i].has(seg) {
			return fmt.Errorf("it no longer has the %d bytes at %#x, or not on stream %d: %w", seg.TotalSize, seg.Ptr, seg.Stream, driver.ErrInvalid)
		}
		runs[i].wanted = append(runs[i].wanted, seg.Blocks...)
	}
	return nil
}

// has reports whether a segment is still there: all of a run, unless it is expandable.
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

// freeLive frees the live blocks of a run, which makes it one free block, and adds them to freed.
func (r *run) freeLive(freed []mem.Block) []mem.Block {
	p := r.pool
	var live []blockRef // whose records last, whatever they are merged with
	for ref := range r.blocks() {
		if blk := p.sh.slab.at(ref); blk.state == stateLive {
			live = append(live, ref)
			freed = append(freed, mem.Block{Ptr: blk.ptr, Size: blk.size(), Tag: makeTag(p.sh.index, blk.gen, ref)})
		}
	}
	for _, ref := range live {
		blk := p.sh.slab.at(ref)
		p.freeRequested(blk)
		p.freeBlock(ref, blk)
		r.ref = ref // with the last, all the others are merged into it
	}
	return freed
}

// restoreBlocks cuts a free block so that the wanted ones among it are live, and appends those to live. Between them it stays
// free, and an inactive one among the wanted only says what the user of such a span had asked for. They are in the order
// of their addresses.
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
			if shares { // hand takes it out of what is counted as free
				p.stats.cur[inactiveSplit]++
				p.stats.cur[inactiveSplitBytes] += b.Size
			}
			live = append(live, p.allocateBlock(ref, blk, b.Size, b.RequestedSize, false))
		}
		ref = blk.next
	}
	return live
}

// tile returns the blocks of a span in which those that are wanted are live.
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

// AllocAt takes requested bytes at ptr out of a free block of a pool on stream s, whichever the policy would choose: of a
// private pool, or with the zero ID of the default pool. It is how the replay of a recording follows a pool that was put
// back into an earlier state, block by block: of a Restore, which records what was asked for each block, or of PyTorch's,
// which records how large each is. So a multiple of 512 bytes is taken for the block's size, and anything else is rounded
// as a request is; what no policy would have cut off behind it belongs to the block. It returns false if those bytes are not all free, in one block, or ptr's distance
// from where that begins is not a multiple of 512 bytes. It panics if requested is not positive.
func (a *Allocator) AllocAt(s driver.Stream, id mem.PoolID, ptr driver.Pointer, requested int64) (mem.Block, bool) {
	check.Stream("caching: AllocAt", s)
	if requested <= 0 {
		panic(fmt.Sprintf("caching: AllocAt of %d bytes", requested))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	pp := a.private[id] // nil: the default pool, whose families have no owner
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

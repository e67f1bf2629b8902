package caching

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A PoolState is the state of a private pool at the time of Checkpoint: its segments, and the blocks in them. It never
// changes, may be restored any number of times, and is only valid for the allocator that made it. It holds no memory,
// and no contents of blocks.
type PoolState struct {
	of       *Allocator
	pool     mem.PoolID
	segments []mem.SegmentInfo // by address
	tags     []uint64          // of the live blocks, in order: see firstTag
}

// Pool returns the pool's ID.
func (s *PoolState) Pool() mem.PoolID { return s.pool }

// Segments describes the pool as Snapshot did at the checkpoint: in address order, with each run of mapped pages of an
// expandable segment as one segment. The caller owns the result.
func (s *PoolState) Segments() []mem.SegmentInfo {
	segments := slices.Clone(s.segments)
	for i := range segments {
		segments[i].Blocks = slices.Clone(segments[i].Blocks)
	}
	return segments
}

// Checkpoint records the state of a private pool, for Restore: PyTorch's getCheckpointState. The error matches
// driver.ErrNotReady if a freed block of the pool still waits for other streams (wait for them, end captures and
// scopes, and try again) or if the default pool has borrowed a block (PoolOptions.UseOnOOM). It matches
// driver.ErrInvalid if there is no such pool. Its cost grows with the number of the allocator's blocks.
func (a *Allocator) Checkpoint(id mem.PoolID) (*PoolState, error) {
	a.ProcessPending()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, ErrClosed
	}
	pp := a.private[id]
	if pp == nil {
		return nil, noSuchPool("Checkpoint", id)
	}
	a.lockShards()
	defer a.unlockShards()
	runs, err := a.runsOf(pp)
	if err != nil {
		return nil, fmt.Errorf("caching: Checkpoint of pool %v: %w", id, err)
	}
	s := &PoolState{of: a, pool: id}
	for _, r := range runs {
		sh := r.pool.sh
		s.segments = append(s.segments, sh.segmentAt(r.ref))
		for ref := range r.blocks() {
			if blk := sh.slab.at(ref); blk.state == stateLive {
				s.tags = append(s.tags, pp.firstTag(makeTag(sh.index, blk.generation, ref)))
			}
		}
	}
	return s, nil
}

// firstTag returns the tag with which a live block was first allocated, however often Restore has made it live again.
func (pp *privatePool) firstTag(tag uint64) uint64 {
	if first, ok := pp.firstTags[tag]; ok {
		return first
	}
	return tag
}

func noSuchPool(call string, id mem.PoolID) error {
	return fmt.Errorf("caching: %s: there is no private pool %v, or it was released: %w", call, id, driver.ErrInvalid)
}

// A run is a segment of a private pool, or a run of mapped pages of an expandable one.
type run struct {
	pool   *shardPool
	ref    blockRef // its first block
	ptr    driver.Pointer
	size   int64
	wanted []mem.BlockInfo // the blocks that Restore makes; empty: one free block
}

func (r *run) end() driver.Pointer { return r.ptr + driver.Pointer(r.size) }

// runsOf lists the runs of a private pool by address. It fails if one of their blocks is pending or borrowed. The
// caller holds every lock.
func (a *Allocator) runsOf(pp *privatePool) ([]run, error) {
	for _, f := range pp.blockPools {
		for _, p := range a.poolsOf(f) {
			if blk := p.firstBorrowed(); blk != nil {
				return nil, fmt.Errorf("the block at %#x was borrowed by the default pool: %w", blk.ptr,
					driver.ErrNotReady)
			}
		}
	}
	var runs []run
	for _, sh := range a.live {
		for ref := range blockRef(sh.slab.n) {
			blk := sh.slab.at(ref)
			if blk.state == stateNone || !blk.mapped() || blk.prev != 0 && sh.slab.at(blk.prev).mapped() {
				continue
			}
			p := sh.pools[blk.pool]
			if p.blockPool.owner != pp {
				continue
			}
			r := run{pool: p, ref: ref, ptr: blk.ptr}
			for b := range r.blocks() {
				blk := sh.slab.at(b)
				if blk.state == statePending {
					return nil, fmt.Errorf("the block at %#x was freed but waits for other streams: %w", blk.ptr,
						driver.ErrNotReady)
				}
				r.size += blk.size()
			}
			runs = append(runs, r)
		}
	}
	slices.SortFunc(runs, func(x, y run) int { return cmp.Compare(x.ptr, y.ptr) })
	return runs, nil
}

// blocks visits the blocks of a run in order. They must not change during the visit.
func (r *run) blocks() iter.Seq[blockRef] {
	return func(yield func(blockRef) bool) {
		slab := &r.pool.sh.slab
		for ref := r.ref; ref != 0 && slab.at(ref).mapped(); ref = slab.at(ref).next {
			if !yield(ref) {
				return
			}
		}
	}
}

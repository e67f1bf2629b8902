package paged

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A PoolState is the state of a private pool at the time of Checkpoint: its live blocks. It never changes, may be
// restored any number of times, and is only valid for the allocator that made it. It holds no memory, and no contents
// of blocks.
type PoolState struct {
	of       *Allocator
	pool     *privatePool
	segments []mem.SegmentInfo
	spans    []savedSpan // by region, then by address
	live     []savedBlock
}

// A savedSpan is a block, or a slab.
type savedSpan struct {
	region *region
	number uint16
	ptr    driver.Pointer
	units  uint32
	parts  uint32 // size of its slots, in units; 0: it is a block
	stream driver.StreamID
	blocks int // how many of PoolState.live it is, or has
}

// A savedBlock is a live block.
type savedBlock struct {
	ptr       driver.Pointer
	requested int64
	users     []driver.Stream
	tag       uint64 // of its first allocation
}

// Pool returns the pool's ID.
func (s *PoolState) Pool() mem.PoolID { return s.pool.id }

// Segments describes the pool as Snapshot did at the checkpoint, in address order. The caller owns the result.
func (s *PoolState) Segments() []mem.SegmentInfo {
	segments := slices.Clone(s.segments)
	for i := range segments {
		segments[i].Blocks = slices.Clone(segments[i].Blocks)
	}
	return segments
}

// Checkpoint records the state of a private pool, for Restore: PyTorch's getCheckpointState. The error matches
// driver.ErrNotReady if the default pool has borrowed a block (PoolOptions.UseOnOOM), and driver.ErrInvalid if there is
// no such pool. Its cost grows with the number of the allocator's blocks.
func (a *Allocator) Checkpoint(id mem.PoolID) (*PoolState, error) {
	a.lockAll()
	defer a.unlockAll()
	pp, err := a.checkpointable("Checkpoint", id)
	if err != nil {
		return nil, err
	}
	s := &PoolState{of: a, pool: pp}
	for _, n := range pp.space.regions {
		rg := a.regions[n]
		for at := rg.first; at != 0; at = a.spans.at(at).next {
			if sp := a.spans.at(at); sp.state == block || sp.state == slabSpan {
				s.save(a, rg, n, at, sp)
			}
		}
	}
	for _, seg := range a.snapshot() {
		if seg.Pool == id {
			s.segments = append(s.segments, seg)
		}
	}
	return s, nil
}

// checkpointable finds a pool for Checkpoint and Restore.
func (a *Allocator) checkpointable(call string, id mem.PoolID) (*privatePool, error) {
	if a.closed {
		return nil, closedError(call)
	}
	pp := a.private[id]
	if pp == nil {
		return nil, fmt.Errorf("paged: %s: there is no private pool %v, or it was released: %w", call, id,
			driver.ErrInvalid)
	}
	if b, ok := a.lent(pp); ok {
		return nil, fmt.Errorf("paged: %s of pool %v: the block at %#x was borrowed by the default pool: %w", call, id,
			uint64(b.Ptr), driver.ErrNotReady)
	}
	return pp, nil
}

// save records a block or a slab.
func (s *PoolState) save(a *Allocator, rg *region, number uint16, at ref, sp *span) {
	saved := savedSpan{region: rg, number: number, ptr: sp.ptr, units: sp.units, stream: sp.stream}
	if sp.state == block {
		s.saveBlock(a, at, sp)
		saved.blocks = 1
		s.spans = append(s.spans, saved)
		return
	}
	for i := sp.next2; i != 0; i = a.spans.at(i).next {
		part := a.spans.at(i)
		saved.parts = part.units
		if part.state == slot {
			s.saveBlock(a, i, part)
			saved.blocks++
		}
	}
	s.spans = append(s.spans, saved)
}

func (s *PoolState) saveBlock(a *Allocator, at ref, sp *span) {
	b := savedBlock{ptr: sp.ptr, requested: sp.requested(), tag: s.pool.firstTag(sp.tag(at) | privateTag)}
	for user := range a.streams.All(sp.deps.Users) {
		b.users = append(b.users, user)
	}
	s.live = append(s.live, b)
}

// firstTag returns the tag with which a live block was first allocated, however often Restore has made it live again.
func (pp *privatePool) firstTag(tag uint64) uint64 {
	if first, ok := pp.firstTags[tag]; ok {
		return first
	}
	return tag
}

package paged

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// Blocks of up to slabUnits share slabs. A slab holds blocks of one size and stream. So long-lived small blocks are
// together and leave no gaps between large ones. To the layers below, a slab is an ordinary block.
const (
	slabUnits = 4 << 10 / unit  // the largest block in a slab
	slabSize  = 64 << 10 / unit // a slab
)

// slabLists hold the free slots of one stream's slabs in a space, by size.
type slabLists struct {
	free [slabUnits + 1]ref
}

func (s *space) slabsOf(id driver.StreamID) *slabLists {
	for int(id) >= len(s.slabs) {
		s.slabs = append(s.slabs, nil)
	}
	if s.slabs[id] == nil {
		s.slabs[id] = new(slabLists)
	}
	return s.slabs[id]
}

// allocSlot allocates a slot, from a new slab if there is none. If there is no room for a slab, there may still be room
// for the block alone.
func (a *Allocator) allocSlot(r *request) (ref, error) {
	sh := r.space.slabsOf(r.id)
	for at := sh.free[r.units]; at != 0; at = a.spans.at(at).next2 {
		sp := a.spans.at(at)
		err := a.follow(r, sp.deps)
		if err == nil {
			a.takeSlot(sh, sp, r.own)
			return at, nil
		}
		if !errors.Is(err, driver.ErrCapturing) {
			return 0, err
		}
	}
	at, err := a.placeSlab(r)
	if errors.Is(err, driver.ErrNoMemory) {
		return a.place(r, r.units)
	}
	if err != nil {
		return 0, err
	}
	a.cut(at, r.units)
	at = sh.free[r.units]
	a.takeSlot(sh, a.spans.at(at), r.own)
	return at, nil
}

// takeSlot removes a slot from its list.
func (a *Allocator) takeSlot(sh *slabLists, sp *span, own reuse.Set) {
	a.unlistSlot(sh, sp)
	a.spans.at(sp.prev).extra++
	sp.state = slot
	sp.deps = reuse.Dependencies{Users: own}
}

func (a *Allocator) unlistSlot(sh *slabLists, sp *span) {
	if sp.prev2 != 0 {
		a.spans.at(sp.prev2).next2 = sp.next2
	} else {
		sh.free[sp.units] = sp.next2
	}
	a.spans.at(sp.next2).prev2 = sp.prev2
}

// listSlot puts a slot at the front of its list.
func (a *Allocator) listSlot(at ref, sp *span) {
	sp.state = freeSlot
	head := &a.spaceOf(sp).slabsOf(sp.stream).free[sp.units]
	sp.prev2, sp.next2 = 0, *head
	a.spans.at(sp.next2).prev2 = at
	*head = at
}

// cut makes a slab of a block. Its slots are linked by next, from next2 of the slab; the lowest is first in its list.
func (a *Allocator) cut(at ref, units uint32) {
	slab := a.spans.at(at)
	slab.state, slab.extra, slab.next2 = slabSpan, 0, 0
	for n := slab.units / units; n > 0; n-- {
		i, sp := a.spans.alloc()
		sp.ptr = slab.ptr + driver.Pointer(int64(n-1)*int64(units)*unit)
		sp.units, sp.stream, sp.region = units, slab.stream, slab.region
		sp.prev, sp.next, slab.next2 = at, slab.next2, i
		a.listSlot(i, sp)
	}
}

// releaseSlot frees a slot. It frees the slab if all its slots are free.
func (a *Allocator) releaseSlot(at ref, sp *span, deps reuse.Dependencies) {
	sp.deps = deps
	a.listSlot(at, sp)
	up := sp.prev
	slab := a.spans.at(up)
	if slab.extra--; slab.extra > 0 {
		return
	}
	sh := a.spaceOf(sp).slabsOf(sp.stream)
	for i := slab.next2; i != 0; {
		each := a.spans.at(i)
		next := each.next
		deps = a.streams.Merge(deps, each.deps)
		a.unlistSlot(sh, each)
		a.spans.free(i, each)
		i = next
	}
	a.freeSpan(up, slab, deps)
}

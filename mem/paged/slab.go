package paged

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// Blocks of up to slabUnits share slabs, each of blocks of one size and stream: so small ones that live long lie together,
// and leave no gaps between large ones. A slab is a block like any other to what is below.
const (
	slabUnits = 4 << 10 / unit  // the largest block in a slab
	slabSize  = 64 << 10 / unit // a slab
)

// A shelf has the free slots of one stream's slabs, by size.
type shelf struct {
	spare [slabUnits + 1]ref
}

func (a *Allocator) shelf(id driver.StreamID) *shelf {
	for int(id) >= len(a.slabs) {
		a.slabs = append(a.slabs, nil)
	}
	if a.slabs[id] == nil {
		a.slabs[id] = new(shelf)
	}
	return a.slabs[id]
}

// allocSlot takes a slot, from a new slab if it must be. Where there is no room for a slab there may be for the block.
func (a *Allocator) allocSlot(r *request) (ref, error) {
	sh := a.shelf(r.id)
	for at := sh.spare[r.units]; at != 0; at = a.records.at(at).next2 {
		sp := a.records.at(at)
		err := a.follow(r, sp.past)
		if err == nil {
			a.takeSlot(sh, sp, r.own)
			return at, nil
		}
		if !errors.Is(err, driver.ErrCapturing) {
			return 0, err
		}
	}
	at, err := a.place(r, slabSize)
	if errors.Is(err, driver.ErrNoMemory) {
		return a.place(r, r.units)
	}
	if err != nil {
		return 0, err
	}
	a.cut(at, r.units)
	at = sh.spare[r.units]
	a.takeSlot(sh, a.records.at(at), r.own)
	return at, nil
}

// takeSlot takes a slot out of its list.
func (a *Allocator) takeSlot(sh *shelf, sp *span, own reuse.Set) {
	a.unlistSlot(sh, sp)
	a.records.at(sp.prev).live++
	sp.state = slot
	sp.past = reuse.Dependencies{Users: own}
}

func (a *Allocator) unlistSlot(sh *shelf, sp *span) {
	if sp.prev2 != 0 {
		a.records.at(sp.prev2).next2 = sp.next2
	} else {
		sh.spare[sp.units] = sp.next2
	}
	a.records.at(sp.next2).prev2 = sp.prev2
}

// listSlot puts a slot first in its list.
func (a *Allocator) listSlot(at ref, sp *span) {
	sp.state = spare
	head := &a.shelf(sp.stream).spare[sp.units]
	sp.prev2, sp.next2 = 0, *head
	a.records.at(sp.next2).prev2 = at
	*head = at
}

// cut makes a slab of a block. Its slots are linked by next, from next2 of the slab on; the lowest is the first in its list.
func (a *Allocator) cut(at ref, units uint32) {
	slab := a.records.at(at)
	slab.state, slab.live, slab.next2 = whole, 0, 0
	for n := slab.units / units; n > 0; n-- {
		i, sp := a.records.take()
		sp.ptr = slab.ptr + driver.Pointer(int64(n-1)*int64(units)*unit)
		sp.units, sp.stream, sp.region = units, slab.stream, slab.region
		sp.prev, sp.next, slab.next2 = at, slab.next2, i
		a.listSlot(i, sp)
	}
}

// freeSlot makes a slot free. A slab of which all are goes back.
func (a *Allocator) freeSlot(at ref, sp *span, past reuse.Dependencies) {
	sp.past = past
	a.listSlot(at, sp)
	up := sp.prev
	slab := a.records.at(up)
	if slab.live--; slab.live > 0 {
		return
	}
	sh := a.shelf(sp.stream)
	for i := slab.next2; i != 0; {
		each := a.records.at(i)
		next := each.next
		past = a.streams.Merge(past, each.past)
		a.unlistSlot(sh, each)
		a.records.give(i, each)
		i = next
	}
	a.vacate(up, slab, past)
}

package replay

import (
	"math"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A hiddenPool is a private pool that neither the events nor the final state name, since all it had has been given back.
// It shows itself where a segment was made for a request that a free block of the default pool would have served, or
// where the allocator gives a segment back before its turn, since the default pool comes first.
//
// Each segment counts as a pool of its own. That is enough: the recorded address says in which segment a request was
// served, and what was the best block of the whole pool is the best of that segment.
type hiddenPool struct {
	id       mem.PoolID
	from, to driver.Pointer
	made     int // the entry that allocated it, or mapped it first
	released int // the first entry that gave memory of it back
	end      int // from this entry on the addresses are others'
}

// explain returns the hidden pool that would explain why the allocator did not do what was recorded at an entry, or nil.
func (v *verifier) explain(at int, got mem.Event) *hiddenPool {
	want := v.t.Events[at].Action
	switch got.Action {
	case mem.ActionAlloc:
		if want == mem.ActionSegmentAlloc || want == mem.ActionSegmentMap {
			return v.hide(at)
		}
	case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
		if made := v.madeBy(got); made >= 0 {
			return v.hide(made)
		}
	}
	return nil
}

// madeBy is the entry that made the segment that the allocator gives back, or -1 if it is in a hidden pool already.
func (v *verifier) madeBy(got mem.Event) int {
	if got.Pool != (mem.PoolID{}) {
		return -1
	}
	base, action := got.Ptr, mem.ActionSegmentAlloc
	if got.Action == mem.ActionSegmentUnmap {
		action = mem.ActionSegmentMap
		for _, r := range v.dev.reserved {
			if got.Ptr >= r.Ptr && got.Ptr < r.Ptr+driver.Pointer(r.Size) {
				base = r.Ptr
			}
		}
	}
	made := -1
	for i := range v.next {
		if e := &v.t.Events[i]; e.Action == action && e.Ptr == base && (made < 0 || action == mem.ActionSegmentAlloc) {
			made = i
		}
	}
	return made
}

// hide returns the pool of the segment that entry at made, or nil if nothing of it was ever given back.
func (v *verifier) hide(at int) *hiddenPool {
	e := &v.t.Events[at]
	h := &hiddenPool{from: e.Ptr, to: e.Ptr + driver.Pointer(e.Size), made: at}
	given := mem.ActionSegmentFree
	if e.Action == mem.ActionSegmentMap {
		given = mem.ActionSegmentUnmap
		h.to = h.from + driver.Pointer(v.dev.info.TotalMemory+v.dev.info.TotalMemory/8)
	}
	for i := at + 1; i < len(v.t.Events); i++ {
		if f := &v.t.Events[i]; f.Action == given && f.Ptr >= h.from && f.Ptr < h.to {
			h.released = i
			h.id = mem.PoolID{math.MaxUint32 + uint64(i), 0} // so that pools are given back in the recorded order
			if h.end = i; given == mem.ActionSegmentUnmap {
				h.end = len(v.t.Events)
			}
			return h
		}
	}
	return nil
}

// poolOf is the private pool that served the request that entry ended.
func (v *verifier) poolOf(entry int) mem.PoolID {
	e := &v.t.Events[entry]
	for _, h := range v.hidden {
		if e.Ptr >= h.from && e.Ptr < h.to && entry > h.made && entry < h.end {
			return h.id
		}
	}
	return v.pools(entry, e.Ptr)
}

// releaseHidden ends the pools that begin to give memory back in the entries from next up to end.
func (v *verifier) releaseHidden(end int) {
	for _, h := range v.hidden {
		if h.released >= v.next && h.released < end {
			for ; v.users[h.id] > 0; v.users[h.id]-- {
				v.alloc.ReleasePool(h.id)
			}
		}
	}
}

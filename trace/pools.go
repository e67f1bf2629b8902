package trace

import (
	"cmp"
	"slices"
	"sort"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A PoolRange is a segment of the final snapshot of a recording, with its pool.
type PoolRange struct {
	Ptr  driver.Pointer
	Size int64
	Pool mem.PoolID
}

// PoolsByAddress returns a function for ProgramOptions.PoolOf. A recording may lack the pools of blocks, but the
// segments of the final snapshot have theirs. So a block belongs to the pool of the segment around its address, if that
// segment existed when the entry was written. Blocks in segments that were freed before the end are assigned to the
// default pool. The function is nil if all segments have the default pool.
func (t *Trace) PoolsByAddress(segments []PoolRange) func(entry int) mem.PoolID {
	type interval struct {
		start, end driver.Pointer
		pool       mem.PoolID
		born       int   // index of the entry that allocated its first memory
		mapped     int64 // bytes that it had before the current entry
	}
	var private []interval
	for _, s := range segments {
		if s.Pool != (mem.PoolID{}) && s.Size > 0 {
			end := s.Ptr + driver.Pointer(s.Size)
			private = append(private, interval{start: s.Ptr, end: end, pool: s.Pool, mapped: s.Size})
		}
	}
	if len(private) == 0 {
		return nil
	}
	slices.SortFunc(private, func(a, b interval) int { return cmp.Compare(a.start, b.start) })
	// after returns the first interval that ends after p.
	after := func(p driver.Pointer) int {
		return sort.Search(len(private), func(i int) bool { return private[i].end > p })
	}
	// Iterate backwards from the end, where every segment has all its memory, to the entry before which it has none.
	changes := t.Find(mem.ActionSegmentAlloc, mem.ActionSegmentMap, mem.ActionSegmentFree, mem.ActionSegmentUnmap)
	for _, i := range slices.Backward(changes) {
		e, sign := t.At(int(i)), int64(1)
		if e.Action == mem.ActionSegmentAlloc || e.Action == mem.ActionSegmentMap {
			sign = -1
		}
		end := e.Ptr + driver.Pointer(e.Size)
		for n := after(e.Ptr); n < len(private) && private[n].start < end; n++ {
			p := &private[n]
			if p.mapped <= 0 {
				continue // an earlier user of these addresses
			}
			p.mapped += sign * int64(min(end, p.end)-max(e.Ptr, p.start))
			if p.mapped <= 0 {
				p.born = int(i)
			}
		}
	}
	return func(entry int) mem.PoolID {
		ptr := t.ptr(entry)
		if n := after(ptr); n < len(private) && private[n].start <= ptr && entry >= private[n].born {
			return private[n].pool
		}
		return mem.PoolID{}
	}
}

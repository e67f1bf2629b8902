package verify

import (
	"math"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// A segmentRange is a segment, or the addresses of an expandable segment while pages are mapped there. It belongs to
// one pool for its whole life.
//
// The file contains the pools of ranges that exist at the end. Earlier ranges may have belonged to a private pool too,
// a hidden one. There is evidence for one where a segment was allocated although a free block of the default pool would
// have served the request, or where memory was freed out of order. Each such range counts as a pool of its own. That is
// sufficient: the recorded address tells which range served a request, and the best block of the whole pool is also the
// best of that range.
type segmentRange struct {
	from, to   driver.Pointer
	expandable bool
	firstEntry int        // the entry that allocated it or first mapped it
	lastEntry  int        // the entry that freed its last memory, or the number of entries
	pool       mem.PoolID // the pool in the final state
	split      bool       // a block began within a page of 2 MiB, so blocks are split here
	mapped     int64      // bytes, during the scan
}

// segmentRanges lists the segment ranges of a trace and, for each entry, the index of its range, or -1.
func segmentRanges(t *trace.Trace, total int64) (all []segmentRange, of []int32) {
	of = make([]int32, len(t.Events))
	var live ranges // each covers one segmentRange; index has its number in all
	var index []int32
	find := func(p driver.Pointer) int {
		if i := live.after(p); i < len(live) && live[i].Ptr <= p {
			return i
		}
		return -1
	}
	for i := range t.Events {
		e := &t.Events[i]
		of[i] = -1
		at := find(e.Ptr)
		switch e.Action {
		case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
			if at < 0 {
				size, expandable := e.Size, e.Action == mem.ActionSegmentMap
				if expandable {
					size = max(size, total+total/8)
				}
				k := live.after(e.Ptr)
				if k < len(live) {
					size = min(size, int64(live[k].Ptr-e.Ptr))
				}
				live = append(live, driver.Range{})
				copy(live[k+1:], live[k:])
				live[k] = driver.Range{Ptr: e.Ptr, Size: size}
				index = append(index, 0)
				copy(index[k+1:], index[k:])
				index[k] = int32(len(all))
				all = append(all, segmentRange{
					from: e.Ptr, to: e.Ptr + driver.Pointer(size), expandable: expandable, firstEntry: i,
					lastEntry: len(t.Events),
				})
				at = k
			}
			of[i] = index[at]
			all[of[i]].mapped += e.Size
		case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
			if at < 0 {
				continue
			}
			of[i] = index[at]
			g := &all[of[i]]
			if g.mapped -= e.Size; g.mapped <= 0 {
				g.lastEntry = i
				live = append(live[:at], live[at+1:]...)
				index = append(index[:at], index[at+1:]...)
			}
		case mem.ActionAlloc, mem.ActionFreeRequested, mem.ActionFreeCompleted:
			if at >= 0 {
				of[i] = index[at]
				g := &all[of[i]]
				g.split = g.split || e.Action == mem.ActionAlloc && (e.Ptr-g.from)%(2<<20) != 0
			}
		}
	}
	return all, of
}

// segmentAt returns the index of the range that contained an address when an entry was written, or -1.
func (r *recording) segmentAt(p driver.Pointer, entry int) int {
	for i := range r.segments {
		if g := &r.segments[i]; p >= g.from && p < g.to && g.firstEntry <= entry && entry <= g.lastEntry {
			return i
		}
	}
	return -1
}

// mayHide reports whether a range may belong to a hidden pool: it does not exist at the end, and is not assumed hidden
// yet.
func (v *verifier) mayHide(g int) bool {
	if g < 0 || v.t.PoolsKnown || !v.rec.mayHide {
		return false
	}
	_, hidden := v.guess.hidden[g]
	return !hidden && v.rec.segments[g].lastEntry < len(v.t.Events)
}

// mayNeverSplit reports whether a private pool may be one that never splits blocks, and is not assumed to be one yet.
func (v *verifier) mayNeverSplit(id mem.PoolID) bool {
	if id == (mem.PoolID{}) || v.guess.noSplit[id] {
		return false
	}
	for i := range v.rec.segments {
		g := &v.rec.segments[i]
		if (g.pool == id || v.guess.hidden[i] && hiddenPool(i) == id) && g.split {
			return false
		}
	}
	return true
}

// hiddenPool returns the pool of a hidden range.
func hiddenPool(g int) mem.PoolID { return mem.PoolID{math.MaxUint32 + uint64(g), 0} }

// poolAt returns the private pool of an entry.
func (v *verifier) poolAt(entry int) mem.PoolID {
	if v.t.PoolsKnown {
		return v.t.Pools[v.t.Events[entry].Pool]
	}
	g := int(v.rec.segmentOf[entry])
	if g < 0 {
		return mem.PoolID{}
	}
	if _, hidden := v.guess.hidden[g]; hidden {
		return hiddenPool(g)
	}
	return v.rec.segments[g].pool
}

func (v *verifier) privateAt(entry int) bool { return v.poolAt(entry) != (mem.PoolID{}) }

func frees(a mem.Action) bool { return a == mem.ActionSegmentFree || a == mem.ActionSegmentUnmap }

func allocates(a mem.Action) bool { return a == mem.ActionSegmentAlloc || a == mem.ActionSegmentMap }

// onlyPrivate is a pool without memory: while requests go to it, only memory of released pools is freed.
var onlyPrivate = mem.PoolID{math.MaxUint64, math.MaxUint64}

// releasePrivate releases the private pool of entry first. PyTorch keeps private pools in no order, so they are
// released one by one in the recorded order. Until then they count as in use.
func (v *verifier) releasePrivate(first int) error {
	if v.completeRun(maxInt); v.verdict.Difference != nil {
		return nil
	}
	all := func(driver.Stream) bool { return true }
	id := v.poolAt(first)
	if v.users[id] {
		v.alloc.ReleasePool(id)
	}
	v.alloc.BeginAllocateToPool(onlyPrivate, all)
	err := v.alloc.EmptyCache()
	v.alloc.EndAllocateToPool(onlyPrivate)
	v.alloc.ReleasePool(onlyPrivate)
	v.users[id] = false
	v.use(id, all)
	v.alloc.EndAllocateToPool(id)
	return err
}

// use directs the requests on some streams to a private pool. It adds a user to the pool only once.
func (v *verifier) use(id mem.PoolID, filter func(driver.Stream) bool) {
	v.alloc.BeginAllocateToPool(id, filter)
	if v.users[id] {
		v.alloc.ReleasePool(id)
	}
	v.users[id] = true
}

package nvtx

import (
	"iter"
	"maps"
	"slices"
	"sort"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A region is a range of device memory.
type region = driver.Range

// An observer holds the heaps and regions that the tool knows. Heaps do not overlap; every region lies in its heap.
type observer struct {
	tool  *Tool
	mu    sync.Mutex
	heaps []heap // by address
}

// A heap is a segment, or a run of pages that were mapped together, that the tool accepted.
type heap struct {
	from, to driver.Pointer // to is the first address after it
	handle   uintptr
	regions  map[driver.Pointer]int64 // sizes, by start
}

// observe is a mem.Observer.
func (o *observer) observe(e mem.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	from, to := e.Ptr, e.Ptr+driver.Pointer(e.Size)
	switch e.Action {
	case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
		o.open(from, to, nil)
	case mem.ActionSegmentFree:
		o.forget(from, to)
	case mem.ActionSegmentUnmap:
		o.close(from, to)
	case mem.ActionAlloc:
		o.alloc(from, to)
	case mem.ActionFreeCompleted:
		o.free(from, to)
	}
}

// open makes [from, to) a heap with these regions, unless it is empty or the tool refuses it.
func (o *observer) open(from, to driver.Pointer, regions map[driver.Pointer]int64) {
	if from >= to {
		return
	}
	handle := o.tool.calls.heapRegister(region{Ptr: from, Size: int64(to - from)})
	if handle == 0 || handle == noTool {
		o.tool.refused.Add(1)
		return
	}
	h := heap{from, to, handle, map[driver.Pointer]int64{}}
	var inside []region
	for _, ptr := range slices.Sorted(maps.Keys(regions)) {
		if from <= ptr && ptr < to {
			h.regions[ptr] = regions[ptr]
			inside = append(inside, region{Ptr: ptr, Size: regions[ptr]})
		}
	}
	if len(inside) > 0 {
		o.tool.calls.regionsRegister(handle, inside)
	}
	o.heaps = slices.Insert(o.heaps, o.after(from), h)
}

// forget removes the heaps in [from, to), which ended when the segment was returned to the driver.
func (o *observer) forget(from, to driver.Pointer) {
	o.heaps = slices.DeleteFunc(o.heaps, func(h heap) bool { return from <= h.from && h.from < to })
}

// close ends the heaps in [from, to). The rest of a heap that extends beyond the range becomes a new heap.
func (o *observer) close(from, to driver.Pointer) {
	for {
		i := o.after(from)
		if i == len(o.heaps) || o.heaps[i].from >= to {
			return
		}
		h := o.heaps[i]
		o.heaps = slices.Delete(o.heaps, i, i+1)
		o.tool.calls.heapUnregister(h.handle)
		o.open(h.from, from, h.regions)
		o.open(to, h.to, h.regions)
	}
}

// alloc opens a block in each heap that it overlaps.
func (o *observer) alloc(from, to driver.Pointer) {
	for h := range o.touched(from, to) {
		start := max(from, h.from)
		size := int64(min(to, h.to) - start)
		h.regions[start] = size
		o.tool.calls.regionsRegister(h.handle, []region{{Ptr: start, Size: size}})
	}
}

// free closes a block that alloc opened.
func (o *observer) free(from, to driver.Pointer) {
	var starts []driver.Pointer
	for h := range o.touched(from, to) {
		start := max(from, h.from)
		if _, ok := h.regions[start]; ok {
			delete(h.regions, start)
			starts = append(starts, start)
		}
	}
	if len(starts) > 0 {
		o.tool.calls.regionsUnregister(starts)
	}
}

// touched visits the heaps that overlap [from, to), in order.
func (o *observer) touched(from, to driver.Pointer) iter.Seq[*heap] {
	return func(yield func(*heap) bool) {
		for i := o.after(from); i < len(o.heaps) && o.heaps[i].from < to; i++ {
			if !yield(&o.heaps[i]) {
				return
			}
		}
	}
}

// after returns the index of the first heap that ends after ptr.
func (o *observer) after(ptr driver.Pointer) int {
	return sort.Search(len(o.heaps), func(i int) bool { return o.heaps[i].to > ptr })
}

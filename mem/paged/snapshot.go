package paged

import (
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Snapshot implements mem.Snapshotter. A segment is a run of addresses with their own memory, in use or idle. Addresses
// whose memory is in use elsewhere, or has been since, are in no segment. Paused memory is in segments of its own.
// Blocks in a processor cache are inactive.
func (a *Allocator) Snapshot() []mem.SegmentInfo {
	a.lockAll()
	defer a.unlockAll()
	return a.snapshot()
}

func (a *Allocator) snapshot() []mem.SegmentInfo {
	held := map[driver.Pointer]bool{}
	a.caches.each(func(at ref) { held[a.spans.at(at).ptr] = true })
	var all []mem.SegmentInfo
	for _, n := range a.regionOrder() {
		all = append(all, a.segmentsOf(a.regions[n], held)...)
	}
	return all
}

// regionOrder returns the indices of the regions by address.
func (a *Allocator) regionOrder() []int {
	var order []int
	for i, rg := range a.regions {
		if rg != nil {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int {
		if a.regions[i].base < a.regions[j].base {
			return -1
		}
		return 1
	})
	return order
}

// segmentsOf describes a region: first its segments without blocks, then their blocks.
func (a *Allocator) segmentsOf(rg *region, held map[driver.Pointer]bool) (all []mem.SegmentInfo) {
	for m := range a.mappingsOf(rg) {
		mp := &a.mappings[m]
		page := &a.pages[mp.page]
		paused := page.givenBack()
		if page.counted != m && !paused {
			continue
		}
		p, size := a.address(mp), int64(mp.n)*a.granule
		if n := len(all); n > 0 && all[n-1].Ptr+driver.Pointer(all[n-1].TotalSize) == p && all[n-1].Paused == paused {
			all[n-1].TotalSize += size
		} else {
			all = append(all, mem.SegmentInfo{
				Ptr: p, TotalSize: size, Pool: rg.space.id(), Large: true, Expandable: true, Paused: paused,
			})
		}
	}
	at := 0
	for sp := range a.spansOf(rg) {
		live := (sp.state == block || sp.state == slot) && !held[sp.ptr]
		for at < len(all) && all[at].Ptr+driver.Pointer(all[at].TotalSize) <= sp.ptr {
			at++
		}
		for i := at; i < len(all) && all[i].Ptr < sp.end(); i++ {
			seg := &all[i]
			from, to := max(seg.Ptr, sp.ptr), min(seg.Ptr+driver.Pointer(seg.TotalSize), sp.end())
			b := mem.BlockInfo{Ptr: from, Size: int64(to - from)}
			if live {
				b.State, b.RequestedSize = mem.ActiveAllocated, sp.requested()
				seg.AllocatedSize += b.Size
				seg.ActiveSize += b.Size
				seg.RequestedSize += b.RequestedSize
			} else if n := len(seg.Blocks); n > 0 && seg.Blocks[n-1].State == mem.Inactive {
				seg.Blocks[n-1].Size += b.Size
				continue
			}
			seg.Blocks = append(seg.Blocks, b)
		}
	}
	return all
}

// spansOf visits the spans of a region in order. For a slab it visits its slots and the rest after them, which counts
// as a hole.
func (a *Allocator) spansOf(rg *region) func(yield func(*span) bool) {
	return func(yield func(*span) bool) {
		for at := rg.first; at != 0; {
			sp := a.spans.at(at)
			at = sp.next
			if sp.state != slabSpan {
				if !yield(sp) {
					return
				}
				continue
			}
			end := sp.ptr
			for i := sp.next2; i != 0; {
				part := a.spans.at(i)
				i, end = part.next, part.end()
				if !yield(part) {
					return
				}
			}
			if rest := uint32((sp.end() - end) / unit); rest > 0 {
				if !yield(&span{ptr: end, units: rest, state: hole}) {
					return
				}
			}
		}
	}
}

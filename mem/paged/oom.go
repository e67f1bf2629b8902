package paged

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
)

// explain completes the error of a shortage. It takes a copy of the request, since its argument escapes to the heap.
func (a *Allocator) explain(r request, err error, tentative bool) error {
	var short *shortage
	switch {
	case !errors.As(err, &short):
		return err
	case tentative:
		return fmt.Errorf("paged: no room for %s: %w", mem.FormatSize(r.requested), mem.ErrNoMemory)
	}
	return a.outOfMemory(&r, short)
}

// outOfMemory collects the facts that explain why there is no memory for a block. The caller holds mu, and processor
// caches have been emptied.
func (a *Allocator) outOfMemory(r *request, short *shortage) *mem.OutOfMemory {
	a.stats.NumOOMs++
	info := a.dev.Info()
	size := int64(r.units) * unit
	e := &mem.OutOfMemory{
		Requested: r.requested, Rounded: size, Segment: short.need * a.granule,
		Device: info.Ordinal, DeviceName: info.Name, Total: info.TotalMemory,
		Allowed:   a.allowed(),
		Allocated: a.live().Bytes, Reserved: a.stats.ReservedBytes.All.Current,
		Stream: r.stream.ID(), Pool: r.space.id(), Cause: short.cause,
	}
	if free, total, err := a.dev.Available(); err == nil {
		e.Free, e.Total = free, total
	}
	if procs, err := a.dev.Processes(); err == nil {
		e.Processes = procs
	}
	if needed := a.used + short.need; a.limited() && needed > a.limit {
		e.Needed = needed * a.granule
	}
	a.notify(mem.ActionOOM, r.space, e.Stream, driver.Pointer(e.Free), size)
	idle := (a.created - a.used) * a.granule
	e.LargestFree = idle
	if idle > 0 {
		e.Cached = []mem.CachedMemory{{Stream: e.Stream, Bytes: idle, Blocks: int(a.created - a.used), Largest: idle}}
	}
	e.Stranded = max(0, a.used*a.granule-(e.Allocated-a.pausedLive()))
	e.Pinning = a.pinning()
	if needed := a.used + short.need; needed > a.limit && (needed-a.created)*a.granule <= e.Free {
		e.Remedies = append(e.Remedies, mem.Remedy{
			Name: a.higherLimit(needed),
			Reason: "the limit is " + mem.FormatSize(e.Allowed) + ", of which live blocks keep " +
				mem.FormatSize(a.used*a.granule),
		})
	}
	room := e.Free
	if a.limited() {
		room = min(room, (a.limit-a.created)*a.granule)
	}
	if r.noWait && e.Segment <= idle+room {
		e.Remedies = append(e.Remedies, mem.Remedy{
			Name: "a request without NoRetry", Reason: mem.FormatSize(idle) + " is idle, and may have to be waited for",
		})
	}
	return e
}

// pinning finds the blocks that keep the most other memory in use by themselves.
func (a *Allocator) pinning() (all []mem.PinningBlock) {
	for _, rg := range a.regions {
		if rg == nil {
			continue
		}
		for at := rg.first; at != 0; {
			r := a.spans.at(at)
			at = r.next
			if r.state != block && r.state != slabSpan {
				continue
			}
			var kept, touchedSize int64
			for m := range a.touched(r) {
				mp := &a.mappings[m]
				if a.pages[mp.page].givenBack() {
					continue
				}
				touchedSize += int64(mp.n) * a.granule
				if mp.blocks == 1 {
					from := max(a.address(mp), r.ptr)
					to := min(a.address(mp)+driver.Pointer(int64(mp.n)*a.granule), r.end())
					kept += int64(mp.n)*a.granule - int64(to-from)
				}
			}
			if kept > 0 {
				first := a.mappings[a.mappingAt(r)]
				all = append(all, mem.PinningBlock{
					Ptr: r.ptr, Size: r.size(), Requested: r.requested(),
					Segment: a.address(&first), SegmentSize: touchedSize, Stranded: kept, Live: 1,
				})
			}
		}
	}
	return stats.MostStranded(all)
}

// touched visits the mappings behind a span in use.
func (a *Allocator) touched(r *span) func(yield func(mref) bool) {
	return func(yield func(mref) bool) {
		rg, from, to := a.granules(r, r.units)
		for g := from; g < to; {
			m := rg.at[g]
			if !yield(m) {
				return
			}
			g = a.mappings[m].at + a.mappings[m].n
		}
	}
}

// mappingAt returns the mapping of the first byte of a span.
func (a *Allocator) mappingAt(r *span) mref {
	rg, from, _ := a.granules(r, r.units)
	return rg.at[from]
}

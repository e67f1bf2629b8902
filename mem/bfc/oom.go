package bfc

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
)

// outOfMemory returns the error for a request without room, with the facts that explain it.
func (a *Allocator) outOfMemory(w *request) *mem.OutOfMemory {
	a.stats.NumOOMs++
	a.refused = w.size
	info := a.dev.Info()
	s := &a.stats
	e := &mem.OutOfMemory{
		Requested: w.requested, Rounded: w.size, Segment: roundUp(w.size, a.step()),
		Device: info.Ordinal, DeviceName: info.Name, Total: info.TotalMemory,
		Allowed:   a.cfg.Limit,
		Allocated: s.AllocatedBytes.All.Current, Reserved: s.ReservedBytes.All.Current,
		Stream: w.stream.ID(), LargestFree: a.largestFree(),
		Cause: w.cause,
	}
	if a.limitSet && w.cause == nil && e.Segment > a.room() {
		e.Needed = e.Reserved + e.Segment
	}
	if free, total, err := a.dev.Available(); err == nil {
		e.Free, e.Total = free, total
	}
	blocks := 0
	for i := range a.blocks {
		if a.blocks[i].state == free {
			blocks++
		}
	}
	if blocks > 0 {
		e.Cached = []mem.CachedMemory{{
			Stream: e.Stream, Bytes: e.Reserved - e.Allocated, Blocks: blocks,
			Largest: e.LargestFree,
		}}
	}
	unused := a.describePinning(e)
	a.describeRemedies(e, w, unused)
	a.notify(mem.ActionOOM, e.Stream, driver.Pointer(e.Free), w.size)
	return e
}

// describePinning lists the largest live block of each segment that also has free memory, and returns the bytes of
// segments without live blocks.
func (a *Allocator) describePinning(e *mem.OutOfMemory) (unused int64) {
	for _, s := range a.segments {
		p := mem.PinningBlock{Segment: s.ptr, SegmentSize: s.size}
		for n := s.first; n != 0; n = a.blocks[n].next {
			switch r := &a.blocks[n]; {
			case r.state == free:
				p.Stranded += r.size
			case r.size > p.Size:
				p.Ptr, p.Size, p.Requested = r.ptr, r.size, r.requested
				p.Live++
			default:
				p.Live++
			}
		}
		switch {
		case p.Live == 0:
			unused += s.size - s.kept
		case p.Stranded > 0:
			e.Stranded += p.Stranded
			e.Pinning = append(e.Pinning, p)
		}
	}
	e.Pinning = stats.MostStranded(e.Pinning)
	return unused
}

// describeRemedies lists the settings with which the request would have succeeded.
func (a *Allocator) describeRemedies(e *mem.OutOfMemory, w *request, unused int64) {
	add := func(name, format string, args ...any) {
		e.Remedies = append(e.Remedies, mem.Remedy{Name: name, Reason: fmt.Sprintf(format, args...)})
	}
	room := a.room()
	if e.Segment > room && e.Segment <= e.Free && a.pages == nil {
		add("limit="+bytesize.Exact(e.Reserved+e.Segment), "the device has %s left", mem.FormatSize(e.Free))
	}
	if a.cfg.NoCollect && unused > 0 && e.Segment <= room+unused && e.Segment <= e.Free+unused {
		add("collect=on", "%s is in segments without a live block", mem.FormatSize(unused))
	}
	if w.bound > 0 && e.LargestFree >= w.size {
		add("Options.FreedBefore", "a free block of %s was freed after %d", mem.FormatSize(e.LargestFree), w.bound)
	}
}

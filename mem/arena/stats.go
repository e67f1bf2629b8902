package arena

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
)

// An arena has no pools by size, so its statistics have only the pool of large blocks. Only the sums over all pools are
// kept; Stats copies them.

func setTo(s *mem.Stat, n int64) {
	if n > s.Current {
		s.Increase(n - s.Current)
	} else {
		s.Decrease(s.Current - n)
	}
}

func (a *Arena) countAlloc(r *block) {
	stats.CountAlloc(&a.stats, r.size, r.requested)
	a.countHoles()
}

func (a *Arena) countFree(r *block) {
	stats.CountFree(&a.stats, r.size, r.requested)
	a.countHoles()
}

// countHoles counts the holes that share the segment with a block. With pages the segment is expandable, and PyTorch
// does not count free blocks of expandable segments.
func (a *Arena) countHoles() {
	var n, bytes int64
	if !a.paged() && a.stats.Allocation.All.Current > 0 {
		n, bytes = int64(a.holes.Len()), a.holes.Free()
	}
	setTo(&a.stats.InactiveSplit.All, n)
	setTo(&a.stats.InactiveSplitBytes.All, bytes)
}

// countReserved counts the bytes of memory behind the arena.
func (a *Arena) countReserved(bytes int64) {
	switch now := a.stats.ReservedBytes.All.Current; {
	case bytes > now:
		a.stats.NumDeviceAlloc++
	case bytes < now:
		a.stats.NumDeviceFree++
	}
	setTo(&a.stats.ReservedBytes.All, bytes)
}

// begin counts the region of a new arena.
func (a *Arena) begin() {
	if a.paged() {
		return
	}
	a.stats.Segment.All.Increase(1)
	a.stats.ReservedBytes.All.Increase(a.Size())
	if a.own() {
		a.stats.NumDeviceAlloc++
	}
}

// end counts the freed region of a closed arena.
func (a *Arena) end() {
	a.backed = 0
	setTo(&a.stats.Segment.All, 0)
	if a.own() {
		a.countReserved(0)
	} else {
		setTo(&a.stats.ReservedBytes.All, 0)
	}
}

// Stats implements mem.StatsReporter. All blocks are in the large pool. AllocatedBytes counts rounded sizes and
// RequestedBytes the bytes requested, each with its peak; children count as blocks. ReservedBytes is the memory behind
// the arena: the region, its mapped part, or a child's part. Blocks are never pending.
func (a *Arena) Stats() mem.Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return stats.OnePool(a.stats)
}

// ResetPeakStats implements mem.StatsReporter.
func (a *Arena) ResetPeakStats() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.ResetPeaks()
}

// ResetAccumulatedStats implements mem.StatsReporter.
func (a *Arena) ResetAccumulatedStats() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.ResetAccumulated()
}

// Limit returns the maximum of live bytes, rounded; 0 means no limit.
func (a *Arena) Limit() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.limit
}

// Capacity returns the bytes of the arena's part of the region: see mem.FrameworkStatsOf.
func (a *Arena) Capacity() int64 { return a.Size() }

// SetLimit replaces the limit; 0 means no limit. Live blocks stay, even if they exceed a lower limit. It panics if the
// limit is negative.
func (a *Arena) SetLimit(bytes int64) {
	if bytes < 0 {
		panic(fmt.Sprintf("arena: SetLimit of %d bytes", bytes))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limit = bytes
}

// Snapshot implements mem.Snapshotter: one segment, or none while no memory is behind the arena. A child is one live
// block.
func (a *Arena) Snapshot() []mem.SegmentInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.snapshot()
}

func (a *Arena) snapshot() []mem.SegmentInfo {
	size := a.stats.ReservedBytes.All.Current
	if size == 0 {
		return nil
	}
	seg := mem.SegmentInfo{
		Ptr: a.pointer(a.lo), TotalSize: size, Large: true, Expandable: a.paged(),
		AllocatedSize: a.stats.AllocatedBytes.All.Current,
		ActiveSize:    a.stats.AllocatedBytes.All.Current,
		RequestedSize: a.stats.RequestedBytes.All.Current,
	}
	for i := range a.blocks {
		if r := &a.blocks[i]; r.state != none {
			seg.Blocks = append(seg.Blocks, mem.BlockInfo{
				Ptr: a.pointer(r.at), Size: r.size, RequestedSize: r.requested, State: mem.ActiveAllocated,
			})
		}
	}
	for s := range a.holes.All() {
		if size := min(s.End(), a.lo+size) - s.At; size > 0 {
			seg.Blocks = append(seg.Blocks, mem.BlockInfo{Ptr: a.pointer(s.At), Size: size})
		}
	}
	slices.SortFunc(seg.Blocks, func(x, y mem.BlockInfo) int { return cmp.Compare(x.Ptr, y.Ptr) })
	return []mem.SegmentInfo{seg}
}

package bfc

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
)

var _ interface {
	mem.Allocator
	mem.Trimmer
	mem.Snapshotter
	mem.StatsReporter
	mem.FrameworkReporter
} = (*Allocator)(nil)

// The statistics have one pool, that of large blocks, because the allocator has no pools by size. Only the sums over
// all pools are kept; Stats copies them.

// countSegment counts a new segment with n of 1, a released one with -1. Pages are an expandable segment, which PyTorch
// does not count.
func (a *Allocator) countSegment(size, n int64) {
	count := (*mem.Stat).Increase
	if n > 0 {
		a.stats.NumDeviceAlloc++
	} else {
		a.stats.NumDeviceFree++
		count = (*mem.Stat).Decrease
	}
	count(&a.stats.ReservedBytes.All, size)
	if a.pages == nil {
		count(&a.stats.Segment.All, 1)
	}
}

// Stats implements mem.StatsReporter. All blocks are in the large pool. Blocks are never pending. NumAllocRetries
// counts the requests for which unused segments were released.
func (a *Allocator) Stats() mem.Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return stats.OnePool(a.stats)
}

// ResetPeakStats implements mem.StatsReporter.
func (a *Allocator) ResetPeakStats() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.ResetPeaks()
}

// ResetAccumulatedStats implements mem.StatsReporter.
func (a *Allocator) ResetAccumulatedStats() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.ResetAccumulated()
}

// FrameworkStats implements mem.FrameworkReporter. Both limits are Config.Limit.
func (a *Allocator) FrameworkStats() mem.FrameworkStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.frameworkStats()
}

func (a *Allocator) frameworkStats() mem.FrameworkStats {
	s := a.stats.Usage().FrameworkStats(a.stats.ReservedBytes.All)
	limit := a.cfg.Limit
	s.BytesLimit, s.BytesReservableLimit, s.LargestFreeBlockBytes = &limit, &limit, a.largestFree()
	return s
}

// Fragmentation returns the fraction of the free memory outside the largest free block; 0 if no memory is free.
func (a *Allocator) Fragmentation() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fragmentation()
}

func (a *Allocator) largestFree() int64 { return a.blocks[a.bins.largest(a.blocks)].size }

func (a *Allocator) fragmentation() float64 {
	unused := a.stats.ReservedBytes.All.Current - a.stats.AllocatedBytes.All.Current
	if unused == 0 {
		return 0
	}
	return float64(unused-a.largestFree()) / float64(unused)
}

// Snapshot implements mem.Snapshotter. With Config.Virtual it is one segment, or none.
func (a *Allocator) Snapshot() []mem.SegmentInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	segments := make([]mem.SegmentInfo, len(a.segments))
	var active int64
	for i, s := range a.segments {
		info := &segments[i]
		*info = mem.SegmentInfo{Ptr: s.ptr, TotalSize: s.size, Large: true, Expandable: a.pages != nil}
		for n := s.first; n != 0; n = a.blocks[n].next {
			r := &a.blocks[n]
			b := mem.BlockInfo{Ptr: r.ptr, Size: r.size, RequestedSize: r.requested}
			if r.state == live {
				b.State = mem.ActiveAllocated
				info.AllocatedSize += r.size
				info.RequestedSize += r.requested
			}
			info.Blocks = append(info.Blocks, b)
		}
		info.ActiveSize = info.AllocatedSize
		active += info.ActiveSize
	}
	a.notify(mem.ActionSnapshot, 0, 0, active)
	return segments
}

// Observe sets the observer that receives every event; nil removes it. The observer runs under the allocator's lock:
// it must be quick and must not call the allocator. A free is complete at once. Segments belong to no stream: their
// events have stream 0.
func (a *Allocator) Observe(observer mem.Observer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.observer = observer
}

func (a *Allocator) notify(action mem.Action, stream driver.StreamID, ptr driver.Pointer, size int64) {
	if a.observer != nil {
		a.observer(mem.Event{Action: action, Stream: stream, Ptr: ptr, Size: size})
	}
}

// segmentAction returns the action for new or released memory where pages are mapped.
func (a *Allocator) segmentAction(action mem.Action) mem.Action {
	switch {
	case a.pages != nil && action == mem.ActionSegmentAlloc:
		return mem.ActionSegmentMap
	case a.pages != nil:
		return mem.ActionSegmentUnmap
	}
	return action
}

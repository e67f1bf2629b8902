package direct

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
)

var _ interface {
	mem.OptionsAllocator
	mem.Trimmer
	mem.Snapshotter
	mem.StatsReporter
} = (*Allocator)(nil)

const smallSize = 1 << 20 // what statistics call small

// countAlloc counts a new block of the device. The caller holds mu.
func (a *Allocator) countAlloc(size int64) {
	a.countSegment(size, 1)
	a.stats.NumDeviceAlloc++
	a.stats.LargestAlloc = max(a.stats.LargestAlloc, size)
	a.countBlock(size, 1)
}

// countFree counts a freed block. No stream uses it any more, so it is not active, even while it is queued.
func (a *Allocator) countFree(size int64) { a.countBlock(size, -1) }

func (a *Allocator) countBlock(size, n int64) {
	st := &a.stats
	for _, q := range []*mem.StatArray{&st.Allocation, &st.Active} {
		add(q, size, n)
	}
	for _, q := range []*mem.StatArray{&st.AllocatedBytes, &st.ActiveBytes, &st.RequestedBytes} {
		add(q, size, n*size)
	}
}

func (a *Allocator) countSegment(size, n int64) {
	add(&a.stats.Segment, size, n)
	add(&a.stats.ReservedBytes, size, n*size)
}

// add changes a quantity by n for a block of the given size.
func add(q *mem.StatArray, size, n int64) {
	class := &q.LargePool
	if size <= smallSize {
		class = &q.SmallPool
	}
	for _, s := range []*mem.Stat{&q.All, class} {
		if n > 0 {
			s.Increase(n)
		} else {
			s.Decrease(-n)
		}
	}
}

// Stats implements mem.StatsReporter. Each block is a segment. A queued block counts as reserved, and as neither active
// nor split.
func (a *Allocator) Stats() mem.Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stats
}

// Limit returns Config.Limit, the maximum of bytes that the allocator holds; 0 means no limit.
func (a *Allocator) Limit() int64 { return a.cfg.Limit }

// Capacity returns the bytes of the device's memory: see mem.FrameworkStatsOf.
func (a *Allocator) Capacity() int64 { return a.dev.Info().TotalMemory }

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

// Snapshot implements mem.Snapshotter: a segment for each block, live or queued (then mem.Inactive). It sorts all
// blocks.
func (a *Allocator) Snapshot() []mem.SegmentInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]mem.SegmentInfo, 0, len(a.queue))
	for _, r := range a.live.All() {
		s := segmentOf(r, mem.ActiveAllocated)
		s.AllocatedSize, s.ActiveSize, s.RequestedSize = r.size, r.size, r.size
		out = append(out, s)
	}
	for i := range a.queue {
		out = append(out, segmentOf(&a.queue[i], mem.Inactive))
	}
	slices.SortFunc(out, func(x, y mem.SegmentInfo) int { return cmp.Compare(x.Ptr, y.Ptr) })
	return out
}

func segmentOf(r *block, state mem.BlockState) mem.SegmentInfo {
	return mem.SegmentInfo{
		Ptr: r.ptr, TotalSize: r.size, Stream: r.stream, Large: r.size > smallSize,
		Blocks: []mem.BlockInfo{{Ptr: r.ptr, Size: r.size, RequestedSize: r.size, State: state}},
	}
}

// Observe sets the receiver of every event; nil removes it. It runs under the allocator's lock: it must be quick and
// must not call the allocator. The free of a block completes at once, and that of its segment when the device has freed
// it.
func (a *Allocator) Observe(observer mem.Observer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.observer = observer
}

func (a *Allocator) observe(action mem.Action, r *block) {
	if a.observer != nil {
		a.observer(mem.Event{Action: action, Stream: r.stream, Ptr: r.ptr, Size: r.size})
	}
}

// outOfMemory returns the error for a request without room. The caller holds mu.
func (a *Allocator) outOfMemory(stream driver.StreamID, size int64, cause error) *mem.OutOfMemory {
	a.stats.NumOOMs++
	info := a.dev.Info()
	free, total, err := a.dev.Available()
	if err != nil {
		free, total = 0, info.TotalMemory
	}
	e := &mem.OutOfMemory{
		Requested: size, Rounded: size, Segment: size,
		Device: info.Ordinal, DeviceName: info.Name, Total: total, Free: free,
		Allowed:   a.cfg.Limit,
		Allocated: a.stats.AllocatedBytes.All.Current, Reserved: a.stats.ReservedBytes.All.Current,
		Stream: stream, Small: size <= smallSize,
		Cause: cause,
	}
	if errors.Is(cause, errLimit) {
		if cause == errLimit { // no other error occurred
			e.Cause = nil
		}
		e.Needed = e.Reserved + size
		if size <= free {
			e.Remedies = []mem.Remedy{{
				Name:   "limit=" + bytesize.Exact(e.Reserved+size),
				Reason: fmt.Sprintf("the device has %s left", mem.FormatSize(free)),
			}}
		}
	}
	if a.observer != nil {
		a.observer(mem.Event{Action: mem.ActionOOM, Stream: stream, Ptr: driver.Pointer(free), Size: size})
	}
	return e
}

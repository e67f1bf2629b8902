package paged

import (
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
)

// The statistics have one pool, that of large blocks: the allocator makes no difference. What processor caches hold
// counts as live below them; reports take it off.

// sums returns the sums of one block.
func (r *span) sums() stats.Sums { return stats.Block(r.size(), r.requested()) }

// A tally counts allocated blocks: their sums, and the bytes of the largest since the peaks were reset.
type tally struct {
	stats.Sums
	largest int64
}

func (t *tally) add(r *span) {
	t.Add(r.sums())
	t.largest = max(t.largest, r.size())
}

// live returns the sums of the blocks that are live or in processor caches.
func (a *Allocator) live() stats.Sums {
	s := a.allocated.Sums
	s.Sub(a.freed)
	return s
}

// countAlloc counts a block from below the processor caches, one of which is empty now.
func (a *Allocator) countAlloc(r *span) {
	a.allocated.add(r)
	a.peak.Max(a.live())
}

// lockAll takes the locks of all processor caches: that of the first, which is the allocator's, last.
func (a *Allocator) lockAll() {
	for i := len(a.caches.all) - 1; i >= 0; i-- {
		a.caches.all[i].mu.Lock()
	}
}

func (a *Allocator) unlockAll() {
	for i := range a.caches.all {
		a.caches.all[i].mu.Unlock()
	}
}

// Stats implements mem.StatsReporter. All blocks are in the large pool. AllocatedBytes counts rounded sizes,
// RequestedBytes the bytes requested, and ReservedBytes physical memory. Blocks are never pending. Waits are in
// PageStats, since none is for all streams. With several processors at work, the peaks of blocks and bytes include the
// few blocks in the caches of other processors.
func (a *Allocator) Stats() mem.Stats {
	a.lockAll()
	defer a.unlockAll()
	s := a.stats
	now, allocated := a.totals()
	for _, q := range []struct {
		to                                                 *mem.Stat
		now, peak, allocated, allocatedAtReset, nowAtReset int64
	}{
		{&s.Allocation.All, now.N, a.peak.N, allocated.N, a.allocatedAtReset.N, a.nowAtReset.N},
		{&s.AllocatedBytes.All, now.Bytes, a.peak.Bytes, allocated.Bytes, a.allocatedAtReset.Bytes, a.nowAtReset.Bytes},
		{
			&s.RequestedBytes.All,
			now.Requested, a.peak.Requested, allocated.Requested, a.allocatedAtReset.Requested, a.nowAtReset.Requested,
		},
	} {
		*q.to = mem.Stat{
			Current: q.now, Peak: max(q.now, q.peak),
			Allocated: q.allocated - q.allocatedAtReset,
			Freed:     q.allocated - q.allocatedAtReset + q.nowAtReset - q.now,
		}
	}
	s = stats.OnePool(s)
	s.LargestAlloc = a.allocated.largest
	for i := range a.caches.all {
		s.LargestAlloc = max(s.LargestAlloc, a.caches.all[i].allocated.largest)
	}
	return s
}

// totals returns the live blocks, and all blocks allocated so far. The caller holds every lock.
func (a *Allocator) totals() (now, allocated stats.Sums) {
	now, allocated = a.live(), a.allocated.Sums
	a.caches.each(func(at ref) { now.Sub(a.spans.at(at).sums()) })
	for i := range a.caches.all {
		allocated.Add(a.caches.all[i].allocated.Sums)
	}
	return now, allocated
}

// Capacity returns the bytes of the device's memory: see mem.FrameworkStatsOf.
func (a *Allocator) Capacity() int64 { return a.dev.Info().TotalMemory }

// ResetPeakStats implements mem.StatsReporter.
func (a *Allocator) ResetPeakStats() {
	a.lockAll()
	defer a.unlockAll()
	a.stats.ResetPeaks()
	a.drainCaches() // cached blocks are not live
	a.peak = a.live()
	a.allocated.largest = 0
	for i := range a.caches.all {
		a.caches.all[i].allocated.largest = 0
	}
}

// ResetAccumulatedStats implements mem.StatsReporter.
func (a *Allocator) ResetAccumulatedStats() {
	a.lockAll()
	defer a.unlockAll()
	a.stats.ResetAccumulated()
	a.nowAtReset, a.allocatedAtReset = a.totals()
}

// PageStats are statistics of physical memory, beside mem.Stats. Sizes are bytes.
type PageStats struct {
	Granule  int64 // the device's granularity
	Pages    int64 // pages of physical memory
	Mappings int64 // addresses at which they are mapped; those beyond Pages are aliases
	Reserved int64 // in pages, mapped or not
	Used     int64 // in pages that blocks touch
	Peak     int64 // peak of Used
	Stalls   int64 // waits of the host for work on memory that was to be unmapped
	Paused   int64 // in pages that Pause gave back to the driver; not in Reserved and Used
	Host     int64 // host memory with the contents of paused pages
}

// PageStats returns the statistics of physical memory.
func (a *Allocator) PageStats() PageStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	paused, host := a.pausedSizes()
	return PageStats{
		Granule:  a.granule,
		Pages:    int64(len(a.pages) - 1 - len(a.unusedPages)),
		Mappings: int64(len(a.mappings) - 1 - len(a.unusedMappings)),
		Reserved: a.created * a.granule, Used: a.used * a.granule, Peak: a.mostUsed * a.granule,
		Stalls: a.stalls, Paused: paused, Host: host,
	}
}

package paged

import (
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
)

// The statistics have one pool, that of large blocks: the allocator makes no difference. What processor caches hold
// counts as live below them; reports take it off.

// sums are blocks, their bytes, and what was asked for them.
type sums struct{ n, bytes, requested int64 }

func (s *sums) add(r *span) {
	s.n++
	s.bytes += r.size()
	s.requested += r.requested()
}

// A tally is what was lent, and the bytes of the largest block since the peaks were reset.
type tally struct {
	sums
	largest int64
}

func (t *tally) add(r *span) {
	t.sums.add(r)
	t.largest = max(t.largest, r.size())
}

// live is what is live or held.
func (a *Allocator) live() sums {
	return sums{a.allocated.n - a.freed.n, a.allocated.bytes - a.freed.bytes, a.allocated.requested - a.freed.requested}
}

// countAlloc counts a block from below the processor caches, one of which is empty now.
func (a *Allocator) countAlloc(r *span) {
	a.allocated.add(r)
	now := a.live()
	a.peak = sums{max(a.peak.n, now.n), max(a.peak.bytes, now.bytes), max(a.peak.requested, now.requested)}
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
// Figures, since none is for all streams. With several processors at work, the peaks of blocks and bytes include the
// few blocks in the caches of other processors.
func (a *Allocator) Stats() mem.Stats {
	a.lockAll()
	defer a.unlockAll()
	s := a.stats
	now, rose := a.totals()
	for _, q := range []struct {
		to                              *mem.Stat
		now, peak, rose, rose0, before0 int64
	}{
		{&s.Allocation.All, now.n, a.peak.n, rose.n, a.allocatedAtReset.n, a.nowAtReset.n},
		{&s.AllocatedBytes.All, now.bytes, a.peak.bytes, rose.bytes, a.allocatedAtReset.bytes, a.nowAtReset.bytes},
		{&s.RequestedBytes.All, now.requested, a.peak.requested, rose.requested, a.allocatedAtReset.requested, a.nowAtReset.requested},
	} {
		*q.to = mem.Stat{
			Current: q.now, Peak: max(q.now, q.peak),
			Allocated: q.rose - q.rose0, Freed: q.rose - q.rose0 + q.before0 - q.now,
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
func (a *Allocator) totals() (now, lent sums) {
	now, lent = a.live(), a.allocated.sums
	a.caches.each(func(at ref) {
		r := a.spans.at(at)
		now = sums{now.n - 1, now.bytes - r.size(), now.requested - r.requested()}
	})
	for i := range a.caches.all {
		l := &a.caches.all[i].allocated
		lent = sums{lent.n + l.n, lent.bytes + l.bytes, lent.requested + l.requested}
	}
	return now, lent
}

// Limit returns the bound of physical memory in bytes, in whole granules; 0 is no limit.
func (a *Allocator) Limit() int64 { return a.limit * a.granule }

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

// Figures are the counters of this package beside mem.Stats. Sizes are bytes.
type Figures struct {
	Granule  int64 // the device's granularity
	Pages    int64 // pages of physical memory
	Mappings int64 // addresses at which they are mapped; those beyond Pages are aliases
	Reserved int64 // in pages
	Used     int64 // in pages that blocks touch
	Peak     int64 // peak of Used
	Stalls   int64 // waits of the host for work on memory that was to be unmapped
}

// Figures returns the counters.
func (a *Allocator) Figures() Figures {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Figures{
		Granule: a.granule,
		Pages:   int64(len(a.pages) - 1 - len(a.unusedPages)), Mappings: int64(len(a.mappings) - 1 - len(a.unusedMappings)),
		Reserved: a.created * a.granule, Used: a.used * a.granule, Peak: a.mostUsed * a.granule,
		Stalls: a.stalls,
	}
}

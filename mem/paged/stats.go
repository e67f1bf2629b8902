package paged

import (
	"github.com/ashlar-go/ashlar/mem"
)

// The statistics have one pool, that of large blocks: the allocator makes no difference. What racks hold counts as on loan
// below them; reports take it off.

// sums are blocks, their bytes, and what was asked for them.
type sums struct{ n, bytes, asked int64 }

func (s *sums) add(r *span) {
	s.n++
	s.bytes += r.size()
	s.asked += r.asked()
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

// onLoan is what is on loan or held.
func (a *Allocator) onLoan() sums {
	return sums{a.rose.n - a.fell.n, a.rose.bytes - a.fell.bytes, a.rose.asked - a.fell.asked}
}

// countLoan counts a block from below the racks, one of which is empty now.
func (a *Allocator) countLoan(r *span) {
	a.rose.add(r)
	now := a.onLoan()
	a.peak = sums{max(a.peak.n, now.n), max(a.peak.bytes, now.bytes), max(a.peak.asked, now.asked)}
}

// lockAll takes the locks of all racks: that of the first, which is the allocator's, last.
func (a *Allocator) lockAll() {
	for i := len(a.racks.all) - 1; i >= 0; i-- {
		a.racks.all[i].mu.Lock()
	}
}

func (a *Allocator) unlockAll() {
	for i := range a.racks.all {
		a.racks.all[i].mu.Unlock()
	}
}

// Stats implements mem.StatsReporter. The pool is that of large blocks. AllocatedBytes are the sizes of blocks, rounded, and
// RequestedBytes what was asked for. ReservedBytes is physical memory. Blocks are never pending. Waits are in
// Figures, since none is for all streams. With several processors at work the peaks of blocks and their bytes include the few that the
// racks of others held.
func (a *Allocator) Stats() mem.Stats {
	a.lockAll()
	defer a.unlockAll()
	s := a.stats
	now, rose := a.totals()
	for _, q := range []struct {
		to                              *mem.Stat
		now, peak, rose, rose0, before0 int64
	}{
		{&s.Allocation.All, now.n, a.peak.n, rose.n, a.roseAtReset.n, a.nowAtReset.n},
		{&s.AllocatedBytes.All, now.bytes, a.peak.bytes, rose.bytes, a.roseAtReset.bytes, a.nowAtReset.bytes},
		{&s.RequestedBytes.All, now.asked, a.peak.asked, rose.asked, a.roseAtReset.asked, a.nowAtReset.asked},
	} {
		*q.to = mem.Stat{
			Current: q.now, Peak: max(q.now, q.peak),
			Allocated: q.rose - q.rose0, Freed: q.rose - q.rose0 + q.before0 - q.now,
		}
	}
	s.Active, s.ActiveBytes = s.Allocation, s.AllocatedBytes
	for _, named := range s.Arrays() {
		named.Array.LargePool = named.Array.All
	}
	s.MaxSplitSize = -1
	s.LargestAlloc = a.rose.largest
	for i := range a.racks.all {
		s.LargestAlloc = max(s.LargestAlloc, a.racks.all[i].lent.largest)
	}
	return s
}

// totals are what is on loan, and what was lent in all. The caller holds every lock.
func (a *Allocator) totals() (now, lent sums) {
	now, lent = a.onLoan(), a.rose.sums
	a.racks.held(func(at ref) {
		r := a.records.at(at)
		now = sums{now.n - 1, now.bytes - r.size(), now.asked - r.asked()}
	})
	for i := range a.racks.all {
		l := &a.racks.all[i].lent
		lent = sums{lent.n + l.n, lent.bytes + l.bytes, lent.asked + l.asked}
	}
	return now, lent
}

// Limit returns the bytes of physical memory that the allocator has at most, in whole granules; 0 is no limit.
func (a *Allocator) Limit() int64 { return a.limit * a.granule }

// Capacity returns the bytes of the device's memory: see mem.FrameworkStatsOf.
func (a *Allocator) Capacity() int64 { return a.dev.Info().TotalMemory }

// ResetPeakStats implements mem.StatsReporter.
func (a *Allocator) ResetPeakStats() {
	a.lockAll()
	defer a.unlockAll()
	a.stats.ResetPeaks()
	a.emptyRacks() // what they would lend is not on loan now
	a.peak = a.onLoan()
	a.rose.largest = 0
	for i := range a.racks.all {
		a.racks.all[i].lent.largest = 0
	}
}

// ResetAccumulatedStats implements mem.StatsReporter.
func (a *Allocator) ResetAccumulatedStats() {
	a.lockAll()
	defer a.unlockAll()
	a.stats.ResetAccumulated()
	a.nowAtReset, a.roseAtReset = a.totals()
}

// Figures are what an allocator of this package counts beside mem.Stats. Sizes are bytes.
type Figures struct {
	Granule  int64 // the device's granularity
	Pages    int64 // pages of physical memory that there are
	Mappings int64 // addresses that they are mapped at: those beyond Pages are aliases
	Reserved int64 // in pages
	Used     int64 // in pages that blocks touch
	Peak     int64 // the most that Used was
	Stalls   int64 // waits of the host for work on memory that was to be unmapped
}

// Figures returns them.
func (a *Allocator) Figures() Figures {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Figures{
		Granule: a.granule,
		Pages:   int64(len(a.pages) - 1 - len(a.vacant)), Mappings: int64(len(a.mappings) - 1 - len(a.unmapped)),
		Reserved: a.created * a.granule, Used: a.used * a.granule, Peak: a.mostUsed * a.granule,
		Stalls: a.stalls,
	}
}

package caching

import (
	"math"

	"github.com/ashlar-go/ashlar/mem"
)

// totals are the allocator's side of the statistics, guarded by Allocator.mu.
type totals struct {
	peak [numMetrics][numClasses]int64
	base [numMetrics][numClasses]struct{ total, freed int64 } // at the last reset of accumulated counters

	numAllocRetries, numOOMs, numSyncAllStreams, numDeviceAlloc, numDeviceFree, numOOMRejections int64
}

// foldPeaks brings the peaks up to date and deals out new caps. The caller holds mu and every shard's lock.
func (a *Allocator) foldPeaks() {
	a.notePeaks()
	n := int64(len(a.live))
	for metric := range numMetrics {
		for class := range numClasses {
			sum, _ := a.sum(metric, class)
			for _, sh := range a.live {
				h := sh.stats.heights(class)
				cur := sh.stats.current(metric, class)
				h.hi[metric] = cur
				h.cap[metric] = cur + (a.totals.peak[metric][class]-sum)/n
				if n == 1 {
					h.cap[metric] = math.MaxInt64
				}
			}
		}
	}
	for _, sh := range a.live {
		// What is allocated is active too, and is checked against the cap of active only here.
		for class := range numClasses {
			h := sh.stats.heights(class)
			h.cap[allocation] = min(h.cap[allocation], h.cap[active])
			h.cap[allocatedBytes] = min(h.cap[allocatedBytes], h.cap[activeBytes])
		}
		sh.stats.over = false
	}
}

// notePeaks raises the peaks to what the shards have seen.
func (a *Allocator) notePeaks() {
	for metric := range numMetrics {
		for class := range numClasses {
			peak := &a.totals.peak[metric][class]
			sum, _ := a.sum(metric, class)
			*peak = max(*peak, sum)
			for _, sh := range a.live {
				if hi, now := sh.stats.highest(metric, class); now {
					*peak = max(*peak, sum-sh.stats.current(metric, class)+hi)
				}
			}
		}
	}
}

// fold folds after a call that may have made a new peak. The caller holds no lock.
func (a *Allocator) fold() {
	a.mu.Lock()
	a.lockShards()
	a.foldPeaks()
	a.unlockShards()
	a.mu.Unlock()
}

// foldFor folds if the shard that the holder of mu has locked may have made a new peak.
func (a *Allocator) foldFor(sh *shard) {
	if sh.stats.over {
		a.lockShards()
		a.foldPeaks()
		a.unlockShards()
	}
}

// Stats returns the counters of all streams.
func (a *Allocator) Stats() mem.Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lockShards()
	defer a.unlockShards()
	return a.statsLocked()
}

func (a *Allocator) statsLocked() mem.Stats {
	a.foldPeaks()
	t := &a.totals
	s := mem.Stats{
		NumAllocRetries:   t.numAllocRetries,
		NumOOMs:           t.numOOMs,
		NumSyncAllStreams: t.numSyncAllStreams,
		NumDeviceAlloc:    t.numDeviceAlloc,
		NumDeviceFree:     t.numDeviceFree,
		NumOOMRejections:  t.numOOMRejections,
		MaxSplitSize:      a.cfg.MaxSplitSize,
	}
	if s.MaxSplitSize == Unlimited {
		s.MaxSplitSize = -1
	}
	for metric, named := range s.Arrays() {
		named.Array.All = a.stat(metric, classAll)
		named.Array.SmallPool = a.stat(metric, classSmall)
		named.Array.LargePool = a.stat(metric, classLarge)
	}
	s.OversizeAllocations = a.stat(oversizeAllocations, classAll)
	s.OversizeSegments = a.stat(oversizeSegments, classAll)
	for _, sh := range a.live {
		s.LargestAlloc = max(s.LargestAlloc, sh.stats.class[classSmall].largest, sh.stats.class[classLarge].largest)
	}
	return s
}

func (a *Allocator) stat(metric, class int) mem.Stat {
	cur, total := a.sum(metric, class)
	base := a.totals.base[metric][class]
	return mem.Stat{
		Current:   cur,
		Peak:      a.totals.peak[metric][class],
		Allocated: total - base.total,
		Freed:     total - cur - base.freed,
	}
}

func (a *Allocator) sum(metric, class int) (cur, total int64) {
	for _, sh := range a.live {
		cur += sh.stats.current(metric, class)
		total += sh.stats.risen(metric, class)
	}
	return cur, total
}

// ResetPeakStats sets every peak to the current value, and forgets the largest block.
func (a *Allocator) ResetPeakStats() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lockShards()
	defer a.unlockShards()
	a.foldPeaks()
	for metric := range numMetrics {
		for class := range numClasses {
			a.totals.peak[metric][class], _ = a.sum(metric, class)
		}
	}
	a.foldPeaks()
	for _, sh := range a.live {
		sh.stats.class[classSmall].largest, sh.stats.class[classLarge].largest = 0, 0
	}
	for _, pp := range a.private {
		pp.resetPeaks()
	}
}

// ResetAccumulatedStats sets the allocated and freed sides of every quantity, and the plain counters, to zero.
func (a *Allocator) ResetAccumulatedStats() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lockShards()
	defer a.unlockShards()
	for metric := range numMetrics {
		for class := range numClasses {
			cur, total := a.sum(metric, class)
			base := &a.totals.base[metric][class]
			base.total, base.freed = total, total-cur
		}
	}
	a.totals = totals{peak: a.totals.peak, base: a.totals.base}
	for _, pp := range a.private {
		pp.resetAccumulated()
	}
}

package caching

import (
	"math"

	"github.com/ashlar-go/ashlar/mem"
)

// totals are the allocator's part of the statistics, guarded by Allocator.mu.
type totals struct {
	peak  quantities
	sum   quantities                                           // over the shards, each as of its last visit
	slack quantities                                           // the shards' slack: at most peak - sum, once folded
	base  [numMetrics][numClasses]struct{ total, freed int64 } // at the last reset of accumulated counters

	visits int64 // of shards by foldChanged: a measure of its cost

	numAllocRetries, numOOMs, numSyncAllStreams, numDeviceAlloc, numDeviceFree, numOOMRejections int64
}

// foldPeaks updates the peaks and sets new caps in all shards. The caller holds mu and every shard's lock.
func (a *Allocator) foldPeaks() {
	a.takeChanged(nil)
	for _, sh := range a.live {
		a.totals.visit(sh)
		sh.stats.changed = false
	}
	a.notePeaks(a.live)
	share := a.totals.share(max(1, len(a.live)))
	a.setSlack(a.live, &share)
}

// foldChanged is foldPeaks, but visits only the shards that have changed since their last visit and, if their slack
// exceeds what is left, those that have slack. The cost of a visit of the first kind is charged to a change, and that
// of the second kind to an earlier visit that gave slack. So a call has few visits on average, however many streams
// there are. The caller holds mu and perhaps one shard.
func (a *Allocator) foldChanged() {
	visited := a.takeChanged(a.visited[:0])
	a.lockThese(visited)
	for _, sh := range visited {
		a.totals.visit(sh)
		sh.stats.changed = false
	}
	changed := len(visited)
	if a.totals.tooMuchSlack() {
		visited = a.takeHolders(visited)
		a.lockThese(visited[changed:])
		for _, sh := range visited[changed:] { // a shard that has changed since stays on that list
			a.totals.visit(sh)
		}
	}
	a.totals.visits += int64(len(visited))
	a.notePeaks(visited)
	a.setSlack(visited[changed:], &quantities{}) // otherwise each fold might have to take slack back from all of them
	share := a.totals.share(changed + 1)         // one part is left for others
	a.setSlack(visited[:changed], &share)
	a.unlockThese(visited)
	clear(visited)
	a.visited = visited[:0]
}

// takeChanged empties the list of changed shards and appends them to a slice. The caller visits them. Until then they
// do not put themselves on the list again.
func (a *Allocator) takeChanged(to []*shard) []*shard {
	for sh := a.changed.Swap(nil); sh != nil; {
		to = append(to, sh)
		sh, sh.stats.next = sh.stats.next, nil
	}
	return to
}

// takeHolders empties the list of shards with slack, and appends those that have some.
func (a *Allocator) takeHolders(to []*shard) []*shard {
	for _, sh := range a.holders {
		if sh.stats.holder = false; sh.stats.holds {
			to = append(to, sh)
		}
	}
	clear(a.holders)
	a.holders = a.holders[:0]
	return to
}

// visit adds the changes of a shard since its last visit to the sums, and takes its slack back. The caller holds mu
// and the shard.
func (t *totals) visit(sh *shard) {
	s := &sh.stats
	for metric := range numMetrics {
		for class := range numClasses {
			cur := s.current(metric, class)
			t.sum[metric][class] += cur - s.seen[metric][class]
			t.slack[metric][class] -= s.slack[metric][class]
			s.seen[metric][class], s.slack[metric][class] = cur, 0
		}
	}
	s.holds = false
}

// tooMuchSlack reports whether the shards have more slack than the difference between a sum and its peak.
func (t *totals) tooMuchSlack() bool {
	for metric := range numMetrics {
		for class := range numClasses {
			if t.slack[metric][class] > max(0, t.peak[metric][class]-t.sum[metric][class]) {
				return true
			}
		}
	}
	return false
}

// notePeaks raises the peaks to the highest values of shards that were just visited.
func (a *Allocator) notePeaks(visited []*shard) {
	for metric := range numMetrics {
		for class := range numClasses {
			peak, sum := &a.totals.peak[metric][class], a.totals.sum[metric][class]
			*peak = max(*peak, sum)
			for _, sh := range visited {
				if hi, now := sh.stats.highest(metric, class); now {
					*peak = max(*peak, sum-sh.stats.seen[metric][class]+hi)
				}
			}
		}
	}
}

// quantities hold one number for each counted quantity.
type quantities [numMetrics][numClasses]int64

// share returns one of so many equal parts of the slack that no shard has.
func (t *totals) share(parts int) (share quantities) {
	for metric := range numMetrics {
		for class := range numClasses {
			share[metric][class] = max(0, t.peak[metric][class]-t.sum[metric][class]-t.slack[metric][class]) /
				int64(parts)
		}
	}
	return share
}

// setSlack gives shards that were just visited the same slack, and sets their caps.
func (a *Allocator) setSlack(visited []*shard, slack *quantities) {
	alone, some := len(a.live) == 1, *slack != quantities{}
	for _, sh := range visited {
		sh.stats.setCaps(&a.totals, slack, alone)
		if sh.stats.holds = some; some && !sh.stats.holder {
			sh.stats.holder = true
			a.holders = append(a.holders, sh)
		}
	}
}

// setCaps sets the caps of a shard that was just visited. A shard that is alone has none.
func (s *shardStats) setCaps(t *totals, slack *quantities, alone bool) {
	for class := range numClasses {
		h := s.heights(class)
		for metric := range numMetrics {
			n := slack[metric][class]
			s.slack[metric][class] = n
			t.slack[metric][class] += n
			h.hi[metric] = s.seen[metric][class]
			h.cap[metric] = s.seen[metric][class] + n
			if alone {
				h.cap[metric] = math.MaxInt64
			}
		}
		// What is allocated is active too, and is checked against the cap of active only here.
		h.cap[allocation] = min(h.cap[allocation], h.cap[active])
		h.cap[allocatedBytes] = min(h.cap[allocatedBytes], h.cap[activeBytes])
	}
	s.over = false
}

// fold calls foldChanged after a call that may have made a new peak. The caller holds no lock.
func (a *Allocator) fold() {
	a.mu.Lock()
	a.foldChanged()
	a.mu.Unlock()
}

// foldFor calls foldChanged if the shard that the holder of mu has locked may have made a new peak.
func (a *Allocator) foldFor(sh *shard) {
	if sh.stats.over {
		a.foldChanged()
	}
}

// Stats returns the statistics of all streams.
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

// ResetPeakStats sets every peak to the current value, and the largest block to 0.
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

// ResetAccumulatedStats sets the allocated and freed totals of every quantity, and the plain counters, to zero.
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
	t := &a.totals
	t.numAllocRetries, t.numOOMs, t.numSyncAllStreams, t.numDeviceAlloc, t.numDeviceFree, t.numOOMRejections = 0, 0, 0,
		0, 0, 0
	for _, pp := range a.private {
		pp.resetAccumulated()
	}
}

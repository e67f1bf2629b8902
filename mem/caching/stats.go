package caching

import "math"

// The quantities that are counted, in the order of mem.Stats.Arrays and then the oversize pair.
const (
	allocation = iota
	segment
	active
	inactiveSplit
	allocatedBytes
	reservedBytes
	activeBytes
	inactiveSplitBytes
	requestedBytes
	oversizeAllocations
	oversizeSegments
	numMetrics
)

// Each is counted for the small pools and for the large; all is their sum.
const (
	classSmall = iota
	classLarge
	classAll
	numClasses
)

// shardStats are one shard's part of the statistics.
//
// Sums over the shards are computed on demand. The peak of a sum is not the sum of the peaks, and reading the other
// shards at each allocation would cost more than the allocation. So every counter has a cap, and over all shards the
// caps of a quantity add up to at most its peak: an allocation that stays under its cap cannot have made a new peak.
// An allocation over its cap sets over, and its caller folds: it locks the shards that have changed since their last
// visit, updates the sum and the peak, and divides the slack between the two into new caps (peaks.go). A shard lists
// itself as changed at its first change after a visit. A single stream has no cap and never folds. The peaks are exact
// for calls that do not overlap in time.
//
// Active blocks are the live and the pending ones. As long as nothing is pending, the two quantities are equal. So the
// counters of active and activeBytes count pending blocks only, and an allocation reads them only if they are not
// zero.
type shardStats struct {
	class   [2]classStats // small and large
	all     heights
	over    bool
	changed bool // since its last visit: it is on the allocator's list, or about to be visited
	owner   *shard

	// Guarded by Allocator.mu.
	seen  quantities // the values at its last visit
	slack quantities // caps less the values seen
	holds bool       // some slack is not 0

	holder bool   // it is on the list of shards with slack
	next   *shard // on the list of changed shards
}

// classStats are the counters of the pools of one class, guarded by the shard's lock.
type classStats struct {
	cur   [numMetrics]int64
	total [numMetrics]int64 // sum of all rises
	heights
	largest int64 // bytes of the largest block allocated since the peaks were reset
	other   *classStats
	shard   *shardStats
}

// heights are the highest values of the quantities.
type heights struct {
	hi  [numMetrics]int64 // since the last fold
	cap [numMetrics]int64 // while a quantity is at most this, it makes no new peak of the whole allocator
}

func (s *shardStats) init(owner *shard) {
	s.owner = owner
	for i := range s.class {
		s.class[i].shard, s.class[i].other = s, &s.class[1-i]
	}
}

// markChanged records that counters are about to change. A call that changes several counters calls it once. The
// caller holds the shard's lock.
func (s *shardStats) markChanged() {
	if !s.changed {
		s.enlist()
	}
}

// enlist puts the shard on the list of changed shards. The caller holds the shard's lock.
func (s *shardStats) enlist() {
	s.changed = true
	changed := &s.owner.a.changed
	for {
		s.next = changed.Load()
		if changed.CompareAndSwap(s.next, s.owner) {
			return
		}
	}
}

func (c *classStats) add(metric int, n int64) {
	cur := c.cur[metric] + n
	c.cur[metric] = cur
	c.total[metric] += n
	if cur > c.hi[metric] || cur+c.other.cur[metric] > c.shard.all.hi[metric] {
		c.raise(metric, metric)
	}
}

// countAllocation counts a block that becomes live: three calls of add in one.
func (c *classStats) countAllocation(size, requested int64) {
	n := c.cur[allocation] + 1
	bytes := c.cur[allocatedBytes] + size
	asked := c.cur[requestedBytes] + requested
	c.cur[allocation] = n
	c.cur[allocatedBytes] = bytes
	c.cur[requestedBytes] = asked
	c.total[allocation]++
	c.total[allocatedBytes] += size
	c.total[requestedBytes] += requested
	c.largest = max(c.largest, size)
	o, all := c.other, &c.shard.all
	if n > c.hi[allocation] || n+o.cur[allocation] > all.hi[allocation] {
		c.raise(allocation, allocation)
	}
	if bytes > c.hi[allocatedBytes] || bytes+o.cur[allocatedBytes] > all.hi[allocatedBytes] {
		c.raise(allocatedBytes, allocatedBytes)
	}
	if asked > c.hi[requestedBytes] || asked+o.cur[requestedBytes] > all.hi[requestedBytes] {
		c.raise(requestedBytes, requestedBytes)
	}
	if c.cur[active]|o.cur[active] != 0 {
		c.raise(active, allocation)
		c.raise(activeBytes, allocatedBytes)
	}
}

// countSplit counts a free block that shares its segment.
func (c *classStats) countSplit(size int64) {
	n := c.cur[inactiveSplit] + 1
	bytes := c.cur[inactiveSplitBytes] + size
	c.cur[inactiveSplit] = n
	c.cur[inactiveSplitBytes] = bytes
	c.total[inactiveSplit]++
	c.total[inactiveSplitBytes] += size
	o, all := c.other, &c.shard.all
	if n > c.hi[inactiveSplit] || n+o.cur[inactiveSplit] > all.hi[inactiveSplit] {
		c.raise(inactiveSplit, inactiveSplit)
	}
	if bytes > c.hi[inactiveSplitBytes] || bytes+o.cur[inactiveSplitBytes] > all.hi[inactiveSplitBytes] {
		c.raise(inactiveSplitBytes, inactiveSplitBytes)
	}
}

func (c *classStats) sub(metric int, n int64) { c.cur[metric] -= n }

// change adds a signed amount.
func (c *classStats) change(metric int, n int64) {
	if n > 0 {
		c.add(metric, n)
	} else {
		c.sub(metric, -n)
	}
}

// raise records a new highest value of a metric. For an active metric, of is the metric whose blocks are active too.
func (c *classStats) raise(metric, of int) {
	cur, all := c.cur[metric], c.cur[metric]+c.other.cur[metric]
	if of != metric {
		cur, all = cur+c.cur[of], all+c.cur[of]+c.other.cur[of]
	}
	c.hi[metric] = max(c.hi[metric], cur)
	c.shard.all.hi[metric] = max(c.shard.all.hi[metric], all)
	if cur > c.cap[metric] || all > c.shard.all.cap[metric] {
		c.shard.over = true
	}
}

// counted returns the metric whose blocks are part of an active metric but not counted under it, or the metric itself.
func counted(metric int) int {
	switch metric {
	case active:
		return allocation
	case activeBytes:
		return allocatedBytes
	}
	return metric
}

// current is the value of a quantity.
func (s *shardStats) current(metric, class int) int64 {
	if class == classAll {
		return s.current(metric, classSmall) + s.current(metric, classLarge)
	}
	c := &s.class[class]
	n := c.cur[metric]
	if of := counted(metric); of != metric {
		n += c.cur[of]
	}
	return n
}

func (s *shardStats) heights(class int) *heights {
	if class == classAll {
		return &s.all
	}
	return &s.class[class].heights
}

// highest returns the highest value since the last fold, and whether the other shards still have the values that they
// had then: this shard went over its cap in the last call, or there are no others.
func (s *shardStats) highest(metric, class int) (hi int64, now bool) {
	h := s.heights(class)
	of := counted(metric)
	for _, m := range []int{metric, of} {
		if h.hi[m] > h.cap[m] || h.cap[m] == math.MaxInt64 {
			hi, now = max(hi, h.hi[m]), true
		}
	}
	return hi, now
}

// risen returns the sum of all increases of a quantity.
func (s *shardStats) risen(metric, class int) int64 {
	metric = counted(metric)
	if class == classAll {
		return s.class[classSmall].total[metric] + s.class[classLarge].total[metric]
	}
	return s.class[class].total[metric]
}

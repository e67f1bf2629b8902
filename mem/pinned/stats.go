package pinned

import (
	"slices"
	"strconv"
	"time"

	"github.com/ashlar-go/ashlar/mem"
)

// Stats are the counters of an Allocator, by the names of torch.cuda.host_memory_stats(). Peaks are exact, unlike in
// PyTorch. The reserved segment counts as the blocks that were cut from it, except in HostAllocTime.
type Stats struct {
	BucketStats            // of all blocks
	HostAllocTime Duration // page-locking: AllocHost or Register
	HostFreeTime  Duration // unlocking: FreeHost or Unregister

	// LargestAlloc is the rounded size in bytes of the largest block allocated since the last reset of peaks. PyTorch
	// has no such key.
	LargestAlloc int64

	// BucketAllocation is the number of blocks of each bucket that came from the driver or the reserved segment:
	// bucket_allocation of PyTorch's HostStats. See BucketStats.
	BucketAllocation [maxBits + 1]int64
}

// BucketStats are the counters of the blocks of one bucket, or of all, as PyTorch's allocator keeps them.
type BucketStats struct {
	Allocations    mem.Stat // blocks that the allocator holds, live or not
	AllocatedBytes mem.Stat // their sizes, as rounded
	ActiveRequests mem.Stat // live blocks, and those whose free waits
	ActiveBytes    mem.Stat // their sizes, as rounded
}

// NumHostAlloc returns the number of blocks that came from the driver or the reserved segment.
func (s *Stats) NumHostAlloc() int64 { return s.Allocations.Allocated }

// NumHostFree returns the number of blocks that were freed to the driver.
func (s *Stats) NumHostFree() int64 { return s.Allocations.Freed }

// A Duration has the times that calls took, in microseconds of Config.Clock. Without a clock only Count rises.
type Duration struct {
	Total, Max, Min, Count int64
}

// Avg returns the mean, rounded down, or 0 if there were no calls.
func (d Duration) Avg() int64 {
	if d.Count == 0 {
		return 0
	}
	return d.Total / d.Count
}

// add counts a call. As in PyTorch, a minimum of 0 means none yet.
func (d *Duration) add(t time.Duration) {
	us := t.Microseconds()
	d.Total += us
	d.Count++
	d.Max = max(d.Max, us)
	if d.Min == 0 || us < d.Min {
		d.Min = us
	}
}

// Map returns the statistics under the keys of torch.cuda.host_memory_stats(), and, of buckets that had any
// blocks, BucketAllocation as bucket_allocation.0 and so on.
func (s Stats) Map() map[string]int64 {
	m := make(map[string]int64, 32)
	stat := func(name string, st mem.Stat) {
		m[name+".current"] = st.Current
		m[name+".peak"] = st.Peak
		m[name+".allocated"] = st.Allocated
		m[name+".freed"] = st.Freed
	}
	duration := func(name string, d Duration) {
		m[name+".total"] = d.Total
		m[name+".max"] = d.Max
		m[name+".min"] = d.Min
		m[name+".count"] = d.Count
		m[name+".avg"] = d.Avg()
	}
	stat("allocations", s.Allocations)
	stat("allocated_bytes", s.AllocatedBytes)
	stat("active_requests", s.ActiveRequests)
	stat("active_bytes", s.ActiveBytes)
	m["num_host_alloc"] = s.NumHostAlloc()
	m["num_host_free"] = s.NumHostFree()
	duration("host_alloc_time", s.HostAllocTime)
	duration("host_free_time", s.HostFreeTime)
	for i, n := range s.BucketAllocation {
		if n > 0 {
			m["bucket_allocation."+strconv.Itoa(i)] = n
		}
	}
	return m
}

// Stats returns the counters. It does not check whether pending frees are done.
func (a *Allocator) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stats
	for i := range a.buckets {
		s.BucketAllocation[i] = a.buckets[i].Allocations.Allocated
	}
	return s
}

// BucketStats returns the counters of each bucket: bucket n has the blocks of over 2^(n-1) and up to 2^n bytes. Their
// sums are those of Stats, except for peaks, which buckets reach at different times.
func (a *Allocator) BucketStats() []BucketStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.buckets[:])
}

// ResetPeakStats makes the present values the peaks, and forgets the largest block and the longest and shortest times.
func (a *Allocator) ResetPeakStats() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, st := range a.counters() {
		st.Peak = st.Current
	}
	a.stats.LargestAlloc = 0
	for _, d := range []*Duration{&a.stats.HostAllocTime, &a.stats.HostFreeTime} {
		d.Max, d.Min = 0, 0
	}
}

// ResetAccumulatedStats sets to zero the counters that only rise: the sums of rises and falls, the times and their
// counts.
func (a *Allocator) ResetAccumulatedStats() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, st := range a.counters() {
		st.Allocated, st.Freed = 0, 0
	}
	for _, d := range []*Duration{&a.stats.HostAllocTime, &a.stats.HostFreeTime} {
		d.Total, d.Count = 0, 0
	}
}

func (s *BucketStats) all() []*mem.Stat {
	return []*mem.Stat{&s.Allocations, &s.AllocatedBytes, &s.ActiveRequests, &s.ActiveBytes}
}

// counters returns all counters of blocks and bytes. The caller holds mu.
func (a *Allocator) counters() []*mem.Stat {
	all := a.stats.all()
	for i := range a.buckets {
		all = append(all, a.buckets[i].all()...)
	}
	return all
}

// countHeld counts a new (1) or freed (-1) block of the allocator, and countActive a block that became live or was
// freed. The caller holds mu.
func (a *Allocator) countHeld(r *piece, n int64) {
	b := &a.buckets[bucket(r.size())]
	count(&a.stats.Allocations, &b.Allocations, n)
	count(&a.stats.AllocatedBytes, &b.AllocatedBytes, n*r.size())
}

func (a *Allocator) countActive(r *piece, n int64) {
	b := &a.buckets[bucket(r.size())]
	count(&a.stats.ActiveRequests, &b.ActiveRequests, n)
	count(&a.stats.ActiveBytes, &b.ActiveBytes, n*r.size())
}

func count(sum, bucket *mem.Stat, n int64) {
	for _, st := range [...]*mem.Stat{sum, bucket} {
		if n > 0 {
			st.Increase(n)
		} else {
			st.Decrease(-n)
		}
	}
}

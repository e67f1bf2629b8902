package magazine

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// reporting returns the allocator below with its statistics and its snapshot, if it has them, corrected for cached
// blocks.
func (c *Cache) reporting() mem.Allocator {
	reporter, counts := mem.Find[mem.StatsReporter](c.below)
	snapshotter, snapshots := mem.Find[mem.Snapshotter](c.below)
	switch below := (inner{c.below}); {
	case counts && snapshots:
		return struct {
			inner
			statistics
			segments
		}{below, statistics{c, reporter, snapshotter}, segments{c, snapshotter}}
	case counts:
		return struct {
			inner
			statistics
		}{below, statistics{c, reporter, nil}}
	case snapshots:
		return struct {
			inner
			segments
		}{below, segments{c, snapshotter}}
	}
	return c.below
}

type inner struct{ mem.Allocator }

// Unwrap implements mem.Wrapper.
func (l inner) Unwrap() mem.Allocator { return l.Allocator }

// statistics are those of the allocator below with cached blocks as inactive ones. Peaks are those of the allocator
// below: they include the blocks that were cached at the time. That of requested bytes has each block at the request
// for which the allocator below gave it, so it may be too low if later requests for the block are larger.
type statistics struct {
	c         *Cache
	reporter  mem.StatsReporter
	snapshots mem.Snapshotter // nil if the allocator below has none
}

// Stats implements mem.StatsReporter. If blocks are cached, it takes as long as a snapshot.
func (s statistics) Stats() mem.Stats {
	c := s.c
	c.lockAll()
	defer c.unlockAll()
	stats := s.reporter.Stats()
	now := c.sum()
	for i := range now {
		held, heldAtReset := now[i].held(), c.base[i].held()
		risen := now[i].allocated
		risen.Sub(c.base[i].allocated)
		fallen := risen
		fallen.Add(held)
		fallen.Sub(heldAtReset)
		for _, a := range []*mem.StatArray{&stats.Allocation, &stats.Active} {
			shift(a, i, -held.N, risen.N, fallen.N)
		}
		for _, a := range []*mem.StatArray{&stats.AllocatedBytes, &stats.ActiveBytes} {
			shift(a, i, -held.Bytes, risen.Bytes, fallen.Bytes)
		}
		shift(&stats.RequestedBytes, i, -held.Requested, risen.Requested, fallen.Requested)
	}
	if s.snapshots != nil && now[0].held().N+now[1].held().N > 0 {
		for i, split := range c.split(s.snapshots.Snapshot()) {
			shift(&stats.InactiveSplit, i, split.N, split.N, 0)
			shift(&stats.InactiveSplitBytes, i, split.Bytes, split.Bytes, 0)
		}
	}
	return stats
}

// shift changes a quantity, of small blocks or (pool 1) of large.
func shift(a *mem.StatArray, pool int, current, risen, fallen int64) {
	for _, st := range []*mem.Stat{&a.All, []*mem.Stat{&a.SmallPool, &a.LargePool}[pool]} {
		st.Current += current
		st.Allocated += risen
		st.Freed += fallen
		st.Peak = max(st.Peak, st.Current)
	}
}

// split adds up the cached blocks that share their segments, small and large. The caller holds every lock.
func (c *Cache) split(snapshot []mem.SegmentInfo) (sums [2]stats.Sums) {
	records := c.blocks.byAddress()
	for i := range snapshot {
		seg := &snapshot[i]
		if seg.Expandable || len(seg.Blocks) == 1 {
			continue
		}
		sum := &sums[0]
		if seg.Large {
			sum = &sums[1]
		}
		for _, b := range seg.Blocks {
			if r := records[b.Ptr]; b.State == mem.ActiveAllocated && r != nil && !r.live() {
				sum.Add(stats.Block(b.Size, 0))
			}
		}
	}
	return sums
}

// ResetPeakStats implements mem.StatsReporter.
func (s statistics) ResetPeakStats() { s.reporter.ResetPeakStats() }

// ResetAccumulatedStats implements mem.StatsReporter.
func (s statistics) ResetAccumulatedStats() {
	s.c.lockAll()
	defer s.c.unlockAll()
	s.reporter.ResetAccumulatedStats()
	s.c.base = s.c.sum()
}

// segments are those of the allocator below with cached blocks as inactive ones, which may lie beside other inactive
// blocks, and with the requested sizes of the live blocks.
type segments struct {
	c         *Cache
	snapshots mem.Snapshotter
}

// Snapshot implements mem.Snapshotter.
func (s segments) Snapshot() []mem.SegmentInfo {
	c := s.c
	c.lockAll()
	defer c.unlockAll()
	snapshot := s.snapshots.Snapshot()
	records := c.blocks.byAddress()
	for i := range snapshot {
		seg := &snapshot[i]
		for j := range seg.Blocks {
			b := &seg.Blocks[j]
			r := records[b.Ptr]
			if r == nil || b.State != mem.ActiveAllocated {
				continue
			}
			seg.RequestedSize += int64(r.requested) - b.RequestedSize
			b.RequestedSize = int64(r.requested)
			if !r.live() {
				b.State = mem.Inactive
				seg.AllocatedSize -= b.Size
				seg.ActiveSize -= b.Size
				seg.RequestedSize -= b.RequestedSize
			}
		}
	}
	return snapshot
}

// SlowSizes implements layer.SlowSizer. Blocks of over Options.MaxSize bytes are those of the allocator below.
func (c *Cache) SlowSizes(p driver.Pointer) (requested, allocated int64, ok bool) {
	c.lockAll()
	defer c.unlockAll()
	r := c.blocks.byAddress()[p]
	switch {
	case r == nil:
		return layer.SlowSizes(c.below, p)
	case !r.live():
		return 0, 0, false
	}
	return int64(r.requested), r.block.Size, true
}

// byAddress returns the entries in use. The caller holds every processorCache.
func (rs *blockTable) byAddress() map[driver.Pointer]*blockEntry {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	m := make(map[driver.Pointer]*blockEntry)
	for _, chunk := range *rs.chunks.Load() {
		for i := range chunk {
			r := &chunk[i]
			// An evicted block can have a second entry, for the next block in its memory, which counts.
			if r.block.Ptr != 0 && (m[r.block.Ptr] == nil || r.live()) {
				m[r.block.Ptr] = r
			}
		}
	}
	return m
}

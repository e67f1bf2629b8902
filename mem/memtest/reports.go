package memtest

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// checkReports checks that the statistics, the snapshot and the model are equal. Its time grows with the number of
// blocks, so it checks at every call while there are fewer than 16, at every second call while fewer than 32, and so
// on, or always if always is set. A shrunk history has few blocks.
func (w *model) checkReports(always bool) error {
	w.reportChecks++
	if !always && w.reportChecks%(1+len(w.live)/16) != 0 {
		return nil
	}
	var segments []mem.SegmentInfo
	snapshotter, snapshots := mem.Find[mem.Snapshotter](w.a)
	if snapshots {
		segments = snapshotter.Snapshot()
		if err := w.checkSnapshot(segments); err != nil {
			return err
		}
	}
	reporter, reports := mem.Find[mem.StatsReporter](w.a)
	if !reports {
		return nil
	}
	stats := reporter.Stats()
	if err := w.checkStats(&stats); err != nil {
		return err
	}
	if snapshots {
		return checkSums(&stats, segments)
	}
	return nil
}

// checkSnapshot checks that blocks tile segments, that segments add their blocks up, and that the live blocks are those
// of the model.
func (w *model) checkSnapshot(segments []mem.SegmentInfo) error {
	var end driver.Pointer
	live := 0
	for i := range segments {
		seg := &segments[i]
		if seg.Ptr < end {
			return fmt.Errorf("snapshot: segment %d at %#x is below the end %#x of the one before it",
				i, uint64(seg.Ptr), uint64(end))
		}
		end = seg.Ptr + driver.Pointer(seg.TotalSize)
		at := seg.Ptr
		var allocated, active, requested int64
		for j := range seg.Blocks {
			b := &seg.Blocks[j]
			if b.Ptr != at || b.Size <= 0 {
				return fmt.Errorf("snapshot: block %d of the segment at %#x is %d bytes at %#x; the one before "+
					"ends at %#x",
					j, uint64(seg.Ptr), b.Size, uint64(b.Ptr), uint64(at))
			}
			at += driver.Pointer(b.Size)
			switch b.State {
			case mem.ActiveAllocated:
				allocated += b.Size
				active += b.Size
				requested += b.RequestedSize
				if live == len(w.live) || w.live[live].Ptr != b.Ptr {
					return fmt.Errorf("snapshot: %d bytes at %#x are said to be allocated, and are not", b.Size,
						uint64(b.Ptr))
				}
				m := w.live[live]
				if m.Size != b.Size || m.requested != b.RequestedSize {
					return fmt.Errorf("snapshot: %d bytes, %d asked for, at %#x: that is %v, %d asked for",
						b.Size, b.RequestedSize, uint64(b.Ptr), m, m.requested)
				}
				live++
			case mem.ActivePendingFree:
				active += b.Size
				requested += b.RequestedSize
			case mem.Inactive:
			default:
				return fmt.Errorf("snapshot: block at %#x has state %v", uint64(b.Ptr), b.State)
			}
		}
		if at != end {
			return fmt.Errorf("snapshot: the blocks of the segment at %#x end at %#x, it ends at %#x",
				uint64(seg.Ptr), uint64(at), uint64(end))
		}
		if allocated != seg.AllocatedSize || active != seg.ActiveSize || requested != seg.RequestedSize {
			return fmt.Errorf("snapshot: the segment at %#x says allocated %d, active %d, requested %d; its blocks "+
				"add up to %d, %d, %d", uint64(seg.Ptr), seg.AllocatedSize, seg.ActiveSize, seg.RequestedSize,
				allocated, active, requested)
		}
	}
	if live < len(w.live) {
		return fmt.Errorf("snapshot: the live %v is not in it, or not live", w.live[live])
	}
	return nil
}

// checkSlowSizes checks the sizes that the allocator finds by live blocks' addresses, if it can.
func (w *model) checkSlowSizes() error {
	for _, b := range w.live {
		requested, allocated, ok := layer.SlowSizes(w.a, b.Ptr)
		if ok && (requested != b.requested || allocated != b.Size) {
			return fmt.Errorf("SlowSizes: %d bytes asked for and %d allocated: that is %v, %d asked for",
				requested, allocated, b, b.requested)
		}
		if !ok && w.tellsSizes() {
			return fmt.Errorf("SlowSizes does not find the live %v", b)
		}
	}
	return nil
}

// tellsSizes reports whether the allocator finds the sizes of blocks by address.
func (w *model) tellsSizes() bool {
	_, sizes := mem.Find[layer.SlowSizer](w.a)
	_, snapshots := mem.Find[mem.Snapshotter](w.a)
	return sizes || snapshots
}

// checkStats checks the statistics for consistency and against the model.
func (w *model) checkStats(s *mem.Stats) error {
	for _, a := range s.Arrays() {
		for _, part := range []struct {
			name string
			now  mem.Stat
		}{{"all", a.Array.All}, {"small_pool", a.Array.SmallPool}, {"large_pool", a.Array.LargePool}} {
			st := part.now
			if st.Current < 0 || st.Peak < st.Current || st.Allocated < 0 || st.Freed < 0 {
				return fmt.Errorf("stats: %s.%s is %+v: want 0 <= current <= peak", a.Name, part.name, st)
			}
			if !w.reset && st.Allocated-st.Freed != st.Current {
				return fmt.Errorf("stats: %s.%s is %+v: want allocated - freed = current", a.Name, part.name, st)
			}
		}
		all, sum := a.Array.All, a.Array.SmallPool.Current+a.Array.LargePool.Current
		if all.Current != sum {
			return fmt.Errorf("stats: %s: %d in all, %d in the pools", a.Name, all.Current, sum)
		}
	}
	for _, of := range []struct {
		name         string
		got          mem.Stat
		want, atPeak int64
		pending      bool // it includes blocks that are freed and still in use
	}{
		{"live blocks", s.Allocation.All, w.sums.blocks, w.peak.blocks, false},
		{"bytes live", s.AllocatedBytes.All, w.sums.bytes, w.peak.bytes, false},
		{"requested bytes live", s.RequestedBytes.All, w.sums.requested, w.peak.requested, true},
	} {
		if of.got.Current < of.want || of.got.Current > of.want && !of.pending {
			return fmt.Errorf("stats: %d %s, want %d", of.got.Current, of.name, of.want)
		}
		if of.got.Peak < of.atPeak && !(of.pending && w.cfg.LowRequestedPeak) {
			return fmt.Errorf("stats: the peak of %s is %d: there were %d", of.name, of.got.Peak, of.atPeak)
		}
	}
	if s.Active.All.Current < s.Allocation.All.Current || s.ReservedBytes.All.Current < s.ActiveBytes.All.Current {
		return fmt.Errorf("stats: active %d, allocated %d blocks; reserved %d, active %d bytes", s.Active.All.Current,
			s.Allocation.All.Current, s.ReservedBytes.All.Current, s.ActiveBytes.All.Current)
	}
	return nil
}

// checkSums checks that the sums over the snapshot, by pool, are the statistics (behaviour 9).
func checkSums(s *mem.Stats, segments []mem.SegmentInfo) error {
	type sums [9]int64 // in the order of mem.Stats.Arrays
	var small, large sums
	for i := range segments {
		seg := &segments[i]
		sum := &small
		if seg.Large {
			sum = &large
		}
		if !seg.Expandable {
			sum[1]++
		}
		sum[4] += seg.AllocatedSize
		sum[5] += seg.TotalSize
		sum[6] += seg.ActiveSize
		sum[8] += seg.RequestedSize
		for j := range seg.Blocks {
			b := &seg.Blocks[j]
			switch {
			case b.State == mem.ActiveAllocated:
				sum[0]++
				sum[2]++
			case b.State == mem.ActivePendingFree:
				sum[2]++
			case !seg.Expandable && len(seg.Blocks) > 1:
				sum[3]++
				sum[7] += b.Size
			}
		}
	}
	for i, a := range s.Arrays() {
		if a.Array.SmallPool.Current != small[i] || a.Array.LargePool.Current != large[i] {
			return fmt.Errorf("stats: %s is %d in small pools and %d in large; the snapshot adds up to %d and %d",
				a.Name, a.Array.SmallPool.Current, a.Array.LargePool.Current, small[i], large[i])
		}
	}
	return nil
}

package planned

import (
	"cmp"
	"iter"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// Counts are numbers of requests since New.
type Counts struct {
	Served int64 // from the region
	Missed int64 // passed to the fallback, whether it had room or not
	Found  int64 // number of times that a stream's position was found again
}

// Counts returns the numbers of requests.
func (a *Allocator) Counts() Counts {
	c := Counts{Missed: a.missed.Load()}
	for i := range a.streams {
		l := &a.streams[i]
		l.lock()
		c.Served += l.total.N
		c.Found += l.finds
		l.unlock()
	}
	return c
}

// A liveBlock is a live block of the region.
type liveBlock struct {
	slot  int
	asked int64
}

// liveBlocks visits the live blocks. The caller holds the mutex.
func (l *streamAllocator) liveBlocks() iter.Seq[liveBlock] {
	return func(yield func(liveBlock) bool) {
		visit := func(k int) bool {
			asked := l.keys[k] & sizeMask
			if l.requested != nil {
				asked = -l.requested[k].Load() // lock counted it
			}
			return yield(liveBlock{k, asked})
		}
		for k := range l.allPlanLive(l.pos) {
			if l.live(int(k)) && !visit(int(k)) {
				return
			}
		}
		for _, s := range l.overdue {
			if !s.pending && !visit(s.slot) {
				return
			}
		}
	}
}

// count updates the region's statistics and describes the region. The caller holds the mutex.
func (a *Allocator) count() []mem.BlockInfo {
	var blocks []mem.BlockInfo
	var now, served, peak stats.Sums
	for i := range a.streams {
		l := &a.streams[i]
		l.lock()
		var live stats.Sums
		for b := range l.liveBlocks() {
			p := &l.slots[b.slot]
			blocks = append(blocks, mem.BlockInfo{
				Ptr: p.ptr, Size: p.size(), RequestedSize: b.asked,
				State: mem.ActiveAllocated,
			})
			live.Add(stats.Block(p.size(), b.asked))
		}
		now.Add(live)
		served.Add(l.total)
		peak.Add(l.peak)
		l.peak = live // while the others' sums rise
		a.stats.LargestAlloc = max(a.stats.LargestAlloc, l.largest)
		l.largest = 0
		l.unlock()
	}
	slices.SortFunc(blocks, func(x, y mem.BlockInfo) int { return cmp.Compare(x.Ptr, y.Ptr) })
	tiled := make([]mem.BlockInfo, 0, 2*len(blocks)+1)
	at := a.base
	var holes, hollow int64
	for _, b := range append(blocks, mem.BlockInfo{Ptr: a.base + driver.Pointer(a.size)}) {
		if b.Ptr > at {
			tiled = append(tiled, mem.BlockInfo{Ptr: at, Size: int64(b.Ptr - at)})
			holes++
			hollow += int64(b.Ptr - at)
		}
		if b.Size > 0 {
			tiled = append(tiled, b)
		}
		at = b.Ptr + driver.Pointer(b.Size)
	}
	if now.N == 0 {
		holes, hollow = 0, 0
	}
	s := &a.stats
	update(&s.Allocation.All, now.N, served.N-a.counted.N, peak.N)
	update(&s.AllocatedBytes.All, now.Bytes, served.Bytes-a.counted.Bytes, peak.Bytes)
	update(&s.RequestedBytes.All, now.Requested, served.Requested-a.counted.Requested, peak.Requested)
	a.counted = served
	setCurrent(&s.InactiveSplit.All, holes)
	setCurrent(&s.InactiveSplitBytes.All, hollow)
	var segments, reserved int64
	if a.region {
		segments, reserved = 1, int64(a.size)
	}
	if segments > s.Segment.All.Current {
		s.NumDeviceAlloc++
	}
	if segments < s.Segment.All.Current {
		s.NumDeviceFree++
	}
	setCurrent(&s.Segment.All, segments)
	setCurrent(&s.ReservedBytes.All, reserved)
	return tiled
}

// update sets the current value after an increase of came. The peak is at most peak, that of the plan, and at most the
// value without any frees.
func update(s *mem.Stat, now, came, peak int64) {
	peak = min(peak, s.Current+came)
	s.Allocated += came
	s.Freed += came - (now - s.Current)
	s.Current = now
	s.Peak = max(s.Peak, now, peak)
}

// setCurrent sets the current value.
func setCurrent(s *mem.Stat, now int64) { update(s, now, max(0, now-s.Current), 0) }

// Stats implements mem.StatsReporter: the region's statistics, all in the large pool, plus the fallback's, if it
// reports them. Live blocks are counted during the call, which takes time in proportion to their number. Peaks may be
// too high, but never too low: they are those of the plan for the served requests, as if blocks were freed when the
// plan expects it, or the value without any frees since the last call, if that is less. Peaks of the streams and of the
// fallback are added, although they may have occurred at different times.
func (a *Allocator) Stats() mem.Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total()
}

func (a *Allocator) total() mem.Stats {
	a.count()
	s := stats.OnePool(a.stats)
	below, ok := mem.Find[mem.StatsReporter](a.fallback)
	if !ok {
		return s
	}
	f := below.Stats()
	own := s.Arrays()
	for i, named := range f.Arrays() {
		add(&named.Array.All, &own[i].Array.All)
		add(&named.Array.LargePool, &own[i].Array.LargePool)
	}
	f.NumDeviceAlloc += s.NumDeviceAlloc
	f.NumDeviceFree += s.NumDeviceFree
	f.LargestAlloc = max(f.LargestAlloc, s.LargestAlloc)
	return f
}

func add(s, t *mem.Stat) {
	s.Current += t.Current
	s.Peak += t.Peak
	s.Allocated += t.Allocated
	s.Freed += t.Freed
}

// Capacity returns the bytes of the device's memory: see mem.FrameworkStatsOf.
func (a *Allocator) Capacity() int64 { return a.dev.Info().TotalMemory }

// ResetPeakStats implements mem.StatsReporter.
func (a *Allocator) ResetPeakStats() {
	a.reset((*mem.Stats).ResetPeaks, mem.StatsReporter.ResetPeakStats)
}

// ResetAccumulatedStats implements mem.StatsReporter.
func (a *Allocator) ResetAccumulatedStats() {
	a.reset((*mem.Stats).ResetAccumulated, mem.StatsReporter.ResetAccumulatedStats)
}

func (a *Allocator) reset(own func(*mem.Stats), below func(mem.StatsReporter)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count()
	own(&a.stats)
	if f, ok := mem.Find[mem.StatsReporter](a.fallback); ok {
		below(f)
	}
}

// Snapshot implements mem.Snapshotter: the region is one segment. The others are the fallback's, if it describes them.
func (a *Allocator) Snapshot() []mem.SegmentInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []mem.SegmentInfo
	if blocks := a.count(); a.region {
		out = append(out, mem.SegmentInfo{
			Ptr: a.base, TotalSize: int64(a.size), Large: true, Blocks: blocks,
			AllocatedSize: a.stats.AllocatedBytes.All.Current,
			ActiveSize:    a.stats.AllocatedBytes.All.Current,
			RequestedSize: a.stats.RequestedBytes.All.Current,
		})
	}
	if f, ok := mem.Find[mem.Snapshotter](a.fallback); ok {
		out = append(out, f.Snapshot()...)
		slices.SortFunc(out, func(x, y mem.SegmentInfo) int { return cmp.Compare(x.Ptr, y.Ptr) })
	}
	return out
}

// SlowSizes implements layer.SlowSizer. It passes addresses outside the region to the fallback.
func (a *Allocator) SlowSizes(p driver.Pointer) (requested, allocated int64, ok bool) {
	if uint64(p-a.base) >= a.size {
		return layer.SlowSizes(a.fallback, p)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.count() {
		if b.Ptr == p && b.State == mem.ActiveAllocated {
			return b.RequestedSize, b.Size, true
		}
	}
	return 0, 0, false
}

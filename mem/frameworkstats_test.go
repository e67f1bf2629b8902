package mem_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/mem"
)

// filledStats are statistics in which every figure is another one.
func filledStats() (s mem.Stats) {
	n := int64(0)
	fill := func(st *mem.Stat) {
		*st = mem.Stat{Current: n + 1, Peak: n + 2, Allocated: n + 3, Freed: n + 4}
		n += 10
	}
	for _, q := range s.Arrays() {
		fill(&q.Array.All)
		fill(&q.Array.SmallPool)
		fill(&q.Array.LargePool)
	}
	fill(&s.OversizeAllocations)
	fill(&s.OversizeSegments)
	for _, count := range []*int64{
		&s.NumAllocRetries, &s.NumOOMs, &s.NumSyncAllStreams, &s.NumDeviceAlloc, &s.NumDeviceFree, &s.NumOOMRejections,
		&s.MaxSplitSize, &s.LargestAlloc,
	} {
		n++
		*count = n
	}
	return s
}

func TestResetsOfStats(t *testing.T) {
	s := filledStats()
	before := s.Map()
	s.ResetPeaks()
	for key, got := range s.Map() {
		want := before[key]
		if of, ok := strings.CutSuffix(key, ".peak"); ok {
			want = before[of+".current"]
		}
		if got != want {
			t.Errorf("after ResetPeaks, %s is %d, want %d", key, got, want)
		}
	}
	if s.LargestAlloc != 0 {
		t.Errorf("after ResetPeaks, the largest block has %d bytes", s.LargestAlloc)
	}
	s = filledStats()
	s.ResetAccumulated()
	for key, got := range s.Map() {
		want := before[key]
		if strings.HasSuffix(key, ".allocated") || strings.HasSuffix(key, ".freed") || strings.HasPrefix(key, "num_") {
			want = 0
		}
		if got != want {
			t.Errorf("after ResetAccumulated, %s is %d, want %d", key, got, want)
		}
	}
	if s.LargestAlloc != filledStats().LargestAlloc {
		t.Errorf("after ResetAccumulated, the largest block has %d bytes", s.LargestAlloc)
	}
}

// The statistics of the topmost layer that has some are returned, with the lowest limit of all layers.
func TestFrameworkStatsOf(t *testing.T) {
	s := filledStats()
	plain := &plainAllocator{}
	blocks := func(sizes ...int64) (all []mem.BlockInfo) {
		for i, size := range sizes {
			all = append(all, mem.BlockInfo{Size: size, State: mem.BlockState(i % 3)}) // the first is free, and the fourth
		}
		return all
	}
	free := snapshotOf{above{plain}, []mem.SegmentInfo{{Blocks: blocks(5, 90, 91, 3)}, {Blocks: blocks(7)}, {Blocks: blocks(4)}}}
	stats := func(a mem.Allocator) mem.Allocator { return statsOf{above{a}, s} }
	want := map[string]int64{
		"num_allocs": s.Allocation.All.Allocated, "bytes_in_use": s.AllocatedBytes.All.Current,
		"peak_bytes_in_use": s.AllocatedBytes.All.Peak, "largest_alloc_size": s.LargestAlloc,
		"bytes_reserved": s.ReservedBytes.All.Current, "peak_bytes_reserved": s.ReservedBytes.All.Peak,
		"pool_bytes": s.ReservedBytes.All.Current, "peak_pool_bytes": s.ReservedBytes.All.Peak,
		"largest_free_block_bytes": 7,
	}
	nine, eleven := int64(9), int64(11)
	for name, c := range map[string]struct {
		a     mem.Allocator
		limit int64 // 0: none
		own   bool  // the statistics of a FrameworkReporter
	}{
		"no limit":                       {a: stats(free)},
		"a limit below":                  {a: stats(limited(free, 8)), limit: 8},
		"a limit above":                  {a: limited(stats(free), 8), limit: 8},
		"the size of the memory":         {a: stats(capacityOf{above{free}, 6}), limit: 6},
		"a limit below the size":         {a: limited(stats(capacityOf{above{free}, 6}), 5), limit: 5},
		"a limit above the size":         {a: limited(stats(capacityOf{above{free}, 6}), 7), limit: 6},
		"a reporter on top":              {a: frameworksOf{above{stats(free)}, mem.FrameworkStats{NumAllocs: 3}}, own: true},
		"a reporter's own, lower limit":  {a: limited(frameworksOf{above{plain}, mem.FrameworkStats{NumAllocs: 3, BytesLimit: &nine}}, 10), own: true, limit: 9},
		"a reporter's own, higher limit": {a: limited(frameworksOf{above{plain}, mem.FrameworkStats{NumAllocs: 3, BytesLimit: &eleven}}, 10), own: true, limit: 10},
		"a reporter below":               {a: stats(frameworksOf{above{free}, mem.FrameworkStats{NumAllocs: 3}})},
	} {
		got, ok := mem.FrameworkStatsOf(c.a)
		expected := maps.Clone(want)
		if c.own {
			expected = mem.FrameworkStats{NumAllocs: 3}.Map()
		}
		if c.limit != 0 {
			expected["bytes_limit"] = c.limit
		}
		if !ok || !maps.Equal(got.Map(), expected) {
			t.Errorf("%s: %v, %v; want %v", name, got.Map(), ok, expected)
		}
	}
	if got, ok := mem.FrameworkStatsOf(limited(plain, 5)); ok || got != (mem.FrameworkStats{}) {
		t.Errorf("without statistics: %+v, %v", got, ok)
	}
	if got, ok := mem.FrameworkStatsOf(stats(plain)); !ok || got.LargestFreeBlockBytes != 0 {
		t.Errorf("without a snapshot: %+v, %v", got, ok)
	}
}

func TestFrameworkStatsAsText(t *testing.T) {
	limit := int64(10)
	s := mem.FrameworkStats{
		NumAllocs: 1, BytesInUse: 2, PeakBytesInUse: 3, LargestAllocSize: 4, BytesLimit: &limit, BytesReserved: 5, PeakBytesReserved: 6,
		LargestFreeBlockBytes: 7, PoolBytes: 8, PeakPoolBytes: 9,
	}
	const want = `num_allocs:                                 1
bytes_in_use:                               2
peak_bytes_in_use:                          3
largest_alloc_size:                         4
bytes_limit:                               10
bytes_reserved:                             5
peak_bytes_reserved:                        6
bytes_reservable_limit:                  none
largest_free_block_bytes:                   7
pool_bytes:                                 8
peak_pool_bytes:                            9
`
	if s.String() != want {
		t.Errorf("got\n%swant\n%s", s, want)
	}
	if m := s.Map(); len(m) != 10 || m["bytes_limit"] != 10 || m["peak_pool_bytes"] != 9 {
		t.Errorf("%v", m)
	}
}

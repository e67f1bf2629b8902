package caching_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

func TestDefect15_CacheInfoTellsWhatIsCachedAndTheLargestBlock(t *testing.T) {
	b := newBench(t, gib, "")
	info := func(want, wantLargest int64) {
		t.Helper()
		cached, largest := b.CacheInfo()
		testkit.Equal(t, "cached and free", cached, want)
		testkit.Equal(t, "the largest block", largest, wantLargest)
	}
	info(0, 0)
	small, large := b.alloc(512), b.alloc(30*mib)
	info(2*mib-512, 2*mib-512)
	side := b.stream()
	b.Free(b.allocOn(side, 12*mib))
	info(14*mib-512, 12*mib)
	p := b.NewPool(caching.PoolOptions{})
	block, err := p.Alloc(b.s, 40*mib)
	if err != nil {
		t.Fatal(err)
	}
	p.Free(block)
	info(54*mib-512, 40*mib)
	b.Free(large)
	b.Free(small)
	info(84*mib, 40*mib)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	b.emptyCache()
	info(0, 0)
}

// PyTorch's gc_counter: the searches of the pool since the block became free, while garbage is collected.
func TestDefect15_SnapshotsTellTheAgeOfFreeBlocks(t *testing.T) {
	b := newBench(t, gib, "garbage_collection_threshold:0.9,limit:500MiB")
	ages := func(want ...int64) {
		t.Helper()
		var got []int64
		for _, s := range b.Snapshot() {
			for _, block := range s.Blocks {
				got = append(got, block.GCCount)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the ages are %v, want %v", got, want)
		}
	}
	first, second := b.alloc(20*mib), b.alloc(30*mib)
	ages(0, 0)
	b.Free(first)
	ages(0, 0)
	b.Free(b.alloc(40 * mib)) // one search
	ages(1, 0, 0)
	b.Free(b.alloc(40 * mib))
	ages(2, 0, 0)
	b.Free(second)
	b.Free(b.alloc(mib)) // of the other pool
	ages(2, 0, 0, 0)
	b.Free(b.alloc(20 * mib))
	ages(0, 1, 1, 0)
}

func TestDefect15_AllocAtTakesBlocksOfTheDefaultPool(t *testing.T) {
	b := newBench(t, gib, "")
	at := func(ptr driver.Pointer, size int64) (mem.Block, bool) { return b.AllocAt(b.s, mem.PoolID{}, ptr, size) }
	first := b.alloc(30 * mib)
	if _, ok := at(first.Ptr, 512); ok {
		t.Error("a block that is live was allocated again")
	}
	b.Free(first)
	middle, ok := at(first.Ptr+driver.Pointer(4*mib), 4*mib)
	if !ok || middle.Ptr != first.Ptr+driver.Pointer(4*mib) || middle.Size != 4*mib {
		t.Fatalf("AllocAt = %+v, %v", middle, ok)
	}
	p := b.NewPool(caching.PoolOptions{})
	private, err := p.Alloc(b.s, 30*mib)
	if err != nil {
		t.Fatal(err)
	}
	p.Free(private)
	if block, ok := at(private.Ptr, mib); ok {
		t.Errorf("a private pool's block was given out: %+v", block)
	}
	if block, ok := b.AllocAt(b.s, mem.PoolID{0, 12345}, first.Ptr, 512); ok {
		t.Errorf("a block of a pool that does not exist: %+v", block)
	}
	testkit.Equal(t, "the blocks around it", b.Stats().InactiveSplitBytes.All.Current, 26*mib)
	b.Free(middle)
	b.Free(b.alloc(30 * mib))
	testkit.Equal(t, "segments", b.Stats().Segment.All.Current, 2)
}

// The names and numbers of PyTorch's CUDACachingAllocatorReserveTest.cpp, on a device of 100 GiB.
func TestDefect15_ReservesByClass(t *testing.T) {
	const total = 100 * gib
	b := newBench(t, total, "expandable_segments:True")
	reserve := func(class string) int64 {
		t.Helper()
		s := b.stream()
		b.SetReserveClass(s, class)
		b.Free(b.allocOn(s, 512)) // of small blocks: pages of 2 MiB
		for _, seg := range b.ExpandableSegments() {
			if seg.Stream == s.ID() {
				return seg.Reserved
			}
		}
		t.Fatal("the stream has no expandable segment")
		return 0
	}
	pages := func(n int64) int64 { return (n + 2*mib - 1) / (2 * mib) * (2 * mib) }
	testkit.Equal(t, "without settings", reserve(""), total/8*9)
	testkit.Equal(t, "without settings, in a class", reserve("other"), total/8*9)
	if err := b.SetDefaultReserve("quiet", 0.5); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "a default", reserve("quiet"), total/2)

	b.configure("expandable_segments_reserve:0.9,expandable_segments_reserve_by_class:[serving:0.25,ads_sparse:8G]")
	testkit.Equal(t, "serving", reserve("serving"), total/4)
	testkit.Equal(t, "ads_sparse", reserve("ads_sparse"), 8*gib)
	testkit.Equal(t, "unknown", reserve("other"), total/10*9)
	testkit.Equal(t, "none", reserve(""), total/10*9)
	testkit.Equal(t, "a list replaces defaults", reserve("quiet"), total/10*9)

	b.configure("expandable_segments_reserve:abc,expandable_segments_reserve_by_class:[serving:0.25,bad:12X]")
	testkit.Equal(t, "a bad value leaves what there was", reserve(""), total/10*9)
	testkit.Equal(t, "a bad entry", reserve("bad"), total/10*9)
	testkit.Equal(t, "beside a good one", reserve("serving"), total/4)
	b.configure("")
	testkit.Equal(t, "a text without lists", reserve("serving"), total/4)
	b.configure("expandable_segments_reserve:1e20G")
	testkit.Equal(t, "too much", reserve(""), total/8*9)

	// The settings take precedence over the program.
	for _, class := range []string{"serving", "telemetry"} {
		if err := b.SetDefaultReserve(class, 0.9); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Equal(t, "the settings' entry", reserve("serving"), total/4)
	testkit.Equal(t, "the settings' reserve", reserve("telemetry"), total/8*9)
	b.configure("expandable_segments_reserve:0.05,expandable_segments_reserve_by_class:[]")
	testkit.Equal(t, "an empty list", reserve("serving"), pages(total/20))
}

func TestDefect15_StreamsHaveReserveClasses(t *testing.T) {
	b := newBench(t, gib, "")
	s, other := b.stream(), b.stream()
	for _, class := range []string{"", "serving", "lrm_sparse", ""} {
		b.SetReserveClass(s, class)
		testkit.Equal(t, "the class", b.ReserveClass(s), class)
		testkit.Equal(t, "that of another stream", b.ReserveClass(other), "")
	}
	testkit.Contains(t, testkit.Panic(t, func() { b.SetReserveClass(nil, "serving") }),
		"caching: SetReserveClass on a nil stream")
	if err := b.SetDefaultReserve("serving", 0); err == nil {
		t.Error("a default reserve of nothing was accepted")
	}
}

// A request that no segment of its stream's class can hold is an out-of-memory error that names setting and class.
func TestDefect15_ARequestLargerThanItsClassesReserve(t *testing.T) {
	b := newBench(t, gib, "expandable_segments:True,expandable_segments_reserve_by_class:[tiny:0.05]")
	heard := 0
	b.OnOutOfMemory(func(*mem.OutOfMemory) { heard++ })
	b.SetReserveClass(b.s, "tiny")
	text := b.fails(gib / 5).Error()
	for _, want := range []string{"expandable-segment", "expandable_segments_reserve_by_class", "tiny"} {
		if !strings.Contains(text, want) {
			t.Errorf("the message lacks %q:\n%s", want, text)
		}
	}
	testkit.Equal(t, "observers", heard, 1)
	testkit.Equal(t, "retries", b.Stats().NumAllocRetries, 1)
	b.SetReserveClass(b.s, "")
	b.Free(b.alloc(gib / 5))
}

// PyTorch's getExpandableSegmentSizes: the stream, the pool and what is mapped.
func TestDefect15_ExpandableSegmentSizes(t *testing.T) {
	b := newBench(t, gib, "expandable_segments:True")
	side := b.stream()
	small, large := b.alloc(512), b.alloc(30*mib)
	other := b.allocOn(side, 50*mib)
	want := []caching.ExpandableInfo{
		{Stream: 0, Small: true, Mapped: 2 * mib, Reserved: 1152 * mib},
		{Stream: 0, Mapped: 40 * mib, Reserved: 1160 * mib},
		{Stream: side.ID(), Mapped: 60 * mib, Reserved: 1160 * mib},
	}
	if got := b.ExpandableSegments(); !slices.Equal(got, want) {
		t.Errorf("the segments are %+v, want %+v", got, want)
	}
	b.Free(large)
	b.Free(other)
	b.emptyCache()
	if got := b.ExpandableSegments(); !slices.Equal(got, want[:1]) {
		t.Errorf("the segments are %+v, want %+v", got, want[:1])
	}
	b.Free(small)
	b.emptyCache()
	testkit.Equal(t, "segments", len(b.ExpandableSegments()), 0)
}

// The maps of a Config that is given and of one that is got are not the allocator's.
func TestDefect15_ReservesByClassAreCopied(t *testing.T) {
	d := drivertest.OpenSim(t, gib)
	cfg := caching.Default()
	cfg.ExpandableReserveByClass = map[string]caching.Reserve{"serving": {Fraction: 0.5}}
	a, err := caching.New(d, cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ExpandableReserveByClass["serving"] = caching.Reserve{Fraction: 0.25}
	a.Config().ExpandableReserveByClass["serving"] = caching.Reserve{Fraction: 0.125}
	testkit.Equal(t, "the reserve", a.Config().ExpandableReserveByClass["serving"], caching.Reserve{Fraction: 0.5})
	for _, bad := range []caching.Reserve{{Bytes: -1}, {Fraction: -0.5}} {
		cfg.ExpandableReserveByClass["serving"] = bad
		if err := a.Configure(cfg); err == nil || !strings.Contains(err.Error(), `class "serving"`) {
			t.Errorf("a reserve of %+v: %v", bad, err)
		}
	}
}

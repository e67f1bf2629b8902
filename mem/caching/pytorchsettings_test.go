package caching_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// A split limit with large segments: a block of 100 MiB may be 64 MiB larger than requested.
func TestDefect09_NonSplitRoundingFollowsTheLargeSegmentSize(t *testing.T) {
	b := newBench(t, gib, "large_segment_size_mb:64,max_split_size_mb:64")
	b.Free(b.alloc(100 * mib))
	b.Free(b.alloc(70 * mib))
	testkit.Equal(t, "segments", b.Stats().Segment.All.Allocated, 1)
	b.Free(b.alloc(36*mib + 512)) // below the limit, a block that may not be split is not for it
	testkit.Equal(t, "segments", b.Stats().Segment.All.Allocated, 2)
}

func TestDefect09_EachSettingsTextSetsTheNonSplitRoundingAnew(t *testing.T) {
	b := newBench(t, gib, "")
	for _, c := range []struct {
		settings string
		want     int64
	}{
		{"max_non_split_rounding_mb:40", 40},
		{"expandable_segments:False", 20},
		{"max_non_split_rounding_mb:64,large_segment_size_mb:64", 64}, // in either order
		{"max_non_split_rounding_mb:80", 80},
		{"max_split_size_mb:100", 64}, // the segment size stays
		{"large_segment_size_mb:32", 32},
		{"", 32},
	} {
		b.configure(c.settings)
		testkit.Equal(t, c.settings, b.Config().MaxNonSplitRounding, c.want*mib)
	}
	if _, err := b.ParseConfigure("max_non_split_rounding_mb:30"); err == nil {
		t.Error("a rounding below the segment size in force was accepted")
	}
	testkit.Equal(t, "after an error", b.Config().MaxNonSplitRounding, 32*mib)
}

// An expandable segment reserves 9/8 of the device's memory, or less if a setting says so, never more.
func TestDefect10_TheReserveIsCappedAtNineEighths(t *testing.T) {
	for settings, want := range map[string]int64{
		"":                                   1152 * mib,
		"expandable_segments_reserve:0.5":    512 * mib,
		"expandable_segments_reserve:1.5":    1152 * mib,
		"expandable_segments_reserve:40G":    1152 * mib,
		"expandable_segments_reserve:1e20G":  1152 * mib,
		"expandable_segments_reserve:0.5G":   512 * mib,
		"expandable_segments_reserve:1e-9G":  20 * mib, // a page at least
		"expandable_segments_reserve:abc":    1152 * mib,
		"expandable_segments_reserve:1000MB": 1152 * mib,
		"expandable_segments_reserve:0.5,expandable_segments_reserve:0.25G": 256 * mib,
		"expandable_segments_reserve:0.25G,expandable_segments_reserve:0.5": 512 * mib,
	} {
		w := watch(drivertest.OpenSim(t, gib))
		a := newAllocator(t, w, "expandable_segments:True,"+settings)
		b, err := a.Alloc(w.DefaultStream(), 2*mib)
		if err != nil {
			t.Fatal(err)
		}
		a.Free(b)
		testkit.Equal(t, settings, w.vm.reserved[0], (want+20*mib-1)/(20*mib)*20*mib)
	}
}

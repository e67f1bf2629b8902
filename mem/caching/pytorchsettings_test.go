package caching_test

import (
	"testing"
)

// A split limit with large segments: a block of 100 MiB may be 64 MiB larger than what is asked for.
func TestDefect09_NonSplitRoundingFollowsTheLargeSegmentSize(t *testing.T) {
	b := newBench(t, gib, "large_segment_size_mb:64,max_split_size_mb:64")
	b.Free(b.alloc(100 * mib))
	b.Free(b.alloc(70 * mib))
	equal(t, "segments", b.Stats().Segment.All.Allocated, 1)
	b.Free(b.alloc(36*mib + 512)) // below the limit, a block that may not be split is not for it
	equal(t, "segments", b.Stats().Segment.All.Allocated, 2)
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
		equal(t, c.settings, b.Config().MaxNonSplitRounding, c.want*mib)
	}
	if _, err := b.ParseConfigure("max_non_split_rounding_mb:30"); err == nil {
		t.Error("a rounding below the segment size in force was accepted")
	}
	equal(t, "after an error", b.Config().MaxNonSplitRounding, 32*mib)
}

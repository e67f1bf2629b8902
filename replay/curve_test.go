package replay_test

import (
	"path/filepath"
	"testing"

	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
)

// The highest points of a curve are the peaks of the same run, and the points follow the recording.
func TestCurveReachesThePeaks(t *testing.T) {
	s, err := snapshot.ReadFile(filepath.Join("..", "testdata", "traces", "resnet.stacks.pickle.zst"))
	if err != nil {
		t.Fatal(err)
	}
	works, err := replay.Works(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range []string{"caching", "caching:expandable_segments:True", "bfc", "direct", "paged", "arena"} {
		row, err := replay.Simulate(works[0], spec, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, most := range []int{1, 100, 1 << 30} {
			points, err := replay.Curve(works[0], spec, 0, 0, most)
			if err != nil {
				t.Fatal(err)
			}
			var reserved, allocated int64
			last := -1
			for _, p := range points {
				reserved, allocated = max(reserved, p.Reserved), max(allocated, p.Allocated)
				if p.Entry < last {
					t.Fatalf("%s: event %d after %d", spec, p.Entry, last)
				}
				last = p.Entry
			}
			if len(points) == 0 || len(points) > most || reserved != row.ReservedPeak || allocated != row.RequestedPeak {
				t.Errorf("%s: %d points up to %d reserved and %d requested, want at most %d up to %d and %d", spec,
					len(points), reserved, allocated, most, row.ReservedPeak, row.RequestedPeak)
			}
		}
	}
	if _, err := replay.Curve(works[0], "nothing", 0, 0, 1); err == nil {
		t.Error("an unknown allocator has a curve")
	}
}

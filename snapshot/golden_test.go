package snapshot_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

const traces = "../testdata/traces"

// golden is the table of testdata/traces/README.md, plus further content of the files.
var golden = []struct {
	name           string
	allocs         int
	requestedPeak  int64
	reservedPeak   int64
	gained, lost   int // segments or ranges
	events         int
	segments       int
	annotations    int
	stacks, frames int
	streams        int
	ooms           int
	conf           string
}{
	{"resnet", 6615, 4134814436, 5190451200, 130, 0, 19969, 130, 32, 0, 0, 1, 0, ""},
	{"resnet.stacks", 6615, 4134814436, 5190451200, 130, 0, 19969, 130, 32, 56, 54, 1, 0, ""},
	{"resnet.round4", 6615, 4134814436, 5404360704, 135, 0, 19974, 135, 32, 0, 0, 1, 0, "roundup_power2_divisions:4"},
	{"gpt2", 43035, 19210829128, 26661093376, 169, 0, 129268, 169, 120, 0, 0, 1, 0, ""},
	{"gpt2.expandable", 43035, 19210829128, 20705181696, 159, 0, 129258, 2, 120, 0, 0, 1, 0, "expandable_segments:True"},
	{"gpt2.oom", 42140, 18032530220, 19363004416, 168, 35, 126618, 133, 118, 0, 0, 1, 1, ""},
	{"unet", 8093, 8442335024, 11207180288, 98, 0, 24377, 98, 48, 0, 0, 1, 0, ""},
	{"unet.stacks", 8093, 8442335024, 11207180288, 98, 0, 24377, 98, 48, 31, 41, 1, 0, ""},
	{"unet.expandable", 8093, 8442335024, 8816427008, 98, 0, 24377, 2, 48, 0, 0, 1, 0, "expandable_segments:True"},
	{"unet.split128", 8093, 8442335024, 18901630976, 137, 0, 24416, 137, 48, 0, 0, 1, 0, "max_split_size_mb:128"},
	{"unet.gc6", 8093, 8442335024, 8858370048, 127, 69, 24475, 58, 48, 0, 0, 1, 0, "garbage_collection_threshold:0.6"},
	{"streams", 1670, 693346392, 1151336448, 47, 1, 5043, 46, 0, 0, 0, 4, 0, ""},
	{"streams.expandable", 1670, 693346392, 811597824, 35, 0, 5030, 9, 0, 0, 0, 4, 0, "expandable_segments:True"},
}

func TestGoldenFiles(t *testing.T) {
	for _, want := range golden {
		t.Run(want.name, func(t *testing.T) {
			s, err := snapshot.ReadFile(filepath.Join(traces, want.name+".pickle.zst"))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Check(); err != nil {
				t.Error(err)
			}
			if len(s.Skipped) != 0 {
				t.Errorf("Skipped = %v, want nothing", s.Skipped)
			}
			if len(s.Traces) != 1 {
				t.Fatalf("%d traces, want 1", len(s.Traces))
			}
			tr := s.Traces[0]
			counts, requested, reserved := peaks(tr)
			testkit.Equal(t, "allocs", counts[mem.ActionAlloc], want.allocs)
			testkit.Equal(t, "ooms", counts[mem.ActionOOM], want.ooms)
			testkit.Equal(t, "requested peak", requested, want.requestedPeak)
			testkit.Equal(t, "reserved peak", reserved, want.reservedPeak)
			testkit.Equal(t, "segments gained", counts[mem.ActionSegmentAlloc]+counts[mem.ActionSegmentMap], want.gained)
			testkit.Equal(t, "segments lost", counts[mem.ActionSegmentFree]+counts[mem.ActionSegmentUnmap], want.lost)
			testkit.Equal(t, "events", len(tr.Events), want.events)
			testkit.Equal(t, "segments", len(s.Segments), want.segments)
			testkit.Equal(t, "annotations", len(s.Annotations), want.annotations)
			testkit.Equal(t, "stacks", s.Stacks.Len(), want.stacks)
			if want.stacks > 0 {
				testkit.Equal(t, "frames", len(s.Stacks.Frames), want.frames)
			}
			testkit.Equal(t, "streams", len(tr.Streams), want.streams)
			testkit.Equal(t, "conf", s.Settings.Conf, want.conf)
			testkit.Equal(t, "pools known", tr.PoolsKnown, false)
			if !slices.IsSorted(tr.Streams) {
				t.Errorf("Streams = %v, want ascending", tr.Streams)
			}
			if tr.Stacks != s.Stacks {
				t.Error("the trace does not share the stacks of the snapshot")
			}
		})
	}
}

// peaks counts the events of a trace by action, and returns the peaks of its totals.
func peaks(t *trace.Trace) (counts [mem.NumActions]int, requestedPeak, reservedPeak int64) {
	for _, e := range t.Events {
		counts[e.Action]++
	}
	sums := t.Totals()
	return counts, sums.Requested.Peak, sums.Reserved.Peak
}

// TestGoldenDetails compares single entries, segments and settings with the values that Python reads from the same
// files.
func TestGoldenDetails(t *testing.T) {
	read := func(name string) *snapshot.Snapshot {
		t.Helper()
		s, err := snapshot.ReadFile(filepath.Join(traces, name+".pickle.zst"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	s := read("resnet.stacks")
	tr := s.Traces[0]
	first := tr.Events[1]
	testkit.Equal(t, "first alloc", first, trace.Event{
		TimeUS: 1795224077891713, Ptr: 139933454958592, Size: 37632, Stack: first.Stack, Action: mem.ActionAlloc,
	})
	var names []string
	for _, f := range s.Stacks.At(first.Stack) {
		names = append(names, s.Stacks.Frames[f].Name)
	}
	if want := []string{"convert", "_apply", "_apply", "to", "resnet", "<module>"}; !slices.Equal(names, want) {
		t.Errorf("stack of the first alloc = %q, want %q", names, want)
	}
	testkit.Equal(t, "innermost frame", s.Stacks.Frames[s.Stacks.At(first.Stack)[0]],
		trace.Frame{Name: "convert", Filename: "site-packages/torch/nn/modules/module.py", Line: 1370})

	s = read("gpt2.oom")
	oom := s.Traces[0].Events[slices.IndexFunc(s.Traces[0].Events, func(e trace.Event) bool {
		return e.Action == mem.ActionOOM
	})]
	testkit.Equal(t, "oom", oom, trace.Event{
		TimeUS: 1795224087108007, Ptr: 131406561280, Size: 2431634944, Action: mem.ActionOOM,
	})

	s = read("streams")
	tr = s.Traces[0]
	if want := []uint64{0, 876871632, 876910080, 876923344}; !slices.Equal(tr.Streams, want) {
		t.Errorf("Streams = %v, want %v", tr.Streams, want)
	}
	if want := []mem.PoolID{{0, 0}, {1, 0}}; !slices.Equal(tr.Pools, want) {
		t.Errorf("Pools = %v, want %v", tr.Pools, want)
	}
	private, pending := 0, 0
	for _, seg := range s.Segments {
		if seg.Pool == (mem.PoolID{1, 0}) {
			private++
			testkit.Equal(t, "stream of a private segment", seg.Stream, 876923344)
		}
		for _, b := range seg.Blocks {
			if b.State == mem.ActivePendingFree {
				pending++
			}
		}
	}
	testkit.Equal(t, "private segments", private, 3)
	testkit.Equal(t, "pending blocks", pending, 1)
	testkit.Equal(t, "first segment", s.Segments[0].Ptr, 140573038084096)
	testkit.Equal(t, "its block", s.Segments[0].Blocks[0], snapshot.Block{
		Ptr: 140573038084096, Size: 67108864, RequestedSize: 62914560, State: mem.Inactive,
	})

	s = read("unet.split128")
	testkit.Equal(t, "max_split_size", s.Settings.MaxSplitSize, 128<<20)
	testkit.Equal(t, "raw setting", s.Settings.Raw["max_split_size"], any(int64(128<<20)))
	s = read("unet.gc6")
	testkit.Equal(t, "garbage_collection_threshold", s.Settings.GarbageCollectionThreshold, 0.6)
	s = read("resnet.round4")
	testkit.Equal(t, "round-ups", len(s.Settings.RoundupPower2Divisions), 16)
	testkit.Equal(t, "last round-up", s.Settings.RoundupPower2Divisions[15], snapshot.RoundUp{MiB: 32768, Divisions: 4})
	testkit.Equal(t, "first annotation", s.Annotations[0], snapshot.Annotation{
		TimeUS: 1795223943817215, Name: "Optimizer.zero_grad#SGD.zero_grad", Stage: "START",
	})
	s = read("gpt2.expandable")
	testkit.Equal(t, "expandable_segments", s.Settings.ExpandableSegments, true)
	testkit.Equal(t, "expandable segment", s.Segments[0].Expandable, true)
}
